"""A small disk of one's own: a tmpfs of some MiB, filled to the brim and cleared again.

The invariant: what was mounted is unmounted, however the test ends.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path


class Disk:
    """A mounted disk, and a file of somebody else on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._other = path / "somebody-elses"

    @property
    def free_bytes(self) -> int:
        """What is left."""
        found = os.statvfs(self.path)
        return found.f_frsize * found.f_bavail

    def fill(self) -> None:
        """Let somebody else's file take all that is left."""
        with self._other.open("ab", buffering=0) as other, contextlib.suppress(OSError):
            while other.write(b"x" * 4096):
                pass
        assert self.free_bytes == 0

    def fill_but(self, size_bytes: int) -> None:
        """Let somebody else's file take all but so much, where there is as much."""
        self.fill()
        os.truncate(self._other, max(0, self._other.stat().st_size - size_bytes))

    def clear(self) -> None:
        """Remove somebody else's file."""
        self._other.unlink()


@contextlib.contextmanager
def mounted(path: Path, size_mib: int) -> Iterator[Disk]:
    """Mount a disk of its own at a new directory; takes root."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(path)], check=True)
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
