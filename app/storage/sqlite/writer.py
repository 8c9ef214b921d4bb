"""Writing SQLite: one thread that commits whatever waits together.

The invariant: a write is answered after the commit that holds it, with ``synchronous=FULL``; one that fails takes
none of its neighbours with it.
"""

import asyncio
import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from app.domain.errors import StepplaneError, Unavailable
from app.observability import HOT_METRICS
from app.storage.sqlite.reader import BUSY_TIMEOUT_MS, comes_and_goes
from app.storage.sqlite.statements import SqliteStatements
from app.storage.stores import WriteStores

T = TypeVar("T")

MAX_WAITING = 5_000
"""How many writes may wait. A bound, so that an overload is told at once and not as ever longer answers."""

_MAX_BATCH = 128


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


class SqliteWriter:
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
        connection: sqlite3.Connection | None = None
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
                        connection = connection or _connect(self._path)
                    except sqlite3.Error as error:  # no file handle is left, the file is not there, or is no database
                        _fail(jobs, error)
                    else:
                        _commit_together(connection, jobs)
                _deliver(jobs)
        if connection is not None:
            connection.close()


@contextlib.contextmanager
def _timed_writes() -> Iterator[None]:
    began = time.perf_counter()
    try:
        yield
    finally:
        HOT_METRICS.count_database("write", time.perf_counter() - began)


def _connect(path: Path) -> sqlite3.Connection:
    # The transactions are ours: BEGIN IMMEDIATE, which never fails half-way.
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA busy_timeout=0")  # the lock is waited for in _begin; what follows it needs none
    return connection


def _begin(connection: sqlite3.Connection) -> None:
    """Begin a transaction, and wait for another process's as long as :data:`BUSY_TIMEOUT_MS`.

    SQLite's own waiting looks ever less often, ten times a second in the end, and a process that writes all the time
    lets go of the lock for less than a millisecond: the other one would find it taken for seconds.
    """
    until = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            time.sleep(_LOOKS_EVERY_SECONDS)
        else:
            return


_LOOKS_EVERY_SECONDS = 0.0003


def _commit_together(connection: sqlite3.Connection, jobs: Sequence[_Job]) -> None:
    """Run all jobs in one transaction; when that fails, each in one of its own."""
    try:
        _begin(connection)
    except sqlite3.Error as error:  # the lock did not come free: each job alone would only wait as long again
        _fail(jobs, error)
        return
    try:
        stores = WriteStores(SqliteStatements(connection))
        for job in jobs:
            _attempt(connection, stores, job)
        connection.execute("COMMIT")
    except Exception as error:  # noqa: BLE001 - whatever it was, it must reach whoever waits
        _roll_back(connection)
        if len(jobs) > 1:
            for job in jobs:
                _commit_together(connection, [job])
        else:
            _fail(jobs, error)


def _fail(jobs: Sequence[_Job], error: Exception) -> None:
    """Tell all who wait what happened; the thread itself goes on, or the next write would wait for ever."""
    for job in jobs:
        job.error = Unavailable() if comes_and_goes(error) else error


def _attempt(connection: sqlite3.Connection, stores: WriteStores, job: _Job) -> None:
    """Run one job of a batch; a refusal that changed nothing is its own affair, all else fails the batch."""
    before = connection.total_changes
    job.result = job.error = None
    try:
        job.result = job.work(stores)
    except StepplaneError as refusal:
        if connection.total_changes != before:
            raise
        job.error = refusal


def _roll_back(connection: sqlite3.Connection) -> None:
    # When SQLite rolled back by itself (a full disk) there is nothing to undo.
    with contextlib.suppress(sqlite3.Error):
        connection.execute("ROLLBACK")


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
