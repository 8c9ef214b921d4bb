"""Reading PostgreSQL: Core's SQL on asyncpg's own connections, a few of them, held.

The invariant: a connection is lent to one task at a time, and one that failed in any way is not lent again.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
from sqlalchemy import Dialect, Select
from sqlalchemy.dialects.postgresql import asyncpg as asyncpg_dialect

from app.domain.errors import StepplaneError, Unavailable
from app.observability import HOT_METRICS
from app.storage.compiled import CompiledStatements
from app.storage.postgres.connecting import Connector, is_pooled
from app.storage.reader import Row
from app.storage.stores import ReadStores

POOL_SIZE = 10
"""Connections of a process for reading, and as many for writing."""

POOL_TIMEOUT_SECONDS = 10
"""How long a read waits for a connection before it is refused."""

_dialect: Dialect = asyncpg_dialect.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped
_statements = CompiledStatements(_dialect)


class PostgresReader:
    """Runs Core statements on a raw connection."""

    def __init__(self, connection: "asyncpg.Connection[Any]") -> None:
        self.connection = connection
        self.stores = ReadStores(self)

    def transaction(self, *, in_snapshot: bool) -> Any:
        """Begin what the reads of a block need: one state for all, or what a pooler keeps the connection for."""
        if in_snapshot:
            return self.connection.transaction(isolation="repeatable_read", readonly=True)
        if is_pooled(self.connection):
            return self.connection.transaction(isolation="read_committed", readonly=True)
        return contextlib.nullcontext()

    async def all(self, statement: Select[Any], /, **parameters: Any) -> Sequence[Row]:
        """Run a statement and return its rows, in its order."""
        sql = _statements.of(statement, parameters)
        rows: Sequence[Row] = await self.connection.fetch(sql.text, *sql.bind(parameters))
        return rows

    async def first(self, statement: Select[Any], /, **parameters: Any) -> Row | None:
        """Run a statement and return its first row, if it has one."""
        sql = _statements.of(statement, parameters)
        row: Row | None = await self.connection.fetchrow(sql.text, *sql.bind(parameters))
        return row


class PostgresReaders:
    """Reading connections, lent one at a time; the next is made when one is needed, up to a bound.

    Not asyncpg's pool: that resets a connection after each use, which is a round trip more than the read itself.
    Nothing is left to reset here, as a read changes nothing of its session.
    """

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._free = asyncio.Semaphore(POOL_SIZE)
        self._idle: list[PostgresReader] = []
        self._closed = False

    @contextlib.asynccontextmanager
    async def lent(self, *, in_snapshot: bool) -> AsyncIterator[ReadStores]:
        """Lend a reader for the length of a block.

        Raises:
            Unavailable: the database cannot be reached, or all readers are out for too long.
        """
        began = time.perf_counter()
        await self._acquire()
        reader: PostgresReader | None = None
        is_sound = False
        try:
            reader = await self._idle_or_new()
            async with reader.transaction(in_snapshot=in_snapshot):
                yield reader.stores
            is_sound = True
        except StepplaneError:
            is_sound = True  # what a block found out is no fault of its connection
            raise
        except _OF_THE_DATABASE as error:
            if reader is None or comes_and_goes(error):
                raise Unavailable from error
            raise
        finally:
            self._free.release()
            if reader is not None:
                self._give_back(reader, is_sound=is_sound)
            HOT_METRICS.count_database("read", time.perf_counter() - began)

    async def _acquire(self) -> None:
        try:
            async with asyncio.timeout(POOL_TIMEOUT_SECONDS):
                await self._free.acquire()
        except TimeoutError as error:
            raise Unavailable from error

    async def _idle_or_new(self) -> PostgresReader:
        while self._idle:
            reader = self._idle.pop()
            if not reader.connection.is_closed():
                return reader
        return PostgresReader(await self._connector.connect())

    def _give_back(self, reader: PostgresReader, *, is_sound: bool) -> None:
        if is_sound and not self._closed:
            self._idle.append(reader)
        else:
            reader.connection.terminate()

    def close(self) -> None:
        """Close every reader, those that are out when they come back."""
        self._closed = True
        while self._idle:
            self._idle.pop().connection.terminate()


# The last is what asyncpg says of a connection whose server ended it while it was idle.
_OF_THE_DATABASE = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


def comes_and_goes(error: Exception) -> bool:
    """Tell a database that cannot answer just now from a fault of ours."""
    if isinstance(error, asyncpg.PostgresError):
        # SQLSTATE classes 08 (connection), 53 (resources), 57 (operator intervention).
        return str(error.sqlstate)[:2] in {"08", "53", "57"}
    return not isinstance(error, ValueError)  # a value that a column cannot hold is refused by the driver itself
