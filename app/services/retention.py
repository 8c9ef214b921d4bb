"""Retention: removes what is old, a run at a time.

The invariant: a run that has not ended is never touched; it is judged again in the transaction that hides it.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog

from app.domain.errors import RunNotFound, RunStillRunning
from app.domain.records import wire_time
from app.services.removals import Removals
from app.storage.database import Database
from app.storage.runs import RunState

log = structlog.get_logger(__name__)

_PAGE = 200


class Pruned(NamedTuple):
    """What was removed, or would be."""

    runs: int
    size_bytes: int


class Retention:
    """Removes runs that ended long ago.

    Args:
        database: what is pruned.
        clock: tells the time, with its zone.
    """

    def __init__(self, database: Database, *, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._removals = Removals(database)
        self._clock = clock

    async def prune(self, older_than: timedelta, *, keep_last: int = 0, dry_run: bool = False) -> Pruned:
        """Remove the runs that ended, and that nothing changed since; their files stay where they are.

        Args:
            older_than: how long ago a run must have changed last.
            keep_last: how many of the newest runs of each task stay, whatever their age.
            dry_run: only tell what would be removed.
        """
        pruned, after = Pruned(0, 0), 0
        if not dry_run:
            await self._removals.resume()
        try:
            moment = wire_time(self._clock() - older_than)
        except OverflowError:  # longer ago than there are dates: nothing is that old
            return pruned
        while True:
            async with self._database.point() as stores:
                page = await stores.runs.list_ended_before(moment, keep_last, after, _PAGE)
            for seq, run_id in page:
                removed = await (self._measure(run_id) if dry_run else self._remove(run_id))
                pruned = Pruned(pruned.runs + (removed is not None), pruned.size_bytes + (removed or 0))
                after = seq
            if pruned.runs and not dry_run:
                await self._database.shrink()
            if len(page) < _PAGE:
                return pruned

    async def _measure(self, run_id: str) -> int:
        async with self._database.point() as stores:
            return await stores.runs.measure(run_id)

    async def _remove(self, run_id: str) -> int | None:
        """Remove one run and return the bytes of its bodies; None where it is gone already or not ended."""
        try:
            return await self._removals.remove(run_id, _require_ended)
        except (RunNotFound, RunStillRunning):
            return None

    async def resume(self) -> None:
        """Go on with removals that were cut off; a failure is logged, and the next start or prune tries again."""
        try:
            await self._removals.resume()
        except Exception:
            log.exception("removal_failed")

    async def keep_pruning(self, older_than: timedelta, *, keep_last: int, every: timedelta) -> None:
        """Prune again and again until cancelled; a failure is logged, and tried again next time."""
        while True:
            try:
                pruned = await self.prune(older_than, keep_last=keep_last)
                if pruned.runs:
                    log.info("pruned", runs=pruned.runs, size_bytes=pruned.size_bytes)
            except Exception:
                log.exception("prune_failed")
            await asyncio.sleep(every.total_seconds())


def _require_ended(run: RunState) -> None:
    if not run.status.is_terminal:
        raise RunStillRunning(run.id)
