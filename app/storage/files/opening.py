"""Opening: the one place that opens, replaces and removes files which others can reach.

The invariant: what was opened is what is judged. A path is walked from the root of the file system, each part opened
relative to the one before it and never through a link. Where links are to be followed they are read and walked here,
part by part. So a directory that is swapped for a link meanwhile leads nowhere, and the path that is judged is made of
the parts that were opened.
"""

import contextlib
import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, Self

from app.domain.limits import PATH_BYTES, PATH_PART_BYTES

_LINKS = 40  # as many as Linux follows in one path
_PASS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # without O_NONBLOCK a named pipe would be waited for
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


_TEMPORARY = re.compile(r"\.stepplane-[0-9a-f]{16}\.tmp")

PRIVATE_MODE = 0o600


class Opened(NamedTuple):
    """An open file or directory, and the path that it was reached by: absolute, with no link in it."""

    handle: int
    path: str


@contextlib.contextmanager
def opened_directory(path: str) -> Iterator[Opened]:
    """Open a directory by an absolute path, which may lead through links.

    Raises:
        OSError: there is none, or the path is too long.
    """
    with _Walk(path) as walk:
        walk.follow(path, to_directory=True)
        yield Opened(walk.handle, walk.path)


@contextlib.contextmanager
def opened_file(path: str, inside: Sequence[str] | None, *, through_links: bool = False) -> Iterator[Opened]:
    """Open a regular file for reading.

    Args:
        path: its absolute path.
        inside: real paths of directories, of which one must hold it, at whatever depth; None allows any.
        through_links: whether the path may lead through links; else it must be the real one.

    Raises:
        OSError: there is none, it lies elsewhere, or the path is too long. Outside nothing is opened for reading.
    """
    with _Walk(path) as walk:
        if through_links:
            name = walk.follow(path, to_directory=False)
        else:
            *directories, name = _real_parts(path)
            for directory in directories:
                walk.enter(directory, may_return=False)
        if not lies_in(walk.path, inside):
            raise PermissionError(errno.EACCES, "it lies under none of the directories that may be read")
        handle = os.open(name, _READ, dir_fd=walk.handle)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or status.st_dev in _kernel_devices():
                raise OSError(errno.EINVAL, "it is no regular file")
            yield Opened(handle, f"{walk.path.rstrip('/')}/{name}")
        finally:
            os.close(handle)


@contextlib.contextmanager
def opened_below(directory: int, components: Sequence[str], make_for: int | None = None) -> Iterator[int]:
    """Open a directory below another one, through no link.

    Args:
        directory: the open directory that it is below.
        components: the names that lead there.
        make_for: the mode of the files that it is made for where it is missing; None makes nothing. Who may read those
            may go into it.

    Raises:
        OSError: a part is missing, a link, or no directory.
    """
    with contextlib.ExitStack() as stack:
        for component in components:
            if make_for is not None:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(component, make_for | (make_for & 0o444) >> 2, dir_fd=directory)
            directory = os.open(component, _PASS, dir_fd=directory)
            stack.callback(os.close, directory)
        yield directory


def read_file(directory: int, name: str) -> bytes:
    """Read a regular file of an open directory, not through a link.

    Raises:
        OSError: there is none, or the disk refused.
    """
    handle = os.open(name, _READ, dir_fd=directory)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        return file.read()


class WrittenFile:
    """A file that is written whole beside the place that it is to take; it must be closed.

    Args:
        directory: the open directory.
        name: the name that it is to take there.
        body: what it holds.
        mode: who may read and write it; what the process's umask forbids is taken away.

    Raises:
        OSError: the disk refused; nothing is left.
    """

    def __init__(self, directory: int, name: str, body: bytes, mode: int) -> None:
        self._name = name
        self._temporary: str | None = f".stepplane-{secrets.token_hex(8)}.tmp"
        self._directory = os.dup(directory)
        try:
            with os.fdopen(os.open(self._temporary, _CREATE, mode, dir_fd=directory), "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            self.close()
            raise

    def take_place(self) -> None:
        """Take the place at once and atomically; what a link there points to is not touched. Once is enough.

        Raises:
            OSError: the disk refused; what stood there stands there still.
        """
        if self._temporary is not None:
            os.replace(self._temporary, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
            self._temporary = None

    def close(self) -> None:
        """Remove it, unless it took its place."""
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary, dir_fd=self._directory)
        os.close(self._directory)


def remove_leftovers(directory: int, older_than_seconds: float) -> int:
    """Remove what :class:`WrittenFile` left in an open directory when its process was killed, and return how many.

    A name of another form, a link, another user's file and a young file, which somebody may be writing, all stay.

    Raises:
        OSError: the directory cannot be listed, or a file not be removed.
    """
    removed, before = 0, time.time() - older_than_seconds
    listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=directory)
    try:
        for name in filter(_TEMPORARY.fullmatch, os.listdir(listed)):  # noqa: PTH208 - of a descriptor
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                status = os.lstat(name, dir_fd=listed)
                is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
                if is_ours and status.st_mtime < before:
                    os.unlink(name, dir_fd=listed)
                    removed += 1
    finally:
        os.close(listed)
    return removed


