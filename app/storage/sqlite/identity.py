"""The identity of the database file: whether what is open is still what stands under its name.

The invariant: a file that was found gone or replaced stays lost, whatever stands under its name later.
"""

import errno
import os
from pathlib import Path

from app.domain.errors import StorageGone


class FileIdentity:
    """Remembers which file was first seen under a path.

    SQLite goes on with a file that was deleted or replaced: what it acknowledges is in a file that nobody can open.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self.is_lost = False

    def require(self) -> int:
        """Return the size of the file in bytes; 0 where it was never there.

        Raises:
            StorageGone: it was there, and is not, or another stands in its place.
        """
        size_bytes = self._look()
        if self.is_lost:
            raise StorageGone(str(self._path))
        return size_bytes

    def require_known(self) -> None:
        """Raise as :meth:`require`, by what was found last: a read takes no look of its own."""
        if self.is_lost:
            raise StorageGone(str(self._path))

    def _look(self) -> int:
        try:
            found = os.stat(self._path)  # noqa: PTH116 - at every commit: Path.stat takes twice the time
        except OSError as error:
            if self._seen is not None and error.errno in _NOT_THERE:
                self.is_lost = True
            return 0
        if self._seen is None:
            self._seen = (found.st_dev, found.st_ino)
        elif self._seen != (found.st_dev, found.st_ino):
            self.is_lost = True
        return found.st_size


_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})
