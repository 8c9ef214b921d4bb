"""What was read since the database last changed.

The invariant: a thing is given again only while no commit has happened since before it was read.
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Thing = TypeVar("Thing")

MAX_KEPT_BYTES = 32 * 1024 * 1024
"""How many bytes one of these keeps for the next reader."""

MAX_THING_BYTES = 1024 * 1024
_MAX_KEPT = 4096


class Recent(Generic[Thing]):
    """Remembers what was read since the database last changed.

    Most readers of a debug plane ask the same again: pages that poll, workers that follow the same pointers. As long as
    nobody commits, they get the same for a look into memory, and any commit, of whichever process, empties it. So it
    needs no list of what a write makes stale, which could be wrong.

    Args:
        version: returns a number that differs after any commit; None where that cannot be told.
    """

    def __init__(self, version: Callable[[], int | None]) -> None:
        self._read_version = version
        self._version: int | None = None
        self._kept: dict[Hashable, tuple[Thing, int]] = {}
        self._kept_bytes = 0

    def find(self, key: Hashable) -> Thing | None:
        """Return what was read under a key, unless that could have changed.

        After None, take :attr:`version`, read, and :meth:`keep` what was read.
        """
        version = self._read_version()
        if version is None or version != self._version:
            self._forget()
            self._version = version
        kept = self._kept.get(key)
        return None if kept is None else kept[0]

    @property
    def version(self) -> int | None:
        """The version that the last :meth:`find` saw: what is read after it is at least as new."""
        return self._version

    def keep(self, key: Hashable, thing: Thing, size_bytes: int, version: int | None) -> None:
        """Remember what was read after :attr:`version` was ``version``, unless it is over 1 MiB."""
        if version is None or version != self._version or size_bytes > MAX_THING_BYTES:
            return
        if self._kept_bytes + size_bytes > MAX_KEPT_BYTES or len(self._kept) >= _MAX_KEPT:
            self._forget()
        _, replaced_bytes = self._kept.get(key, (None, 0))
        self._kept[key] = thing, size_bytes
        self._kept_bytes += size_bytes - replaced_bytes

    def _forget(self) -> None:
        self._kept.clear()
        self._kept_bytes = 0