def lies_in(path: str, directories: Sequence[str] | None) -> bool:
    """Tell whether a real path is one of these directories or below one; None stands for any."""
    return directories is None or any(
        path == directory or path.startswith(directory.rstrip("/") + "/") for directory in directories
    )


def real_paths(directories: Sequence[Path] | None) -> tuple[str, ...] | None:
    """Resolve the links of directories that an operator named; None stays None."""
    return None if directories is None else tuple(os.path.realpath(directory) for directory in directories)


class _Walk:
    """One open directory at a time, and the names and identities of those above it."""

    def __init__(self, path: str) -> None:
        _require_short(path)
        self.handle = os.open("/", _PASS)
        self._names: list[str] = []
        self._above: list[tuple[int, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.handle)

    @property
    def path(self) -> str:
        """The path of the open directory."""
        return "/" + "/".join(self._names)

    def enter(self, name: str, *, may_return: bool = True) -> None:
        """Go on to a directory in the open one; ``may_return`` says that ``..`` may lead back."""
        if may_return:
            self._above.append(_identity(self.handle))
        self._move(os.open(name, _PASS, dir_fd=self.handle))
        self._names.append(name)

    def follow(self, path: str, *, to_directory: bool) -> str:
        """Walk a path, through links too, and return its last name; that of a directory is empty, and it is open."""
        pending, links = _parts(path), 0
        while pending:
            name = pending.pop()
            if name == "..":
                self._leave()
                continue
            target = _link(name, self.handle)
            if target is not None:
                links += 1
                if links > _LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                _require_short(target)
                if target.startswith("/"):
                    self._restart()
                pending.extend(_parts(target))
            elif pending or to_directory:
                self.enter(name)
            else:
                return name
        if not to_directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return ""

    def _leave(self) -> None:
        if not self._names:
            return  # the root is above itself
        above = os.open("..", _PASS, dir_fd=self.handle)
        self._move(above)
        self._names.pop()
        if _identity(above) != self._above.pop():
            raise OSError(errno.ESTALE, "a directory was moved while it was walked through")

    def _restart(self) -> None:
        self._move(os.open("/", _PASS))
        self._names.clear()
        self._above.clear()

    def _move(self, handle: int) -> None:
        os.close(self.handle)
        self.handle = handle


def _parts(path: str) -> list[str]:
    return [part for part in reversed(path.split("/")) if part not in {"", "."}]


def _real_parts(path: str) -> list[str]:
    parts = path[1:].split("/")
    if not path.startswith("/") or not {"", ".", ".."}.isdisjoint(parts):
        raise OSError(errno.EINVAL, "it is no real path")
    return parts


def _require_short(path: str) -> None:
    """Refuse a path that no system call would take; looking at it costs as much as it is long, and no more."""
    body = os.fsencode(path)
    if len(body) > PATH_BYTES.value or any(len(part) > PATH_PART_BYTES.value for part in body.split(b"/")):
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))


def _link(name: str, directory: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.EINVAL:  # it is no link
            return None
        raise


def _identity(handle: int) -> tuple[int, int]:
    status = os.fstat(handle)
    return status.st_dev, status.st_ino


@cache  # they are mounted before we start, and asking costs as much as opening
def _kernel_devices() -> frozenset[int]:
    """The file systems that the kernel makes up: what looks like a file there tells of processes, ours among them."""
    devices: set[int] = set()
    for path in ("/proc", "/sys"):
        with contextlib.suppress(OSError):
            devices.add(os.lstat(path).st_dev)
    return frozenset(devices - {os.lstat("/").st_dev})
