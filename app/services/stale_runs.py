"""Stale runs: what nobody has written to for long ends as interrupted, since its orchestrator is gone.

The invariant: a run is judged again in the transaction that ends it, so that any write before it keeps it alive.
"""

import asyncio
import functools
from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from app.domain.errors import RunNotFound
from app.domain.records import RunOutcome, wire_time
from app.services.results import outcome_digest
from app.storage.database import Database
from app.storage.stores import WriteStores

log = structlog.get_logger(__name__)

_PAGE = 200
_LOOKS = 4
"""How often it is looked for stale runs in the time that makes one; at least once an hour."""


class StaleRuns:
    """Ends runs that nothing was written to for long.

    Args:
        database: where they are.
        clock: tells the time, with its zone.
    """

    def __init__(self, database: Database, *, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    async def end(self, after: timedelta, *, dry_run: bool = False) -> int:
        """End the runs that nothing was written to for this long, and count them.

        Args:
            after: how long; a time that reaches back before all dates ends nothing.
            dry_run: only count.
        """
        ended, after_seq = 0, 0
        try:
            moment = wire_time(self._clock() - after)
        except OverflowError:
            return 0
        while True:
            async with self._database.point() as stores:
                page = await stores.runs.list_unended_before(moment, after_seq, _PAGE)
            for seq, run_id in page:
                work = functools.partial(self._end, run_id=run_id, moment=moment, after=after)
                ended += True if dry_run else await self._database.write(work)
                after_seq = seq
            if len(page) < _PAGE:
                return ended

    async def keep_ending(self, after: timedelta) -> None:
        """End them again and again until cancelled; a failure is logged, and tried again next time."""
        every = min(after / _LOOKS, timedelta(hours=1))
        while True:
            try:
                ended = await self.end(after)
                if ended:
                    log.info("stale_runs_ended", runs=ended)
            except Exception:
                log.exception("stale_runs_failed")
            await asyncio.sleep(every.total_seconds())

    def _end(self, stores: WriteStores, run_id: str, moment: str, after: timedelta) -> bool:
        """End one run; False where it has ended, was written to, or is gone."""
        try:
            run = stores.runs.lock(run_id)
        except RunNotFound:
            return False
        if run.status.is_terminal or run.updated_at >= moment:
            return False
        outcome = RunOutcome(
            status="interrupted",
            error=f"nothing was written to this run since {run.updated_at}, for over {after.total_seconds():.0f} s "
            "(STEPPLANE_STALE_RUN_AFTER_SECONDS): its orchestrator is taken to be gone",
        )
        digest = outcome_digest(outcome)
        at = wire_time(self._clock())
        stores.runs.finish(run, outcome.status, outcome.error, result_body_id=None, outcome_sha256=digest, at=at)
        return True
