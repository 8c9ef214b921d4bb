"""The database port: one way to read, one way to write, over SQLite and PostgreSQL.

The invariant: what :meth:`Database.write` returned is durable, and every read that begins after it sees it.

Two stacks stand behind it (why, with figures: ARCHITECTURE.md, "Reading and writing"). SQLite reads run inline
on the event loop, SQLite writes on one writer thread that commits whatever waits together. PostgreSQL goes
through asyncpg, a transaction a write.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from app.domain.answers import Chunks
from app.storage.stores import ReadStores, WriteStores

T = TypeVar("T")


class Database(Protocol):
    """What the services know of the database."""

    kind: str

    @property
    def is_pooled(self) -> bool:
        """Tell whether a pooler stands between the server and its database."""
        ...

    def snapshot(self) -> AbstractAsyncContextManager[ReadStores]:
        """Open stores whose reads all see one state. Await nothing else inside it."""
        ...

    def point(self) -> AbstractAsyncContextManager[ReadStores]:
        """Open stores each of whose reads sees the newest state: cheaper, and enough where one read decides."""
        ...

    def stream(self, body_id: int, size_bytes: int) -> Chunks | None:
        """Return a stored body to be read in pieces, where that beats reading it whole; None where it does not."""
        ...

    def version(self) -> int | None:
        """Return a number that differs after any commit, whoever made it; None where that cannot be told cheaply."""
        ...

    async def write(self, work: Callable[[WriteStores], T]) -> T:
        """Run ``work`` in one transaction and return its result once that is durable.

        ``work`` judges before it changes anything, touches nothing but its stores, and may run again
        when a transaction that it shared has failed.

        Raises:
            Unavailable: the database cannot be reached, or too many writes wait already.
        """
        ...

    async def close(self) -> None:
        """Finish what waits, and let go of the database."""
        ...
