"""Overviews: runs as a person looks at them: a searched list of all, and one run with all that happened in it.

The invariant: what is shown together was read in one state of the store, with a constant number of queries.
"""

from typing import NamedTuple

from app.domain.errors import InvalidParameter
from app.domain.records import RunStatus, RunSummary, StepEntry
from app.domain.values import JsonValue
from app.services.cursors import cursor_at, next_cursor, position_of
from app.services.looks import require_run
from app.storage.database import Database
from app.storage.overviews import PAGE_RUNS, SEARCHED_RUNS, FoundRun, OutputCounts, StepCounts

MAX_SEARCH_CHARS = 200


class RunOverview(NamedTuple):
    """A run, its task's goal, and how far its steps are."""

    run: FoundRun
    steps: StepCounts
    outputs: OutputCounts


class OverviewPage(NamedTuple):
    """Runs newest first, and where the next page begins.

    Attributes:
        runs: the page.
        next_cursor: of the next page; None on the last one.
        cut_at: how many runs a search looked at, where it ended before all were; the next page goes on looking.
    """

    runs: list[RunOverview]
    next_cursor: str | None
    cut_at: int | None


class RunStory(NamedTuple):
    """A run with all that happened in it, but for the outputs."""

    run: RunSummary
    goal: str | None
    dispatches: list[StepEntry]
    degradations: list[JsonValue]
    aliases: dict[str, str]


class Overviews:
    """Lists runs and tells what happened in one."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_runs(
        self, cursor: str | None = None, *, status: RunStatus | None = None, search: str = ""
    ) -> OverviewPage:
        """List runs of all tasks, newest first.

        Args:
            cursor: where the page begins.
            status: only runs of this status.
            search: only runs whose goal, id or task id holds this text, whatever its case.

        Raises:
            InvalidParameter: the cursor is none that a page gave out, or the search is over its length.
        """
        if len(search) > MAX_SEARCH_CHARS:
            raise InvalidParameter(f"a search has {MAX_SEARCH_CHARS} characters at most, and this one {len(search)}")
        before = position_of(cursor)
        async with self._database.snapshot() as stores:
            end = None
            if search:
                found = await stores.overviews.search(before, status, search)
                if len(found) <= PAGE_RUNS:
                    end = await stores.overviews.find_search_end(before, status)
            else:
                found = await stores.overviews.list_newest(before, status)
            page = found[:PAGE_RUNS]
            ids = [run.id for run in page]
            steps = await stores.overviews.count_steps(ids)
            outputs = await stores.overviews.count_outputs(ids)
        following = next_cursor([run.seq for run in found], PAGE_RUNS)
        return OverviewPage(
            [RunOverview(run, steps.get(run.id, StepCounts()), outputs.get(run.id, OutputCounts())) for run in page],
            following if end is None else cursor_at(end),
            None if end is None else SEARCHED_RUNS,
        )

    async def find_run_id(self, task_id: str, run_id: str | None) -> str:
        """Return the id of a run of a task; None asks for the one created last.

        Raises:
            TaskNotFound, RunNotFound: no such task, or no such run of it.
        """
        async with self._database.point() as stores:
            return require_run(await stores.projections.find_run(task_id, run_id), task_id, run_id)

    async def get_run(self, task_id: str, run_id: str) -> RunStory:
        """Tell what happened in a run.

        Raises:
            TaskNotFound, RunNotFound: no such task, or no such run of it.
        """
        async with self._database.snapshot() as stores:
            found = require_run(await stores.projections.find_run(task_id, run_id), task_id, run_id)
            run = await stores.runs.find_summary(found)
            goal = await stores.overviews.find_goal(task_id)
            entries = await stores.dispatches.list_in_order(found)
            degradations = await stores.runs.list_degradations(found)
            aliases = await stores.projections.list_aliases(task_id)
        assert run is not None  # noqa: S101 - found in this very snapshot
        return RunStory(run, goal, entries, degradations, aliases)
