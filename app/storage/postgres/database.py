"""PostgreSQL over asyncpg: a transaction a write; reads have connections of their own.

The invariant: a connection that broke becomes :class:`Unavailable`, and the next request gets a new one.
"""

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import asyncpg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.domain.errors import ProjectionIo, Unavailable
from app.observability import HOT_METRICS
from app.storage.postgres.connecting import Connector
from app.storage.postgres.reader import POOL_SIZE, POOL_TIMEOUT_SECONDS, PostgresReaders
from app.storage.stores import ReadStores, WriteStores
from app.storage.urls import DatabaseUrl

T = TypeVar("T")

_STREAMED_BYTES = 512 * 1024
_PIECE_BYTES = 512 * 1024


class PostgresDatabase:
    """A PostgreSQL database; see :class:`app.storage.database.Database`."""

    kind = "postgresql"

    def __init__(self, url: DatabaseUrl) -> None:
        self._connector = Connector(url)
        self._engine = self._connector.engine(pool_size=POOL_SIZE, max_overflow=0, pool_timeout=POOL_TIMEOUT_SECONDS)
        self._readers = PostgresReaders(self._connector)

    @property
    def is_pooled(self) -> bool:
        """Tell whether a pooler stands in between, as the newest connection found."""
        return self._connector.is_pooled

    def snapshot(self) -> AbstractAsyncContextManager[ReadStores]:
        """Open stores whose reads all see one state."""
        return self._readers.lent(in_snapshot=True)

    def point(self) -> AbstractAsyncContextManager[ReadStores]:
        """Open stores each of whose reads sees the newest state."""
        return self._readers.lent(in_snapshot=False)

    def stream(self, body_id: int, size_bytes: int) -> "StoredBody | None":
        """Read a large body in pieces: many readers of whole ones would take all memory."""
        return StoredBody(self, body_id, size_bytes) if size_bytes > _STREAMED_BYTES else None

    def version(self) -> None:
        """Tell nothing: it would take a round trip, which is most of what a read costs."""
        return

    async def write(self, work: Callable[[WriteStores], T], *, makes_room: bool = False) -> T:  # noqa: ARG002 - the disk is the server's
        """Run ``work`` in a transaction of its own."""
        with _reachable():
            async with self._engine.begin() as connection:
                return await connection.run_sync(lambda inner: work(WriteStores(inner)))

    async def shrink(self) -> None:
        """Do nothing: PostgreSQL uses the room again by itself."""

    def is_full(self) -> bool:
        """Tell nothing: the disk is another machine's."""
        return False

    def require_there(self) -> None:
        """Do nothing: a server that is not there is told at each request."""

    async def close(self) -> None:
        """Close every connection."""
        self._readers.close()
        await self._engine.dispose()


class StoredBody:
    """A stored body, read piece by piece; no connection is held while a piece is sent.

    The column is stored as it is and not compressed (``migrations/``): PostgreSQL reads a piece without the rest.
    """

    def __init__(self, database: PostgresDatabase, body_id: int, size_bytes: int) -> None:
        self._database = database
        self._body_id = body_id
        self._size_bytes = size_bytes

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body.

        Raises:
            ProjectionIo: its run was deleted meanwhile.
        """
        for offset in range(0, self._size_bytes, _PIECE_BYTES):
            async with self._database.point() as stores:
                piece = await stores.outputs.piece(self._body_id, offset, _PIECE_BYTES)
            if piece is None:
                raise ProjectionIo("the run was deleted while its output was sent")
            yield piece

    def close(self) -> None:
        """There is nothing to let go of between two pieces."""


@contextlib.contextmanager
def _reachable() -> Iterator[None]:
    """Time an operation, and turn a lost or refused connection into the fact that it is."""
    began = time.perf_counter()
    try:
        yield
    except DBAPIError as error:
        if error.connection_invalidated or not _is_about_a_statement(error):
            raise Unavailable from error
        raise
    except (OSError, PoolTimeout, asyncpg.InternalClientError) as error:  # the last as in reader.py
        raise Unavailable from error
    finally:
        HOT_METRICS.count_database("write", time.perf_counter() - began)


def _is_about_a_statement(error: DBAPIError) -> bool:
    # SQLSTATE classes 08 (connection), 53 (resources), 57 (operator intervention) come and go; the rest is our fault.
    state = str(getattr(error.orig, "sqlstate", None) or "")
    # An error without a statement is one of connecting, for whatever reason.
    return bool(state) and error.statement is not None and state[:2] not in {"08", "53", "57"}
