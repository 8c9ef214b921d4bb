"""Batches: what waited together, committed in one transaction.

The invariant: a job that fails takes none of its neighbours with it, and one that did not fail is durable.
"""

import contextlib
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from app.domain.errors import StepplaneError, Unavailable
from app.storage.sqlite.identity import FileIdentity
from app.storage.sqlite.reader import BUSY_TIMEOUT_MS, comes_and_goes
from app.storage.sqlite.room import Room, is_about_room
from app.storage.sqlite.statements import SqliteStatements
from app.storage.stores import WriteStores

SHRUNK_PAGES = 256
"""How many pages go back to the file system in one transaction: a few milliseconds, in which others wait."""


class Waiting(Protocol):
    """Somebody who waits, and what it came to."""

    result: Any
    error: BaseException | None


class Job(Waiting, Protocol):
    """A write that waits.

    Attributes:
        makes_room: whether it may use what is held back on a full disk.
    """

    makes_room: bool

    def work(self, stores: WriteStores, /) -> Any:
        """Read and write; may be called again when a transaction that it shared has failed."""
        ...


class Batches:
    """The writing connection of a file.

    Raises:
        sqlite3.Error: no file handle is left, the file is not there, or it is no database.
    """

    def __init__(self, path: Path, identity: FileIdentity, room: Room) -> None:
        self._identity = identity
        self._room = room
        self._connection = _connect(path)
        self._page_bytes: int = self._ask("PRAGMA page_size")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def commit(self, jobs: Sequence[Job]) -> None:
        """Run all jobs in one transaction; when that fails, each in one of its own."""
        try:
            self._identity.require()
            self._begin()
        except (sqlite3.Error, Unavailable) as error:  # the lock did not come free: each alone would wait as long again
            tell(jobs, error, self._room)
            return
        try:
            stores = WriteStores(SqliteStatements(self._connection))
            for job in jobs:
                self._attempt(stores, job)
            self._require_room(jobs)
            self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - whatever it was, it must reach whoever waits
            self._roll_back()
            self._commit_again(jobs, error)
        else:
            self._note(jobs)

    def shrink(self) -> bool:
        """Give some of what was removed back to the file system; return whether there is more.

        A file that was made without ``auto_vacuum`` keeps its size: ``stepplane vacuum`` rewrites such a one.
        """
        if self._ask("PRAGMA auto_vacuum") != _INCREMENTAL or not self._ask("PRAGMA freelist_count"):
            return False
        try:
            self._begin()
            pages = _SHRUNK_PAGES_IN_LOW_ROOM if self._room.is_low else SHRUNK_PAGES
            self._connection.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            self._roll_back()
            raise
        if self._room.is_low:
            self.carry_over()
        return True

    def carry_over(self) -> bool:
        """Carry the WAL into the file and empty it; return whether nobody stood in the way."""
        is_busy: int = self._ask("PRAGMA wal_checkpoint(TRUNCATE)")
        self._room.keep()
        return not is_busy

    def _attempt(self, stores: WriteStores, job: Job) -> None:
        """Run one job of a batch; a refusal that changed nothing is its own affair, all else fails the batch."""
        before = self._connection.total_changes
        job.result = job.error = None
        try:
            job.result = job.work(stores)
        except StepplaneError as refusal:
            if self._connection.total_changes != before:
                raise
            job.error = refusal

    def _commit_again(self, jobs: Sequence[Job], error: Exception) -> None:
        if is_about_room(error):
            with contextlib.suppress(sqlite3.Error):
                self.carry_over()  # what the failed transaction had taken of the WAL is room again
        if len(jobs) > 1:
            for job in jobs:
                self.commit([job])
        elif is_about_room(error) and jobs[0].makes_room and self._room.give_up():
            self.commit(jobs)
        else:
            tell(jobs, error, self._room)

    def _require_room(self, jobs: Sequence[Job]) -> None:
        if self._room.is_low and not any(job.makes_room for job in jobs):
            self._room.require(self._ask("PRAGMA page_count") * self._page_bytes - self._identity.require())

    def _note(self, jobs: Sequence[Job]) -> None:
        if self._room.is_low:
            with contextlib.suppress(sqlite3.Error):  # what is committed is durable, wherever it lies
                self.carry_over()
        if not any(job.makes_room or job.error for job in jobs):
            self._room.note_write()

    def _begin(self) -> None:
        """Begin a transaction, and wait for another process's as long as ``BUSY_TIMEOUT_MS``.

        SQLite's own waiting looks ever less often, ten times a second in the end, and a process that writes all the
        time lets go of the lock for less than a millisecond: the other one would find it taken for seconds.
        """
        until = time.monotonic() + BUSY_TIMEOUT_MS / 1000
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                    raise
                time.sleep(_LOOKS_EVERY_SECONDS)
            else:
                return

    def _roll_back(self) -> None:
        # When SQLite rolled back by itself (a full disk) there is nothing to undo.
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("ROLLBACK")

    def _ask(self, pragma: str) -> int:
        # All rows are fetched: a statement left half-way would hold a snapshot.
        answer: int = self._connection.execute(pragma).fetchall()[0][0]
        return answer


def tell(jobs: Sequence[Waiting], error: Exception, room: Room) -> None:
    """Tell all who wait what happened; the thread itself goes on, or the next write would wait for ever."""
    if is_about_room(error):
        error = room.refusal()
    elif comes_and_goes(error):
        error = Unavailable()
    for job in jobs:
        job.error = error


_LOOKS_EVERY_SECONDS = 0.0003
_INCREMENTAL = 2
_SHRUNK_PAGES_IN_LOW_ROOM = 64  # each page that moves goes through the WAL: no more than a part of the reserve


def _connect(path: Path) -> sqlite3.Connection:
    # The transactions are ours: BEGIN IMMEDIATE, which never fails half-way.
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    # Debian's SQLite overwrites what is deleted with zeros, through the WAL: a removal would take as much room as it
    # gives. FAST does so where it costs nothing; freed pages go back to the file system all the same.
    connection.execute("PRAGMA secure_delete=FAST")
    connection.execute("PRAGMA busy_timeout=0")  # the lock is waited for in Batches._begin; what follows it needs none
    return connection
