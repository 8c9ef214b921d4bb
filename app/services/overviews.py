"""Overviews: runs as a person looks at them: a searched list of all, and one run with all that happened in it.

The invariant: what is shown together was read in one state of the store, with a constant number of queries.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from app.domain.errors import InvalidParameter, RunNotFound
from app.domain.records import RunStatus, RunSummary, StepEntry
from app.domain.rendering import sha256_hex
from app.domain.values import JsonValue
from app.services.cursors import cursor_at, next_cursor, position_of
from app.services.looks import require_run
from app.storage.database import Database
from app.storage.dispatches import entry_of
from app.storage.overviews import PAGE_RUNS, SEARCHED_RUNS, FoundRun, OutputCounts, StepCounts
from app.storage.reader import Row

MAX_SEARCH_CHARS = 200

_REMEMBERED = 1_000


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
    """A run with all that happened in it; of the outputs only how many there are, and which steps put out a text."""

    run: RunSummary
    goal: str | None
    dispatches: list[StepEntry]
    degradations: list[JsonValue]
    aliases: dict[str, str]
    outputs: OutputCounts
    texts: frozenset[str]


class RunReading(NamedTuple):
    """A run as the store holds it: enough to tell whether anything changed, before the story is made of it."""

    run: RunSummary
    goal: str | None
    rows: Sequence[Row]
    degradations: list[JsonValue]
    aliases: dict[str, str]
    outputs: OutputCounts
    texts: frozenset[str]

    @property
    def digest(self) -> str:
        """The same for the same story, and for no other."""
        rows = [tuple(row) for row in self.rows]
        told = (self.run, self.goal, rows, self.degradations, self.aliases, self.outputs, sorted(self.texts))
        return sha256_hex(repr(told).encode())

    def story(self) -> RunStory:
        """Tell what happened."""
        entries = list(map(entry_of, self.rows))
        return RunStory(self.run, self.goal, entries, self.degradations, self.aliases, self.outputs, self.texts)


class Overviews:
    """Lists runs and tells what happened in one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # A terminal run never changes again, so what was counted of it is never stale.
        self._ended: OrderedDict[str, tuple[StepCounts, OutputCounts]] = OrderedDict()

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
            counts = {run.id: self._ended[run.id] for run in page if run.id in self._ended}
            ids = [run.id for run in page if run.id not in counts]
            steps = await stores.overviews.count_steps(ids)
            outputs = await stores.overviews.count_outputs(ids)
        counts |= {each: (steps.get(each, StepCounts()), outputs.get(each, OutputCounts())) for each in ids}
        self._remember({run.id: counts[run.id] for run in page if run.status.is_terminal})
        following = next_cursor([run.seq for run in found], PAGE_RUNS)
        return OverviewPage(
            [RunOverview(run, *counts[run.id]) for run in page],
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

    async def find_task_id(self, run_id: str) -> str:
        """Return the id of the task that a run is of.

        Raises:
            RunNotFound: no run has this id.
        """
        async with self._database.point() as stores:
            run = await stores.runs.find_summary(run_id)
        if run is None:
            raise RunNotFound(run_id)
        return run.task_id

    async def read_run(self, task_id: str, run_id: str) -> RunReading:
        """Read what happened in a run.

        Raises:
            TaskNotFound, RunNotFound: no such task, or no such run of it.
        """
        async with self._database.snapshot() as stores:
            found = require_run(await stores.projections.find_run(task_id, run_id), task_id, run_id)
            run = await stores.runs.find_summary(found)
            goal = await stores.overviews.find_goal(task_id)
            rows = await stores.dispatches.list_rows(found)
            degradations = await stores.runs.list_degradations(found)
            aliases = await stores.projections.list_aliases(task_id)
            counted = await stores.overviews.count_outputs([found])
            texts = await stores.overviews.list_texts(found)
        assert run is not None  # noqa: S101 - found in this very snapshot
        outputs = counted.get(found, OutputCounts())
        return RunReading(run, goal, rows, degradations, aliases, outputs, texts)

    def _remember(self, ended: dict[str, tuple[StepCounts, OutputCounts]]) -> None:
        for run_id, counted in ended.items():
            self._ended[run_id] = counted
            self._ended.move_to_end(run_id)
        while len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)
