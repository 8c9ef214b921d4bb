"""SQLite: inline reads on held connections, and one writer thread with group commit.

The invariant: a write is answered after the commit that holds it, with ``synchronous=FULL``; one that fails takes
none of its neighbours with it.
"""

import asyncio
import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import structlog
from sqlalchemy import Connection, Select, create_engine, event
from sqlalchemy.dialects import sqlite as sqlite_dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from app.domain.errors import ProjectionIo, StepplaneError, Unavailable
from app.observability import DATABASE_SECONDS
from app.storage.reader import Row
from app.storage.stores import ReadStores, WriteStores
from app.storage.urls import DatabaseUrl

T = TypeVar("T")
log = structlog.get_logger(__name__)

BUSY_TIMEOUT_MS = 30_000
"""How long a write waits for another process's lock before it is refused."""

MAX_WAITING = 5_000
"""How many writes may wait. A bound, so that an overload is told at once and not as ever longer answers."""

_MAX_BATCH = 128
_SLICE_ROWS = 200
_PIECE_BYTES = 256 * 1024
_STREAMED_BYTES = 512 * 1024


class SqliteDatabase:
    """A SQLite file; see :class:`app.storage.database.Database`."""

    kind = "sqlite"

    def __init__(self, url: DatabaseUrl) -> None:
        self._readers = _Readers(url.path)
        self._writer = _Writer(url.path)

    def snapshot(self) -> "_Borrowed":
        """Open stores whose reads all see one state."""
        return _Borrowed(self._readers, in_transaction=True)

    def point(self) -> "_Borrowed":
        """Open stores each of whose reads sees the newest state."""
        return _Borrowed(self._readers, in_transaction=False)

    def stream(self, body_id: int, size_bytes: int) -> "_StoredBody | None":
        """Read a large body in pieces: fresh memory for all of it costs more than the reading, and may be much."""
        return _StoredBody(self._readers, body_id, size_bytes) if size_bytes > _STREAMED_BYTES else None

    async def write(self, work: Callable[[WriteStores], T]) -> T:
        """Run ``work`` on the writer thread, in a transaction that it may share."""
        return await self._writer.run(work)

    async def close(self) -> None:
        """Finish what waits, and close every connection."""
        await asyncio.to_thread(self._writer.close)
        self._readers.close()


# --- reading -------------------------------------------------------------------------------------


class _Compiled(NamedTuple):
    sql: str
    defaults: dict[str, Any]


class SqliteReader:
    """Runs Core statements on a raw cursor: half the time of SQLAlchemy's own row machinery."""

    def __init__(self, path: Path) -> None:
        uri = f"{path.as_uri()}?mode=rw"  # read-write: a reader of a WAL file must be able to make its shared memory
        try:
            self._connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        except sqlite3.OperationalError as error:  # no file handle is left, or the file is not there just now
            raise Unavailable from error
        self._connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        self._connection.execute("PRAGMA query_only=ON")
        self.stores = ReadStores(self)

    async def all(self, statement: Select[Any], /, **parameters: Any) -> Sequence[Row]:
        """Run a statement and return its rows, in its order."""
        cursor = self._run(statement, parameters)
        rows: list[Row] = cursor.fetchmany(_SLICE_ROWS)
        while len(rows) % _SLICE_ROWS == 0 and (more := cursor.fetchmany(_SLICE_ROWS)):
            rows += more
            await asyncio.sleep(0)  # a long list lets the short reads through
        return rows

    async def first(self, statement: Select[Any], /, **parameters: Any) -> Row | None:
        """Run a statement and return its first row, if it has one."""
        cursor = self._run(statement, parameters)
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
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _run(self, statement: Select[Any], parameters: dict[str, Any]) -> sqlite3.Cursor:
        compiled = _compiled.get(statement)
        if compiled is None:
            compiled = _compiled[statement] = _compile(statement)
        began = time.perf_counter()
        try:
            return self._connection.execute(compiled.sql, {**compiled.defaults, **parameters})
        except sqlite3.OperationalError as error:
            if _comes_and_goes(error):
                raise Unavailable from error
            raise
        finally:
            _READ_SECONDS.inc(time.perf_counter() - began)


_READ_SECONDS = DATABASE_SECONDS.labels("read")
_compiled: WeakKeyDictionary[Select[Any], _Compiled] = WeakKeyDictionary()
_dialect = sqlite_dialect.dialect(paramstyle="named")


def _compile(statement: Select[Any]) -> _Compiled:
    compiled = statement.compile(dialect=_dialect)
    return _Compiled(str(compiled), dict(compiled.params))


_PASSING = frozenset(
    {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN}
)


def _comes_and_goes(error: BaseException | None) -> bool:
    """Tell a database that cannot answer just now (locked, a full disk) from a fault of ours."""
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _PASSING  # the low byte is the primary code


class _Readers:
    """Reading connections, lent one at a time so that an interleaved task never shares a snapshot."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[SqliteReader] = []
        self._closed = False

    def borrow(self) -> SqliteReader:
        return self._idle.pop() if self._idle else SqliteReader(self._path)

    def give_back(self, reader: SqliteReader) -> None:
        if self._closed:
            reader.close()
        else:
            self._idle.append(reader)

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()


class _StoredBody:
    """A stored body, read piece by piece; no piece holds the database while it is sent."""

    def __init__(self, readers: _Readers, body_id: int, size_bytes: int) -> None:
        self._readers = readers
        self._body_id = body_id
        self._size_bytes = size_bytes

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body, and give the event loop back after each piece."""
        for offset in range(0, self._size_bytes, _PIECE_BYTES):
            reader = self._readers.borrow()
            try:
                piece = reader.piece(self._body_id, offset, _PIECE_BYTES)
            finally:
                self._readers.give_back(reader)
            yield piece
            await asyncio.sleep(0)

    def close(self) -> None:
        """There is nothing to let go of between two pieces."""


