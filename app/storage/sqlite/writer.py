"""Writing SQLite: one thread that commits whatever waits together.

The invariant: a write is answered after the commit that holds it, with ``synchronous=FULL``.
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

from app.domain.errors import Unavailable
from app.observability import HOT_METRICS
from app.storage.sqlite.batches import Batches, tell
from app.storage.sqlite.identity import FileIdentity
from app.storage.sqlite.room import Room, is_about_room
from app.storage.stores import WriteStores

T = TypeVar("T")

MAX_WAITING = 5_000
"""How many writes may wait. A bound, so that an overload is told at once and not as ever longer answers."""

_MAX_BATCH = 128


class _Waiting:
    """Somebody who waits, and what he waits for."""

    __slots__ = ("error", "future", "result")

    def __init__(self, future: "asyncio.Future[Any]") -> None:
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


class _Job(_Waiting):
    """One write; see :class:`app.storage.sqlite.batches.Job`."""

    __slots__ = ("makes_room", "work")

    def __init__(self, future: "asyncio.Future[Any]", work: Callable[[WriteStores], Any], *, makes_room: bool) -> None:
        super().__init__(future)
        self.work = work
        self.makes_room = makes_room


class _Chore(_Waiting):
    """Something to be done between two batches."""

    __slots__ = ("do",)

    def __init__(self, future: "asyncio.Future[Any]", do: Callable[[Batches], Any]) -> None:
        super().__init__(future)
        self.do = do


class SqliteWriter:
    """One thread that takes whatever waits and commits it in one transaction.

    There is no timer: who comes while a commit runs is in the next one. Under load the cost of a durable commit
    is shared by all that waited for it.
    """

    def __init__(self, path: Path, identity: FileIdentity, room: Room) -> None:
        self._path = path
        self._identity = identity
        self._room = room
        self._jobs: queue.SimpleQueue[_Job | _Chore | None] = queue.SimpleQueue()
        self._waiting = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    async def run(self, work: Callable[[WriteStores], T], *, makes_room: bool) -> T:
        """Queue a write and wait for its commit; ``makes_room`` allows it what is held back on a full disk."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        return await self._queued(_Job(future, work, makes_room=makes_room), future)

    async def run_between(self, do: Callable[[Batches], T]) -> T:
        """Do something between two batches."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        return await self._queued(_Chore(future, do), future)

    def close(self) -> None:
        """Commit what waits, then end the thread."""
        self._closed = True
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()

    async def _queued(self, waiting: _Job | _Chore, future: "asyncio.Future[T]") -> T:
        if self._closed or self._waiting >= MAX_WAITING:
            raise Unavailable("the server is closing" if self._closed else "too many writes wait already: try again")
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="sqlite-writer", daemon=True)
            self._thread.start()
        self._waiting += 1
        try:
            self._jobs.put(waiting)
            return await future
        finally:
            self._waiting -= 1

    def _serve(self) -> None:
        batches: Batches | None = None
        closing = False
        while not closing:
            taken = self._take()
            closing = None in taken
            jobs = [each for each in taken if isinstance(each, _Job)]
            chores = [each for each in taken if isinstance(each, _Chore)]
            if not jobs and not chores:
                continue
            with _timed_writes():
                try:
                    batches = batches or self._open()
                except sqlite3.Error as error:  # no file handle is left, the file is not there, or is no database
                    tell([*jobs, *chores], error, self._room)
                else:
                    if jobs:
                        batches.commit(jobs)
                    for chore in chores:
                        self._do(chore, batches)
            _deliver([*jobs, *chores])
        if batches is not None:
            batches.close()
            if not self._identity.is_lost:
                self._room.keep()  # the WAL, which went with the last connection, may have made room for it

    def _take(self) -> list[_Job | _Chore | None]:
        taken = [self._jobs.get()]
        while len(taken) < _MAX_BATCH:
            try:
                taken.append(self._jobs.get_nowait())
            except queue.Empty:
                break
        return taken

    def _open(self) -> Batches:
        try:
            return Batches(self._path, self._identity, self._room)
        except sqlite3.Error as error:
            if not is_about_room(error) or not self._room.give_up_for_start():
                raise
        return Batches(self._path, self._identity, self._room)

    def _do(self, chore: _Chore, batches: Batches) -> None:
        try:
            chore.result = chore.do(batches)
        except (sqlite3.Error, Unavailable) as error:
            tell([chore], error, self._room)


@contextlib.contextmanager
def _timed_writes() -> Iterator[None]:
    began = time.perf_counter()
    try:
        yield
    finally:
        HOT_METRICS.count_database("write", time.perf_counter() - began)


def _deliver(jobs: Sequence[_Waiting]) -> None:
    """Wake every waiter: one call into each event loop, not one a job."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Waiting]] = {}
    for job in jobs:
        by_loop.setdefault(job.future.get_loop(), []).append(job)
    for loop, theirs in by_loop.items():
        with contextlib.suppress(RuntimeError):  # that loop was closed: nobody waits any more
            loop.call_soon_threadsafe(_deliver_all, theirs)


def _deliver_all(jobs: Sequence[_Waiting]) -> None:
    for job in jobs:
        job.deliver()
