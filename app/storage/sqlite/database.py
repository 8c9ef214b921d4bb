"""SQLite: inline reads on held connections, and one writer thread with group commit.

The invariant: that of :mod:`app.storage.database`; the two sides of it stand in modules of their own.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from app.storage.sqlite.reader import CommitWatch, RecentPieces, Snapshot, SqliteReaders, StoredBody
from app.storage.sqlite.turns import Turns, TurnStores
from app.storage.sqlite.writer import SqliteWriter
from app.storage.stores import WriteStores
from app.storage.urls import DatabaseUrl

T = TypeVar("T")

_STREAMED_BYTES = 512 * 1024


class SqliteDatabase:
    """A SQLite file; see :class:`app.storage.database.Database`."""

    kind = "sqlite"
    is_pooled = False

    def __init__(self, url: DatabaseUrl) -> None:
        self._readers = SqliteReaders(url.path)
        self._writer = SqliteWriter(url.path)
        self._watch = CommitWatch(url.path)
        self._pieces = RecentPieces()
        self._turns = Turns(self._readers, self._watch)
        self._point = TurnStores(self._turns)

    def snapshot(self) -> Snapshot:
        """Open stores whose reads all see one state."""
        return Snapshot(self._readers)

    def point(self) -> TurnStores:
        """Open stores each of whose reads sees the newest state."""
        return self._point

    def stream(self, body_id: int, size_bytes: int) -> StoredBody | None:
        """Read a large body in pieces: fresh memory for all of it costs more than the reading, and may be much."""
        if size_bytes <= _STREAMED_BYTES:
            return None
        return StoredBody(self._readers, self._pieces, body_id, size_bytes)

    def version(self) -> int | None:
        """Return SQLite's own count of the commits that another connection made; see :class:`CommitWatch`."""
        return self._turns.version()

    async def write(self, work: Callable[[WriteStores], T]) -> T:
        """Run ``work`` on the writer thread, in a transaction that it may share."""
        return await self._writer.run(work)

    async def close(self) -> None:
        """Finish what waits, and close every connection."""
        await asyncio.to_thread(self._writer.close)
        self._readers.close()
        self._watch.close()