class _Borrowed:
    """A reader for the length of a block. A class, since a generator would cost as much as the read."""

    __slots__ = ("_in_transaction", "_reader", "_readers")

    def __init__(self, readers: _Readers, *, in_transaction: bool) -> None:
        self._readers = readers
        self._in_transaction = in_transaction

    async def __aenter__(self) -> ReadStores:
        self._reader = self._readers.borrow()
        if self._in_transaction:
            self._reader.begin()
        return self._reader.stores

    async def __aexit__(self, *_: object) -> None:
        if self._in_transaction:
            self._reader.end()
        self._readers.give_back(self._reader)


# --- writing -------------------------------------------------------------------------------------


class _Job:
    """One write that waits, and where its result goes."""

    __slots__ = ("error", "future", "result", "work")

    def __init__(self, work: Callable[[WriteStores], Any], future: "asyncio.Future[Any]") -> None:
        self.work = work
        self.future = future
        self.result: Any = None
        self.error: BaseException | None = None

    def deliver(self) -> None:
        if self.future.cancelled():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class _Writer:
    """One thread that takes whatever waits and commits it in one transaction.

    There is no timer: who comes while a commit runs is in the next one. Under load the cost of a durable commit
    is shared by all that waited for it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._waiting = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    async def run(self, work: Callable[[WriteStores], T]) -> T:
        """Queue a write and wait for its commit."""
        if self._closed or self._waiting >= MAX_WAITING:
            raise Unavailable("the server is closing" if self._closed else "too many writes wait already: try again")
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="sqlite-writer", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._waiting += 1
        try:
            self._jobs.put(_Job(work, future))
            return await future
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Commit what waits, then end the thread."""
        self._closed = True
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()

    def _serve(self) -> None:
        engine = create_engine(
            f"sqlite:///{self._path}",
            poolclass=StaticPool,
            isolation_level="AUTOCOMMIT",  # the transactions are ours: BEGIN IMMEDIATE, which never fails half-way
            connect_args={"check_same_thread": False},
        )
        event.listen(engine, "connect", _prepare)
        connection: Connection | None = None
        closing = False
        while not closing:
            batch = [self._jobs.get()]
            while len(batch) < _MAX_BATCH:
                try:
                    batch.append(self._jobs.get_nowait())
                except queue.Empty:
                    break
            closing = None in batch
            jobs = [job for job in batch if job is not None]
            if jobs:
                with _timed_writes():
                    try:
                        connection = connection or engine.connect()
                    except DBAPIError:  # no file handle is left, or the file is not there just now
                        _refuse(jobs)
                    else:
                        _commit_together(connection, jobs)
                _deliver(jobs)
        if connection is not None:
            connection.close()
        engine.dispose()


@contextlib.contextmanager
def _timed_writes() -> Iterator[None]:
    began = time.perf_counter()
    try:
        yield
    finally:
        DATABASE_SECONDS.labels("write").inc(time.perf_counter() - began)


def _prepare(raw: Any, _record: Any) -> None:
    raw.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    raw.execute("PRAGMA journal_mode=WAL")
    raw.execute("PRAGMA synchronous=FULL")
    raw.execute("PRAGMA foreign_keys=ON")


def _commit_together(connection: Connection, jobs: Sequence[_Job]) -> None:
    """Run all jobs in one transaction; when that fails, each in one of its own."""
    try:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    except DBAPIError:  # the lock did not come free: each job alone would only wait as long again
        _refuse(jobs)
        return
    try:
        for job in jobs:
            _attempt(connection, job)
        connection.exec_driver_sql("COMMIT")
    except Exception as error:  # noqa: BLE001 - whatever it was, it must reach whoever waits
        _roll_back(connection)
        if len(jobs) > 1:
            for job in jobs:
                _commit_together(connection, [job])
        else:
            orig = error.orig if isinstance(error, DBAPIError) else None
            jobs[0].error = Unavailable() if _comes_and_goes(orig) else error


def _refuse(jobs: Sequence[_Job]) -> None:
    for job in jobs:
        job.error = Unavailable()


def _attempt(connection: Connection, job: _Job) -> None:
    """Run one job of a batch; a refusal that changed nothing is its own affair, all else fails the batch."""
    raw = connection.connection.dbapi_connection
    before = raw.total_changes if raw else 0
    job.result = job.error = None
    try:
        job.result = job.work(WriteStores(connection))
    except StepplaneError as refusal:
        if raw is None or raw.total_changes != before:
            raise
        job.error = refusal


def _roll_back(connection: Connection) -> None:
    with contextlib.suppress(
        DBAPIError
    ):  # when BEGIN itself failed, or SQLite rolled back by itself, there is nothing to undo
        connection.exec_driver_sql("ROLLBACK")


def _deliver(jobs: Sequence[_Job]) -> None:
    """Wake every waiter: one call into each event loop, not one a job."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.future.get_loop(), []).append(job)
    for loop, theirs in by_loop.items():
        with contextlib.suppress(RuntimeError):  # that loop was closed: nobody waits any more
            loop.call_soon_threadsafe(_deliver_all, theirs)


def _deliver_all(jobs: Sequence[_Job]) -> None:
    for job in jobs:
        job.deliver()
