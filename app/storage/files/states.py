"""What is on disk now: the size, digest and bytes of materialized files.

The invariant: the digest told for a body is that of the bytes sent for it.
"""

import asyncio
import contextlib
import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import structlog

from app.domain.errors import ProjectionIo
from app.observability import FILE_READ_FAILURES
from app.storage.files.opening import lies_in, opened_directory, opened_file, real_paths

CHUNK_BYTES = 256 * 1024
LARGE_BYTES = 4 * 1024 * 1024
"""From this size on a file is sent in chunks and never held whole."""

MAX_BYTES = 256 * 1024 * 1024
"""A file over this size is no output of ours any more; what is in the store is served in its place."""

_SETTLED_NS = 2_000_000_000  # the coarsest time stamps in use (FAT) move every two seconds
_REMEMBERED = 50_000
_FAILING = 1_000

Pread = Callable[[int, int, int], bytes]
"""Reads so many bytes of a descriptor from an offset on."""

log = structlog.get_logger(__name__)


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

    A disk that fails while a file is read has no file: that is counted, and logged once until a read succeeds again.

    Args:
        allowed_roots: the directories under which files may be read; None allows any.
        pread: reads a piece of an open file, as ``os.pread`` does.
    """

    def __init__(self, allowed_roots: Sequence[Path] | None = None, pread: Pread = os.pread) -> None:
        self._allowed = real_paths(allowed_roots)
        self._pread = pread
        self._lock = threading.Lock()  # for what changes the two below: files are read by several threads
        self._memory: OrderedDict[str, _Memory] = OrderedDict()
        self._failing: OrderedDict[str, None] = OrderedDict()

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
            if handle is None:
                return None
            try:
                return self._hashed(path, handle, os.fstat(handle))
            except OSError as error:
                self._report(path, error)
                return None

    def load(self, path: str) -> LoadedFile | None:
        """Return a file's bytes and their digest; None as in :meth:`find`. A large one must be closed."""
        with _opened(path, self._allowed) as handle:
            if handle is None:
                return None
            try:
                return self._loaded(path, handle)
            except OSError as error:
                self._report(path, error)
                return None

    def head(self, path: str, size_bytes: int) -> bytes:
        """Read the beginning of a file, for its preview; empty where it cannot be read."""
        with _opened(path, self._allowed) as handle:
            if handle is None:
                return b""
            try:
                return self._pread(handle, size_bytes, 0)
            except OSError as error:
                self._report(path, error)
                return b""

    def _loaded(self, path: str, handle: int) -> LoadedFile:
        status, hashed_at_ns = os.fstat(handle), time.time_ns()
        if status.st_size < LARGE_BYTES:
            body = b"".join(read_chunks(handle, LARGE_BYTES, self._pread))
            if len(body) < LARGE_BYTES:
                sha256 = self._remembered(path, status)
                if sha256 is None or _facts(os.fstat(handle)) != _facts(status):
                    sha256 = hashlib.sha256(body).hexdigest()
                    self._remember(path, _Memory(_facts(status), sha256, hashed_at_ns))
                return LoadedFile(FileState(path, len(body), sha256), body)
            status = os.fstat(handle)  # it has grown meanwhile
        state = self._hashed(path, handle, status)
        return LoadedFile(state, LargeFile(os.dup(handle), status))

    def _hashed(self, path: str, handle: int, status: os.stat_result) -> FileState:
        sha256 = self._remembered(path, status)
        if sha256 is None:
            hashed_at_ns = time.time_ns()
            digest = hashlib.sha256()
            for chunk in read_chunks(handle, status.st_size, self._pread):
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
        with self._lock:
            self._memory[path] = memory
            self._memory.move_to_end(path)
            while len(self._memory) > _REMEMBERED:
                self._memory.popitem(last=False)
            self._failing.pop(path, None)

    def _report(self, path: str, error: OSError) -> None:
        FILE_READ_FAILURES.inc()
        with self._lock:
            is_known = path in self._failing
            self._failing[path] = None
            while len(self._failing) > _FAILING:
                self._failing.popitem(last=False)
        if not is_known:
            log.warning("file_unreadable", path=path, error=error.strerror or str(error))


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


def read_chunks(handle: int, max_bytes: int, pread: Pread = os.pread) -> Iterator[bytes]:
    """Read an open file from its beginning, up to a bound even if it grows meanwhile."""
    offset = 0
    while offset < max_bytes and (chunk := pread(handle, min(CHUNK_BYTES, max_bytes - offset), offset)):
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
            return b"".join(read_chunks(file.handle, max_bytes + 1))
    except (OSError, ValueError):  # ValueError: a NUL in it
        return None
