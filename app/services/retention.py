"""Retention: removes what is old, a run at a time.

The invariant: a run that has not ended is never touched; it is judged again in the transaction that deletes it.
"""

import asyncio
import functools
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog

from app.domain.errors import RunNotFound
from app.domain.records import wire_time
from app.storage.database import Database
from app.storage.stores import WriteStores

log = structlog.get_logger(__name__)

_PAGE = 200
_PAUSE_SECONDS = 0.02
"""Between two removals, so that submits never wait behind more than one."""


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
        self._clock = clock

    async def prune(self, older_than: timedelta, *, keep_last: int = 0, dry_run: bool = False) -> Pruned:
        """Remove the runs that ended, and that nothing changed since; their files stay where they are.

        Args:
            older_than: how long ago a run must have changed last.
            keep_last: how many of the newest runs of each task stay, whatever their age.
            dry_run: only tell what would be removed.
        """
        pruned, after = Pruned(0, 0), 0
        try:
            moment = wire_time(self._clock() - older_than)
        except OverflowError:  # longer ago than there are dates: nothing is that old
            return pruned
        while True:
            async with self._database.point() as stores:
                page = await stores.runs.list_ended_before(moment, keep_last, after, _PAGE)
            for seq, run_id in page:
                removed = await self._database.write(functools.partial(_remove, run_id=run_id, dry_run=dry_run))
                pruned = Pruned(pruned.runs + (removed is not None), pruned.size_bytes + (removed or 0))
                after = seq
                await asyncio.sleep(_PAUSE_SECONDS)
            if len(page) < _PAGE:
                return pruned

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


def _remove(stores: WriteStores, run_id: str, *, dry_run: bool) -> int | None:
    """Remove one run and return the bytes of its bodies; None where it is gone already or not ended."""
    try:
        run = stores.runs.lock(run_id)
    except RunNotFound:
        return None
    if not run.status.is_terminal:
        return None
    size_bytes = stores.runs.measure(run_id)
    if not dry_run:
        stores.runs.delete(run_id)
    return size_bytes
