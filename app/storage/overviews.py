"""Overviews: runs as a person looks for them, with their task's goal and what their steps have done so far.

The invariant: a page takes the same few statements whatever it shows, and a search looks at a bounded number of runs.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import BindParameter, Select, and_, bindparam, case, func, literal, or_, select

from app.domain.limits import LISTED_CHARS
from app.domain.records import Kind, RunStatus, StepStatus
from app.storage.reader import Reader, Row
from app.storage.tables import LISTED, REMOVING, beginning, dispatches, projections, runs, shown, stored, tasks

PAGE_RUNS = 25
"""Runs a page; a constant, since the statements that count for them bind each run's id."""

SEARCHED_RUNS = 5_000
"""Runs that one search looks at, before it says how far it came."""


class FoundRun(NamedTuple):
    """A run in the order of creation, with the goal of its task."""

    seq: int
    id: str
    task_id: str
    status: RunStatus
    error: str | None
    created_at: str
    updated_at: str
    goal: str | None


class StepCounts(NamedTuple):
    """How many steps of a run were dispatched, and how their newest attempts stand."""

    dispatched: int = 0
    done: int = 0
    blocked: int = 0


class OutputCounts(NamedTuple):
    """How many names of a run have an output, and how large those are together."""

    outputs: int = 0
    size_bytes: int = 0


class OverviewReads:
    """Reads overviews."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def list_newest(self, before_seq: int, status: str | None) -> list[FoundRun]:
        """List runs newest first: a page, and one more that tells whether another follows."""
        given = _given(before_seq, status, PAGE_RUNS + 1)
        return list(map(_found, await self._reader.all(_PAGE[status is not None], **given)))

    async def search(self, before_seq: int, status: str | None, needle: str) -> list[FoundRun]:
        """List as :meth:`list_newest` the runs whose goal or id holds a text.

        The case of letters does not count; on SQLite that of letters beyond ASCII does. Of the runs before that
        place the newest :data:`SEARCHED_RUNS` are looked at.
        """
        escaped = stored(needle).replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        given = _given(before_seq, status, SEARCHED_RUNS) | {"needle": f"%{escaped}%", "rows": PAGE_RUNS + 1}
        return list(map(_found, await self._reader.all(_SEARCH[status is not None], **given)))

    async def find_search_end(self, before_seq: int, status: str | None) -> int | None:
        """Return the place of the last run that such a search looks at; None where it looks at all that are left."""
        row = await self._reader.first(_SEARCH_END[status is not None], **_given(before_seq, status, SEARCHED_RUNS))
        return None if row is None or row[1] < SEARCHED_RUNS else row[0]

    async def count_steps(self, run_ids: Sequence[str]) -> dict[str, StepCounts]:
        """Count the steps of a page's runs."""
        rows = await self._reader.all(_STEP_COUNTS, **_page_ids(run_ids))
        return {row[0]: StepCounts(row[1], row[2], row[3]) for row in rows}

    async def count_outputs(self, run_ids: Sequence[str]) -> dict[str, OutputCounts]:
        """Count what answers for the names of a page's runs."""
        rows = await self._reader.all(_OUTPUT_COUNTS, **_page_ids(run_ids))
        return {row[0]: OutputCounts(row[1], int(row[2] or 0)) for row in rows}

    async def list_texts(self, run_id: str) -> frozenset[str]:
        """List the steps of a run whose value is a text: only a text has another form than its JSON."""
        return frozenset(shown(row[0]) for row in await self._reader.all(_TEXTS, run_id=run_id))

    async def find_goal(self, task_id: str) -> str | None:
        """Return the goal of a task, if it has one."""
        row = await self._reader.first(_GOAL, task_id=task_id)
        return None if row is None or row[0] is None else shown(row[0])


def _given(before_seq: int, status: str | None, most: int) -> dict[str, Any]:
    given: dict[str, Any] = {"before": before_seq, "most": most}
    return given if status is None else given | {"status": status}


