"""The catalogue: tasks, runs and dispatches, listed and looked up.

The invariant: a list loads no output and takes a constant number of queries.
"""

from typing import NamedTuple

from app.domain.errors import RunNotFound, TaskNotFound
from app.domain.limits import PAGE_ROWS
from app.domain.records import RunRecord, RunSummary, StepEntry, TaskRecord, TaskSummary
from app.domain.values import parse_rendered
from app.services.cursors import NEWEST, next_cursor, position_of
from app.services.threads import run_beside
from app.storage.database import Database

DEFAULT_LIMIT = 50
MAX_LIMIT = PAGE_ROWS.value


class TaskPage(NamedTuple):
    """Tasks, newest first, and where the next page begins."""

    tasks: list[TaskSummary]
    next_cursor: str | None


class RunPage(NamedTuple):
    """Runs, newest first, and where the next page begins."""

    runs: list[RunSummary]
    next_cursor: str | None


class Catalog:
    """Lists and looks up what was created."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_tasks(self, limit: int = DEFAULT_LIMIT, cursor: str | None = None) -> TaskPage:
        """List tasks, newest first.

        Raises:
            InvalidParameter: the cursor is none that a page gave out.
        """
        before = position_of(cursor)
        async with self._database.point() as stores:
            found = await stores.tasks.list_newest(limit + 1, before)
        return TaskPage([task for _, task in found[:limit]], next_cursor([seq for seq, _ in found], limit))

    async def list_runs(
        self,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        *,
        task_id: str | None = None,
        status: str | None = None,
    ) -> RunPage:
        """List runs, newest first, of one task or status if one is given.

        Raises:
            TaskNotFound: no such task.
            InvalidParameter: the cursor is none that a page gave out.
        """
        before = position_of(cursor)
        async with self._database.point() as stores:
            if task_id is not None and not await stores.tasks.exists(task_id):
                raise TaskNotFound(task_id)
            found = await stores.runs.list_newest(limit + 1, before, task_id, status)
        return RunPage([run for _, run in found[:limit]], next_cursor([seq for seq, _ in found], limit))

    async def get_task(self, task_id: str) -> tuple[TaskRecord, list[RunSummary]]:
        """Return a task with its newest runs.

        Raises:
            TaskNotFound: no such task.
        """
        async with self._database.snapshot() as stores:
            task = await stores.tasks.find(task_id)
            found = await stores.runs.list_newest(MAX_LIMIT, NEWEST, task_id, None)
        if task is None:
            raise TaskNotFound(task_id)
        return task, [run for _, run in found]

    async def get_run(self, run_id: str) -> tuple[RunRecord, int]:
        """Return a run whole, and the size of its result.

        Raises:
            RunNotFound: no such run.
        """
        async with self._database.snapshot() as stores:
            found = await stores.runs.find(run_id)
            entries = await stores.dispatches.list_in_order(run_id)
            degradations = await stores.runs.list_degradations(run_id)
        if found is None:
            raise RunNotFound(run_id)
        run, result = found
        result_ref = await run_beside(len(result), parse_rendered, result)
        record = RunRecord.model_construct(
            **dict(run), step_entries=entries, degradations=degradations, result_ref=result_ref
        )
        return record, len(result)

    async def get_run_summary(self, run_id: str) -> RunSummary:
        """Return a run without its dispatches and its result.

        Raises:
            RunNotFound: no such run.
        """
        async with self._database.point() as stores:
            run = await stores.runs.find_summary(run_id)
        if run is None:
            raise RunNotFound(run_id)
        return run

    async def list_dispatches(self, run_id: str) -> list[StepEntry]:
        """List every dispatch of a run, in order.

        Raises:
            RunNotFound: no such run.
        """
        async with self._database.snapshot() as stores:
            run = await stores.runs.find_summary(run_id)
            entries = await stores.dispatches.list_in_order(run_id)
        if run is None:
            raise RunNotFound(run_id)
        return entries
