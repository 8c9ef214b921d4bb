"""SQLite: inline reads on held connections, and one writer thread with group commit.

The invariant: that of :mod:`app.storage.database`; the two sides of it stand in modules of their own.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import structlog

from app.domain.errors import Unavailable
from app.storage.sqlite.batches import Batches
from app.storage.sqlite.identity import FileIdentity
from app.storage.sqlite.reader import CommitWatch, RecentPieces, Snapshot, SqliteReaders, StoredBody
from app.storage.sqlite.room import Room
from app.storage.sqlite.turns import Turns, TurnStores
from app.storage.sqlite.writer import SqliteWriter
from app.storage.stores import WriteStores
from app.storage.urls import DatabaseUrl

T = TypeVar("T")

log = structlog.get_logger(__name__)

_CARRIES = 50
_CARRIES_EVERY_SECONDS = 0.02
"""A reader's snapshot is in the way of it for milliseconds."""

_STREAMED_BYTES = 512 * 1024


class SqliteDatabase:
    """A SQLite file; see :class:`app.storage.database.Database`."""

    kind = "sqlite"
    is_pooled = False

    def __init__(self, url: DatabaseUrl) -> None:
        self._identity = FileIdentity(url.path)
        self._room = Room(url.path)
        self._readers = SqliteReaders(url.path, self._identity)
        self._writer = SqliteWriter(url.path, self._identity, self._room)
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
        return None if self._identity.is_lost else self._turns.version()

    async def write(self, work: Callable[[WriteStores], T], *, makes_room: bool = False) -> T:
        """Run ``work`` on the writer thread, in a transaction that it may share."""
        return await self._writer.run(work, makes_room=makes_room)

    async def shrink(self) -> None:
        """Let the file become as small as what is in it, slice by slice, and empty the WAL."""
        try:
            has_more = True
            while has_more:
                has_more = await self._writer.run_between(Batches.shrink)
            for _ in range(_CARRIES):
                if await self._writer.run_between(Batches.carry_over):
                    return
                await asyncio.sleep(_CARRIES_EVERY_SECONDS)
        except Unavailable as error:  # nothing is lost by it, and the next removal tries again
            log.warning("shrink_failed", error=error.sentence)

    def is_full(self) -> bool:
        """Tell whether the disk had no room for the last write."""
        return self._room.is_full

    def require_there(self) -> None:
        """Look whether the file is still the one that is open."""
        self._identity.require()

    async def close(self) -> None:
        """Finish what waits, and close every connection."""
        await asyncio.to_thread(self._writer.close)
        self._readers.close()
        self._watch.close()