def _page_ids(run_ids: Sequence[str]) -> dict[str, str]:
    padded = [*run_ids, *("" for _ in range(PAGE_RUNS - len(run_ids)))]
    return {f"run_{number}": run_id for number, run_id in enumerate(padded)}


def _found(row: Row) -> FoundRun:
    seq, run_id, task_id, status, error, created_at, updated_at, goal = row
    shown_error = None if error is None else shown(error)
    return FoundRun(
        seq,
        run_id,
        task_id,
        RunStatus(status),
        shown_error,
        created_at,
        updated_at,
        None if goal is None else shown(goal),
    )


_r = runs.c
_error = beginning(_r.error, LISTED_CHARS.value).label("error")
_goal = beginning(tasks.c.goal, LISTED_CHARS.value)
_columns = (_r.seq, _r.id, _r.task_id, _r.status, _error, _r.created_at, _r.updated_at)
_newest = (
    select(*_columns)
    .where(_r.seq < bindparam("before"), _r.status != REMOVING)
    .order_by(_r.seq.desc())
    .limit(bindparam("most"))
)
_of_status = _newest.where(_r.status == bindparam("status"))


def _with_goals(window: Select[Any]) -> Select[Any]:
    w = window.subquery()
    return select(*w.c, _goal).select_from(w.join(tasks, tasks.c.id == w.c.task_id)).order_by(w.c.seq.desc())


def _searched(window: Select[Any]) -> Select[Any]:
    w = window.subquery()
    needle = func.lower(bindparam("needle"))  # by the database, which lowers the texts too: both know the same letters
    texts = (func.lower(tasks.c.goal), func.lower(w.c.id), func.lower(w.c.task_id))
    return (
        select(*w.c, _goal)
        .select_from(w.join(tasks, tasks.c.id == w.c.task_id))
        .where(or_(*(text.like(needle, escape="\\") for text in texts)))
        .order_by(w.c.seq.desc())
        .limit(bindparam("rows"))
    )


def _end(window: Select[Any]) -> Select[Any]:
    w = window.subquery()
    return select(func.min(w.c.seq), func.count()).select_from(w)  # type: ignore[return-value]  # two known columns


_PAGE = {False: _with_goals(_newest), True: _with_goals(_of_status)}
_SEARCH = {False: _searched(_newest), True: _searched(_of_status)}
_SEARCH_END = {False: _end(_newest), True: _end(_of_status)}
_GOAL = select(tasks.c.goal).where(tasks.c.id == bindparam("task_id"))

_ids: list[BindParameter[str]] = [bindparam(f"run_{number}") for number in range(PAGE_RUNS)]
_d, _later = dispatches.c, dispatches.alias("later")
_is_retried = (
    select(literal(1))
    .where(and_(_later.c.step_id == _d.step_id, _later.c.attempt == _d.attempt + 1))
    .correlate(dispatches)
    .exists()
)
_STEP_COUNTS = (
    select(
        _d.run_id,
        func.count(),
        func.sum(case((_d.status != StepStatus.DISPATCHED, 1), else_=0)),
        func.sum(case((_d.status == StepStatus.BLOCKED, 1), else_=0)),
    )
    .where(_d.run_id.in_(_ids), ~_is_retried)
    .group_by(_d.run_id)
)
_p = projections.c
_size = case((_p.kind == Kind.ARTIFACT, _p.raw_size), else_=_p.json_size)
_OUTPUT_COUNTS = (
    select(_p.run_id, func.count(), func.sum(_size))
    .where(_p.run_id.in_(_ids), _p.visibility == LISTED)
    .group_by(_p.run_id)
)
_TEXTS = select(_p.name).where(
    _p.run_id == bindparam("run_id"),
    _p.visibility == LISTED,
    _p.kind != Kind.ARTIFACT,
    _p.raw_sha256 != _p.json_sha256,
)
