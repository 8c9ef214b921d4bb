"""What is on disk now: the size, digest and bytes of materialized files.

The invariant: the digest told for a body is that of the bytes sent for it.
"""

import asyncio
import contextlib
import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from app.domain.errors import ProjectionIo
from app.storage.files.opening import lies_in, opened_directory, opened_file, real_paths

CHUNK_BYTES = 256 * 1024
LARGE_BYTES = 4 * 1024 * 1024
"""From this size on a file is sent in chunks and never held whole."""

MAX_BYTES = 256 * 1024 * 1024
"""A file over this size is no output of ours any more; what is in the store is served in its place."""

_SETTLED_NS = 2_000_000_000  # the coarsest time stamps in use (FAT) move every two seconds
_REMEMBERED = 50_000


class FileState(NamedTuple):
    """A materialized file as it is now."""

    path: str
    size_bytes: int
    sha256: str


class LoadedFile(NamedTuple):
    """A file and its bytes: whole, or to be sent in chunks."""

    state: FileState
    body: "bytes | LargeFile"


class _Memory(NamedTuple):
    facts: tuple[int, ...]
    sha256: str
    hashed_at_ns: int


class FileStates:
    """Knows the size and digest of files without reading each at every request.

    A remembered digest is trusted only while the file's device, inode, size, mtime and ctime are the same, and
    only when the file had been left alone for two seconds before it was hashed: a younger file could change once
    more without any of these moving. (The rule that git follows for its index.)

    Args:
        allowed_roots: the directories under which files may be read; None allows any.
    """

    def __init__(self, allowed_roots: Sequence[Path] | None = None) -> None:
        self._allowed = real_paths(allowed_roots)
        self._memory: OrderedDict[str, _Memory] = OrderedDict()

    def recall(self, path: str) -> FileState | None:
        """Return the state of a file whose digest is remembered, and still right; None where it takes reading."""
        try:
            status = os.lstat(path)
        except (OSError, ValueError):  # ValueError: a NUL in it
            return None
        remembered = self._remembered(path, status)
        if remembered is None or not lies_in(path, self._allowed):
            return None
        return FileState(path, status.st_size, remembered)

    def find(self, path: str) -> FileState | None:
        """Return the state of a file; None where no regular file can be read without following a link.

        It may have to be read and hashed, whatever its size: not on the event loop.
        """
        recalled = self.recall(path)
        if recalled is not None:
            return recalled
        with _opened(path, self._allowed) as handle:
            return None if handle is None else self._hashed(path, handle)

    def load(self, path: str) -> LoadedFile | None:
        """Return a file's bytes and their digest; None as in :meth:`find`. A large one must be closed."""
        with _opened(path, self._allowed) as handle:
            if handle is None:
                return None
            status = os.fstat(handle)
            if status.st_size >= LARGE_BYTES:
                return LoadedFile(self._hashed(path, handle), LargeFile(os.dup(handle), status))
            hashed_at_ns = time.time_ns()
            body = b"".join(_chunks(handle))
            sha256 = self._remembered(path, status)
            if sha256 is None or _facts(os.fstat(handle)) != _facts(status):
                sha256 = hashlib.sha256(body).hexdigest()
                self._remember(path, _Memory(_facts(status), sha256, hashed_at_ns))
            return LoadedFile(FileState(path, len(body), sha256), body)

    def head(self, path: str, size_bytes: int) -> bytes:
        """Read the beginning of a file, for its preview; empty where it cannot be read."""
        with _opened(path, self._allowed) as handle:
            return b"" if handle is None else os.pread(handle, size_bytes, 0)

    def _hashed(self, path: str, handle: int) -> FileState:
        status = os.fstat(handle)
        sha256 = self._remembered(path, status)
        if sha256 is None:
            hashed_at_ns = time.time_ns()
            digest = hashlib.sha256()
            for chunk in _chunks(handle):
                digest.update(chunk)
            sha256 = digest.hexdigest()
            self._remember(path, _Memory(_facts(status), sha256, hashed_at_ns))
        return FileState(path, status.st_size, sha256)

    def _remembered(self, path: str, status: os.stat_result) -> str | None:
        memory = self._memory.get(path)
        if memory is None or memory.facts != _facts(status):
            return None
        settled = memory.hashed_at_ns - max(status.st_mtime_ns, status.st_ctime_ns) > _SETTLED_NS
        return memory.sha256 if settled else None

    def _remember(self, path: str, memory: _Memory) -> None:
        self._memory[path] = memory
        self._memory.move_to_end(path)
        while len(self._memory) > _REMEMBERED:
            self._memory.popitem(last=False)


@contextlib.contextmanager
def _opened(path: str, allowed: Sequence[str] | None) -> Iterator[int | None]:
    """Open a regular file whose path is real: no part of it is a link, and it lies where files may be read."""
    with contextlib.ExitStack() as stack:
        handle = None
        with contextlib.suppress(OSError, ValueError):
            handle = stack.enter_context(opened_file(path, allowed)).handle
        yield handle if handle is not None and os.fstat(handle).st_size <= MAX_BYTES else None


class LargeFile:
    """An open file that is sent in chunks."""

    def __init__(self, handle: int, status: os.stat_result) -> None:
        self._handle = handle
        self._facts = _facts(status)
        self._size_bytes = status.st_size

    async def chunks(self) -> AsyncIterator[bytes]:
        """Read the file from its beginning, off the event loop.

        Raises:
            ProjectionIo: it was changed meanwhile, so that what was sent has not the digest that was told.
        """
        offset = 0
        while offset < self._size_bytes:
            chunk = await asyncio.to_thread(os.pread, self._handle, min(CHUNK_BYTES, self._size_bytes - offset), offset)
            if not chunk or not self._is_unchanged(os.fstat(self._handle)):
                raise ProjectionIo("the file was changed while it was sent")
            offset += len(chunk)
            yield chunk

    def _is_unchanged(self, status: os.stat_result) -> bool:
        # A file that another one has replaced has lost its name, which moves its ctime; its bytes are what they were.
        known = len(self._facts) - (status.st_nlink == 0)
        return _facts(status)[:known] == self._facts[:known]

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def _chunks(handle: int, max_bytes: int = MAX_BYTES) -> Iterator[bytes]:
    """Read a file from its beginning, up to a bound even if it grows meanwhile."""
    offset = 0
    while chunk := os.pread(handle, min(CHUNK_BYTES, max_bytes - offset), offset):
        offset += len(chunk)
        yield chunk


def _facts(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def read_inside(path: str, directory: str, allowed_roots: Sequence[Path] | None, max_bytes: int) -> bytes | None:
    """Read a regular file that lies below a directory after every link is resolved.

    It must be the server's own: of its user, and under one name alone, since a second name can stand for any file.

    Returns:
        At most ``max_bytes`` + 1 bytes of it, so that the caller sees when it is too large; None where it may not
        be read or is none.
    """
    try:
        with (
            opened_directory(directory) as base,
            opened_file(path, [base.path], through_links=True) as file,
        ):
            status = os.fstat(file.handle)
            is_ours = status.st_nlink == 1 and status.st_uid == os.geteuid()
            if not is_ours or not lies_in(file.path, real_paths(allowed_roots)):
                return None
            return b"".join(_chunks(file.handle, max_bytes + 1))
    except (OSError, ValueError):  # ValueError: a NUL in it
        return None
