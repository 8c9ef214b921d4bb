"""Reading SQLite: held connections that run inline on the event loop.

The invariant: a reader is lent to one task at a time, so that no two share a snapshot.
"""

import asyncio
import sqlite3
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Select

from app.domain.errors import ProjectionIo, Unavailable
from app.observability import HOT_METRICS
from app.storage.reader import Row
from app.storage.sqlite.identity import FileIdentity
from app.storage.sqlite.statements import execute
from app.storage.stores import ReadStores

BUSY_TIMEOUT_MS = 30_000
"""How long a statement waits for another process's lock before it is refused."""

SLICE_ROWS = 200
"""How many rows of a list are fetched before others get their turn."""

_PIECE_BYTES = 256 * 1024


class SqliteReader:
    """Runs Core statements on a raw cursor: half the time of SQLAlchemy's own row machinery."""

    def __init__(self, path: Path) -> None:
        try:
            self._connection = _open(path)
        except sqlite3.OperationalError as error:  # no file handle is left, or the file is not there just now
            raise Unavailable from error
        self.stores = ReadStores(self)

    async def all(self, statement: Select[Any], /, **parameters: Any) -> Sequence[Row]:
        """Run a statement and return its rows, in its order."""
        cursor = self.run(statement, parameters)
        rows: list[Row] = cursor.fetchmany(SLICE_ROWS)
        return rows if len(rows) < SLICE_ROWS else rows + await fetch_rest(cursor)

    async def first(self, statement: Select[Any], /, **parameters: Any) -> Row | None:
        """Run a statement and return its first row, if it has one."""
        return self.run_first(statement, parameters)

    def run_first(self, statement: Select[Any], parameters: dict[str, Any]) -> Row | None:
        """Run a statement as :meth:`first`, at once."""
        cursor = self.run(statement, parameters)
        row: Row | None = cursor.fetchone()
        cursor.close()  # a statement left half-way would hold its snapshot, and keep the WAL from being checkpointed
        return row

    def piece(self, body_id: int, offset: int, size_bytes: int) -> bytes:
        """Read a piece of a stored body.

        Raises:
            ProjectionIo: its run was deleted meanwhile.
        """
        try:
            with self._connection.blobopen("bodies", "data", body_id, readonly=True) as blob:
                blob.seek(offset)
                return blob.read(size_bytes)
        except sqlite3.OperationalError as error:
            raise ProjectionIo("the run was deleted while its output was sent") from error

    def begin(self) -> None:
        """Hold one state for all statements until :meth:`end`."""
        self._connection.execute("BEGIN")

    def end(self) -> None:
        """Let go of the state."""
        if self._connection.in_transaction:  # some failures of a statement end it by themselves
            self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def run(self, statement: Select[Any], parameters: dict[str, Any]) -> sqlite3.Cursor:
        """Run a statement, and leave its rows to be fetched."""
        began = time.perf_counter()
        try:
            return execute(self._connection, statement, parameters)
        except sqlite3.OperationalError as error:
            if comes_and_goes(error):
                raise Unavailable from error
            raise
        finally:
            HOT_METRICS.count_database("read", time.perf_counter() - began)


async def fetch_rest(cursor: sqlite3.Cursor) -> list[Row]:
    """Fetch what is left of a long list, and let the short reads through after each slice."""
    rows: list[Row] = []
    while more := cursor.fetchmany(SLICE_ROWS):
        rows += more
        await asyncio.sleep(0)
    return rows


_PASSING = frozenset(
    {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN}
)


def comes_and_goes(error: BaseException | None) -> bool:
    """Tell a database that cannot answer just now (locked, a full disk) from a fault of ours."""
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _PASSING  # the low byte is the primary code


def _open(path: Path) -> sqlite3.Connection:
    uri = f"{path.as_uri()}?mode=rw"  # read-write: a reader of a WAL file must be able to make its shared memory
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA query_only=ON")
    return connection


class SqliteReaders:
    """Reading connections, lent one at a time so that an interleaved task never shares a snapshot."""

    def __init__(self, path: Path, identity: FileIdentity) -> None:
        self._path = path
        self._identity = identity
        self._idle: list[SqliteReader] = []
        self._closed = False

    def borrow(self) -> SqliteReader:
        """Lend a reader, a new one when all are out.

        Raises:
            StorageGone: the file was found gone or replaced; what the readers have open is what nobody else has.
            Unavailable: it cannot be opened just now.
        """
        self._identity.require_known()
        return self._idle.pop() if self._idle else SqliteReader(self._path)

    def give_back(self, reader: SqliteReader) -> None:
        """Take a reader back."""
        if self._closed:
            reader.close()
        else:
            self._idle.append(reader)

    def close(self) -> None:
        """Close every reader, those that are out when they come back."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()


class CommitWatch:
    """A connection that never writes and so sees each commit, of this process or another, as somebody else's."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def version(self) -> int | None:
        """Return a number that differs after any commit; None where the database cannot be asked just now.

        Source: SQLite, ``PRAGMA data_version``.
        """
        try:
            if self._connection is None:
                self._connection = _open(self._path)
            # All rows are fetched: a statement left half-way would go on to see the state that it began with.
            version: int = self._connection.execute("PRAGMA data_version").fetchall()[0][0]
        except sqlite3.OperationalError:
            return None
        return version

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


class RecentPieces:
    """The pieces of large bodies that were read last, 32 MiB at most.

    A body never changes and its number is never given away again, so that none of them can be stale. SQLite reads a
    large body page by page, a system call each: twice what sending it takes.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, int], bytes] = OrderedDict()

    def find(self, body_id: int, offset: int) -> bytes | None:
        """Return a piece that was read lately."""
        piece = self._kept.get((body_id, offset))
        if piece is not None:
            self._kept.move_to_end((body_id, offset))
        return piece

    def keep(self, body_id: int, offset: int, piece: bytes) -> None:
        """Remember a piece, and forget the one that was longest not asked for."""
        self._kept[body_id, offset] = piece
        if len(self._kept) > _KEPT_PIECES:
            self._kept.popitem(last=False)


_KEPT_PIECES = 32 * 1024 * 1024 // _PIECE_BYTES


class StoredBody:
    """A stored body, read piece by piece; no piece holds the database while it is sent."""

    def __init__(self, readers: SqliteReaders, recent: RecentPieces, body_id: int, size_bytes: int) -> None:
        self._readers = readers
        self._recent = recent
        self._body_id = body_id
        self._size_bytes = size_bytes

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body, and give the event loop back after each piece."""
        for offset in range(0, self._size_bytes, _PIECE_BYTES):
            yield self._recent.find(self._body_id, offset) or self._read(offset)
            await asyncio.sleep(0)

    def close(self) -> None:
        """There is nothing to let go of between two pieces."""

    def _read(self, offset: int) -> bytes:
        reader = self._readers.borrow()
        try:
            piece = reader.piece(self._body_id, offset, _PIECE_BYTES)
        finally:
            self._readers.give_back(reader)
        self._recent.keep(self._body_id, offset, piece)
        return piece


class Snapshot:
    """A reader of one's own for the length of a block, and one state of the database in it."""

    __slots__ = ("_reader", "_readers")

    def __init__(self, readers: SqliteReaders) -> None:
        self._readers = readers

    async def __aenter__(self) -> ReadStores:
        self._reader = self._readers.borrow()
        self._reader.begin()
        return self._reader.stores

    async def __aexit__(self, *_: object) -> None:
        self._reader.end()
        self._readers.give_back(self._reader)
