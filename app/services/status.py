"""Status: how much is kept, for a person who asks.

The invariant: what is told costs index scans alone, and no more than one every few seconds.
"""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from app.storage.database import Database

_FRESH_SECONDS = 5.0


class Counts(BaseModel):
    """How much is kept; a few seconds old at most."""

    model_config = ConfigDict(frozen=True)

    tasks: int = Field(description="Tasks.")
    runs: dict[str, int] = Field(description="Runs, by status.")
    outputs: int = Field(description="Outputs of every type.")


class ServerStatus(BaseModel):
    """How the server is."""

    model_config = ConfigDict(frozen=True)

    version: str = Field(description="The version of the server.")
    started_at: str = Field(description="When this process started.")
    uptime_seconds: int = Field(description="How long ago that is.")
    database: str = Field(description="`sqlite` or `postgresql`.")
    pooler: bool = Field(
        description="Whether a pooler (PgBouncer and its like) stands between the server and its database."
    )
    storage: Literal["ok", "full"] = Field(
        description="`full` where the disk of the database had no room for the last write. SQLite alone can tell."
    )
    counts: Counts = Field(description="How much is kept.")


class Status:
    """Tells how the server is.

    Args:
        database: what is counted.
        clock: tells the time, with its zone.
    """

    def __init__(self, database: Database, *, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock
        self.started_at = clock()
        self._counts: Counts | None = None
        self._counted_at = 0.0

    @property
    def database_kind(self) -> str:
        """The kind of the database."""
        return self._database.kind

    @property
    def has_pooler(self) -> bool:
        """Whether a pooler stands in between."""
        return self._database.is_pooled

    @property
    def storage(self) -> Literal["ok", "full"]:
        """Whether the disk of the database had room for the last write."""
        return "full" if self._database.is_full() else "ok"

    @property
    def uptime_seconds(self) -> int:
        """How long ago the process started."""
        return max(0, int((self._clock() - self.started_at).total_seconds()))

    async def count(self) -> Counts:
        """Count what is kept."""
        now = time.monotonic()
        if self._counts is None or now - self._counted_at > _FRESH_SECONDS:
            async with self._database.snapshot() as stores:
                runs = await stores.runs.count_by_status()
                self._counts = Counts(tasks=await stores.tasks.count(), runs=runs, outputs=await stores.outputs.count())
            self._counted_at = now
        return self._counts
