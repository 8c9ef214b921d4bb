"""Turns: what all reads of one turn of the event loop share, on SQLite.

The invariant: whoever reads in a turn sees every commit that it could know of. A request is answered in a later turn
than the one in which its last byte came in, and a write returns in a later turn than its commit; what a turn shares is
read when its first reader asks, and let go before anything runs that was queued after that.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select

from app.storage.reader import Row
from app.storage.sqlite.reader import SLICE_ROWS, CommitWatch, SqliteReader, SqliteReaders, fetch_rest
from app.storage.stores import ReadStores


class Turns:
    """The version and the snapshot of the turn that runs now.

    A read of one's own costs three system calls more than the look-up itself, which under load is a third of an answer.
    """

    def __init__(self, readers: SqliteReaders, watch: CommitWatch) -> None:
        self._readers = readers
        self._watch = watch
        self._is_on = False
        self._version: int | None = None
        self._reader: SqliteReader | None = None

    def version(self) -> int | None:
        """Return the version of the database; see :class:`CommitWatch`."""
        self._enter()
        return self._version

    def reader(self) -> SqliteReader:
        """Return the reader that holds the turn's snapshot; no statement of it may be left half-way."""
        self._enter()
        if self._reader is None:
            reader = self._readers.borrow()
            reader.begin()
            self._reader = reader
        return self._reader

    def detach(self, reader: SqliteReader) -> None:
        """Leave the turn's reader, with its snapshot, to whoever has a long list to read; then :meth:`give_back`."""
        if self._reader is reader:
            self._reader = None

    def give_back(self, reader: SqliteReader) -> None:
        """End a snapshot, and let others have its reader."""
        reader.end()
        self._readers.give_back(reader)

    def _enter(self) -> None:
        if not self._is_on:
            asyncio.get_running_loop().call_soon(self._leave)
            self._is_on = True
            # Before any snapshot: what is read under a version must be at least as new as that.
            self._version = self._watch.version()

    def _leave(self) -> None:
        self._is_on = False
        if self._reader is not None:
            reader, self._reader = self._reader, None
            self.give_back(reader)


class TurnReader:
    """Reads from the snapshot of whatever turn it is; see :class:`app.storage.reader.Reader`."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    async def all(self, statement: Select[Any], /, **parameters: Any) -> Sequence[Row]:
        """Run a statement and return its rows, in its order. A long list lets the short reads through."""
        reader = self._turns.reader()
        cursor = reader.run(statement, parameters)
        rows: list[Row] = cursor.fetchmany(SLICE_ROWS)
        if len(rows) < SLICE_ROWS:
            return rows
        self._turns.detach(reader)
        try:
            return rows + await fetch_rest(cursor)
        finally:
            cursor.close()
            self._turns.give_back(reader)

    async def first(self, statement: Select[Any], /, **parameters: Any) -> Row | None:
        """Run a statement and return its first row, if it has one."""
        return self._turns.reader().run_first(statement, parameters)


class TurnStores:
    """Stores whose reads see the turn's snapshot, as a context that has nothing to do."""

    def __init__(self, turns: Turns) -> None:
        self._stores = ReadStores(TurnReader(turns))

    async def __aenter__(self) -> ReadStores:
        """Hand out the stores."""
        return self._stores

    async def __aexit__(self, *_: object) -> None:
        """The turn itself ends the snapshot."""
