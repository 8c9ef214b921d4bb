"""Removals: a run goes in slices, and others write between two of them.

The invariant: a run that is being removed is hidden by the first transaction, whole; what was not removed when the
process ended is removed by :meth:`Removals.resume`.
"""

import asyncio
from collections.abc import Callable

from app.storage.database import Database
from app.storage.runs import RemovedSlice, RunState
from app.storage.stores import WriteStores

_PAUSE_SECONDS = 0.002
"""Between two slices: on PostgreSQL and beside other processes, somebody else gets his turn."""


class Removals:
    """Removes runs, whatever their size.

    Args:
        database: what they are removed from.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def remove(self, run_id: str, judge: Callable[[RunState], None]) -> int:
        """Remove a run and its outputs, and return the bytes of its bodies; its files stay where they are.

        Args:
            run_id: the run.
            judge: raises where the run must stay; asked in the transaction that hides it.

        Raises:
            RunNotFound: no such run.
        """

        def work(stores: WriteStores) -> RemovedSlice:
            judge(stores.runs.lock(run_id))
            stores.runs.hide(run_id)
            return stores.runs.remove_some(run_id)

        return await self._remove_rest(run_id, await self._database.write(work, makes_room=True))

    async def resume(self) -> None:
        """Remove what is left of the runs whose removal was cut off."""
        async with self._database.point() as stores:
            hidden = await stores.runs.list_hidden()
        for run_id in hidden:
            await self._remove_rest(run_id, RemovedSlice(0, is_last=False))

    async def _remove_rest(self, run_id: str, removed: RemovedSlice) -> int:
        size_bytes = removed.size_bytes
        while not removed.is_last:
            await asyncio.sleep(_PAUSE_SECONDS)
            removed = await self._database.write(lambda stores: stores.runs.remove_some(run_id), makes_room=True)
            size_bytes += removed.size_bytes
        return size_bytes
