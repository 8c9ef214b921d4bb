"""Swapping: two names of one file system that change places, atomically, again and again."""

import ctypes
import os
import sys
import threading
from pathlib import Path

_AT_FDCWD = -100
_EXCHANGE = 2
_libc = ctypes.CDLL(None, use_errno=True)


class Swapper:
    """Exchanges what two paths name, until it is stopped.

    Args:
        one: a path.
        other: another one on the same file system.
    """

    def __init__(self, one: Path, other: Path) -> None:
        self._paths = os.fsencode(one), os.fsencode(other)
        self._is_stopped = False
        self.swaps = 0

    def run(self) -> None:
        """Exchange the two for as long as nobody says stop; an even number of times."""
        while not self._is_stopped or self.swaps % 2:
            self.swap()

    def swap(self) -> None:
        """Exchange the two once: at no moment is one of the names missing."""
        one, other = self._paths
        if _libc.renameat2(_AT_FDCWD, one, _AT_FDCWD, other, _EXCHANGE):
            raise OSError(ctypes.get_errno(), "the two could not be exchanged")
        self.swaps += 1

    def stop(self) -> None:
        """Let it end."""
        self._is_stopped = True


def main() -> None:
    """Exchange the two paths of the command line until standard input ends, then print how often."""
    swapper = Swapper(Path(sys.argv[1]), Path(sys.argv[2]))
    thread = threading.Thread(target=swapper.run)
    thread.start()
    sys.stdin.read()
    swapper.stop()
    thread.join()
    sys.stdout.write(f"{swapper.swaps}\n")


if __name__ == "__main__":
    main()
