"""Room: how much the disk of a SQLite file has left, and the reserve that is kept for making more.

The invariant: the reserve is given up for what makes room (a removal, the start), and for no other write.

A removal takes room before it gives any: its changes go through the WAL, and the WAL's index needs a file of its own.
On a disk that is full to the brim nothing could be removed, so some room is held back in a file that has no content.
"""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from app.domain.errors import StorageFull
from app.observability import STORAGE_FULL

LOW_BYTES = 64 * 1024 * 1024
"""Below it each commit is carried into the database file at once: the WAL must not hold the room that this takes."""

_MIB = 1024 * 1024
_START_BYTES = 128 * 1024  # what the WAL and its index take before anything is written
_SLACK_BYTES = 128 * 1024


class Room:
    """The disk of a database file.

    Args:
        path: the database file; the reserve stands beside it.
    """

    def __init__(self, path: Path) -> None:
        self._directory = path.parent
        self._reserve = path.with_name(f"{path.name}.reserve")
        self._lacks_reserve = True
        self._refused_at_bytes: int | None = None

    @property
    def is_low(self) -> bool:
        """Tell whether little is left."""
        return self._free_bytes() < LOW_BYTES

    @property
    def is_full(self) -> bool:
        """Tell whether the last write was refused for want of room, and none has come since."""
        return self._refused_at_bytes is not None and self._free_bytes() < self._refused_at_bytes + _MIB

    def require(self, growth_bytes: int) -> None:
        """Hold a write to the room that it takes: once in the WAL, and once more in the database file.

        A commit that only the WAL has room for could never be carried over, and every later write would be refused.

        Raises:
            StorageFull: there is less.
        """
        if growth_bytes > 0 and self._free_bytes() < 2 * growth_bytes + _SLACK_BYTES:
            raise self.refusal()

    def refusal(self) -> StorageFull:
        """Note that a write found no room, and return the fact."""
        self._refused_at_bytes = self._free_bytes()
        STORAGE_FULL.set(1)
        return StorageFull(str(self._directory))

    def note_write(self) -> None:
        """Note that a write found room."""
        if self._refused_at_bytes is not None:
            self._refused_at_bytes = None
            STORAGE_FULL.set(0)
        if self._lacks_reserve:
            self.keep()

    def keep(self) -> None:
        """Make the reserve where there is none, or not all of it, and leave some room beside it."""
        size_bytes = self._reserve_bytes()
        try:
            has_bytes = self._reserve.stat().st_size if self._reserve.exists() else 0
            self._lacks_reserve = has_bytes < size_bytes
            if not self._lacks_reserve or self._free_bytes() + has_bytes < size_bytes + 2 * _SLACK_BYTES:
                return
            descriptor = os.open(self._reserve, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, size_bytes)
            finally:
                os.close(descriptor)
            self._lacks_reserve = False
        except OSError:  # a disk that took less than it said, or a directory that takes no file
            self.give_up()

    def give_up(self) -> bool:
        """Give the reserve up, and tell whether there was any."""
        self._lacks_reserve = True
        with suppress(OSError):
            self._reserve.unlink()
            return True
        return False

    def give_up_for_start(self) -> bool:
        """Give up as much of the reserve as opening the database takes, and tell whether there was as much."""
        self._lacks_reserve = True
        with suppress(OSError):
            left_bytes = self._reserve.stat().st_size - _START_BYTES
            if left_bytes >= 0:
                os.truncate(self._reserve, left_bytes)
                return True
        return False

    def _reserve_bytes(self) -> int:
        """Take a small part of the disk: enough for one slice of a removal, and for what the WAL holds."""
        with suppress(OSError):
            disk = os.statvfs(self._directory)
            return min(4 * _MIB, max(_MIB, disk.f_frsize * disk.f_blocks // 256))
        return _MIB

    def _free_bytes(self) -> int:
        try:
            disk = os.statvfs(self._directory)
        except OSError:  # the directory is gone: the next look at the file tells it
            return LOW_BYTES
        return disk.f_frsize * disk.f_bavail


def is_about_room(error: BaseException | None) -> bool:
    """Tell whether SQLite found no room: for a page, or for the WAL's index."""
    code = getattr(error, "sqlite_errorcode", 0)
    return isinstance(error, StorageFull) or code & 0xFF == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_SHMSIZE
