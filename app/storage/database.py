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

    async def write(self, work: Callable[[WriteStores], T], *, makes_room: bool = False) -> T:
        """Run ``work`` in one transaction and return its result once that is durable.

        ``work`` judges before it changes anything, touches nothing but its stores, and may run again
        when a transaction that it shared has failed.

        Args:
            work: reads and writes.
            makes_room: whether it removes something; it may then use what is held back on a full disk.

        Raises:
            Unavailable: the database cannot be reached, or too many writes wait already.
            StorageFull: its disk has no room for it.
            StorageGone: its file is no longer the one that was opened.
        """
        ...

    async def shrink(self) -> None:
        """Give the room of what was removed back, where the database does not do so by itself; never fails."""
        ...

    def is_full(self) -> bool:
        """Tell whether the disk had no room for the last write, as far as that can be known."""
        ...

    def require_there(self) -> None:
        """Look whether what was opened is still there.

        Raises:
            StorageGone: it was deleted or replaced; nothing that is written from now on would be kept.
        """
        ...

    async def close(self) -> None:
        """Finish what waits, and let go of the database."""
        ...
