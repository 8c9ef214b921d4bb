"""Reading projections: what answers now for the names of a run.

The invariant: one statement resolves a name, and one lists a run, whatever the number of its steps.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, and_, bindparam, case, func, select

from app.domain.answers import Answer
from app.domain.records import Kind, Source
from app.storage.outputs import ANSWER_COLUMNS, answer_of
from app.storage.reader import Reader, Row
from app.storage.tables import (
    LISTED,
    REMOVING,
    SHADOWED,
    bodies,
    names,
    projections,
    runs,
    shown,
    stored,
    tasks,
)


class ListedRow(NamedTuple):
    """One line of a list: its finished summary in two pieces, and the file that may have changed since."""

    run_id: str
    summary_head: bytes
    summary_tail: bytes
    file_path: str | None
    file_sha256: str | None
    name: str
    step_name: str | None

    @property
    def owner(self) -> str | None:
        """The name of the step that put it out; None for a part of a run's result."""
        return None if self.step_name is None else shown(self.step_name)

    @property
    def names(self) -> tuple[str, ...]:
        """Its name, and that of the step that put it out: a policy may speak of either."""
        return (shown(self.name),) if self.owner is None else (shown(self.name), self.owner)

    def summary(self, base_url: bytes) -> bytes:
        """Join the pieces to the summary's JSON."""
        return self.summary_head + base_url + self.summary_tail


class RunAddress(NamedTuple):
    """A run that was found under a task, or what of the two was not."""

    task_exists: bool
    run_id: str | None


class FoundAnswer(NamedTuple):
    """A run, the canonical name that a name leads to in it, and what answers for that, maybe with its stored body."""

    address: RunAddress
    canonical: str
    answer: Answer | None
    body: bytes | None


class FoundSummary(NamedTuple):
    """As :class:`FoundAnswer`, with the line of a list in the answer's place."""

    address: RunAddress
    canonical: str
    listed: ListedRow | None


_NO_TASK = RunAddress(task_exists=False, run_id=None)


def _address(rows: Sequence[Row]) -> RunAddress:
    return RunAddress(task_exists=True, run_id=rows[0][0]) if rows else _NO_TASK


class ProjectionReads:
    """Reads what answers for the names of a run."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def find_run(self, task_id: str, run_id: str | None) -> RunAddress:
        """Find a run of a task by its id, or the one created last."""
        if run_id is None:
            row = await self._reader.first(_LATEST_RUN, task_id=task_id)
        else:
            row = await self._reader.first(_RUN, task_id=task_id, run_id=run_id)
        if row is None:
            return _NO_TASK
        return RunAddress(task_exists=True, run_id=row[0])

    async def list_summaries(
        self, task_id: str, run_id: str | None, base_url: bytes
    ) -> tuple[RunAddress, list[bytes] | None]:
        """Find a run as :meth:`find_run`, and list its summaries as JSON, ascending by name, bytewise.

        Returns:
            None for the summaries where a file stands for one of them: whether that is still as it was written, and so
            the summary true, only the file itself can tell. Then :meth:`list_by_name`.
        """
        rows = await self._list(_SUMMARIES, task_id, run_id)
        if not rows or rows[0][1] is None:
            return _address(rows), []
        summaries = [head + base_url + tail for _, head, tail, file_path in rows if file_path is None]
        return _address(rows), summaries if len(summaries) == len(rows) else None

    async def list_by_name(self, task_id: str, run_id: str | None) -> tuple[RunAddress, list[ListedRow]]:
        """Find a run as :meth:`find_run`, and list what its names answer with, ascending by name, bytewise."""
        rows = await self._list(_LIST, task_id, run_id)
        return _address(rows), [] if not rows or rows[0][1] is None else list(map(ListedRow._make, rows))

    async def find_summary(self, task_id: str, run_id: str | None, name: str) -> FoundSummary:
        """Find as :meth:`find` the line that a list has for what answers for a name."""
        given = {"task_id": task_id, "name": stored(name)}
        if run_id is not None:
            given["run_id"] = run_id
        row = await self._reader.first(_SUMMARY[run_id is None], **given)
        if row is None:
            return FoundSummary(_NO_TASK, name, None)
        canonical = name if row[1] is None else shown(row[1])
        listed = None if row[2] is None else ListedRow(row[0], *row[2:])
        return FoundSummary(RunAddress(task_exists=True, run_id=row[0]), canonical, listed)

    async def _list(self, statements: dict[bool, Select[Any]], task_id: str, run_id: str | None) -> Sequence[Row]:
        if run_id is None:
            return await self._reader.all(statements[True], task_id=task_id)
        return await self._reader.all(statements[False], task_id=task_id, run_id=run_id)

    async def list_answers_with_files(self, run_id: str) -> dict[str, Answer]:
        """Return the answers of a run that have a materialized file, by name."""
        rows = await self._reader.all(_WITH_FILES, run_id=run_id)
        return {answer.name: answer for answer in map(_answer, rows)}

    async def find(self, task_id: str, run_id: str | None, name: str, body_up_to_bytes: int = 0) -> FoundAnswer:
        """Find a run as :meth:`find_run`, the canonical name of a name in it, and what answers for that now.

        Args:
            task_id: the task.
            run_id: the run, or None for the one created last.
            name: a name, alias or reserved name.
            body_up_to_bytes: up to which size its stored body is wanted along with it.
        """
        given: dict[str, Any] = {"task_id": task_id, "name": stored(name)}
        if run_id is not None:
            given["run_id"] = run_id
        if body_up_to_bytes:
            given["body_up_to"] = body_up_to_bytes
        row = await self._reader.first(_RESOLVE[run_id is None, body_up_to_bytes > 0], **given)
        if row is None:
            return FoundAnswer(_NO_TASK, name, None, None)
        body = None if not body_up_to_bytes or row[-1] is None else bytes(row[-1])
        columns = row[2:-1] if body_up_to_bytes else row[2:]
        answer = None if columns[0] is None else _answer(columns)
        canonical = name if row[1] is None else shown(row[1])
        return FoundAnswer(RunAddress(task_exists=True, run_id=row[0]), canonical, answer, body)

    async def resolve_name(self, task_id: str, name: str) -> str:
        """Return the canonical name that a name of the task's Blueprint leads to, or the name itself."""
        row = await self._reader.first(_CANONICAL, task_id=task_id, name=stored(name))
        return name if row is None else shown(row[0])

    async def list_aliases(self, task_id: str, limit: int | None = None) -> dict[str, str]:
        """Return every name of the task's Blueprint and the canonical name it leads to."""
        if limit is None:
            rows = await self._reader.all(_ALIASES, task_id=task_id)
        else:
            rows = await self._reader.all(_SOME_ALIASES, task_id=task_id, most=limit)
        return {shown(row[0]): shown(row[1]) for row in rows}

    async def list_names(self, run_id: str, limit: int) -> list[tuple[str, str | None]]:
        """List names that a run answers for, each with the step that put it out; None where its result did."""
        rows = await self._reader.all(_SOME_NAMES, run_id=run_id, most=limit)
        return [(shown(name), None if owner is None else shown(owner)) for name, owner in rows]


def _answer(row: Row) -> Answer:
    kind = Kind.ARTIFACT if row[1] == Kind.ARTIFACT else Kind.STEP
    return answer_of(shown(row[0]), kind, Source(row[2]), row[3:])


_p = projections.c
_answer_columns = (
    _p.name,
    _p.kind,
    _p.source,
    _p.attempts,
    _p.occurrences,
    *(_p[column] for column in ANSWER_COLUMNS),
)
_WITH_FILES: Select[Any] = select(*_answer_columns).where(
    _p.run_id == bindparam("run_id"), _p.visibility == LISTED, _p.file_path.is_not(None)
)
_is_there = runs.c.status != REMOVING
_the_run = and_(runs.c.task_id == tasks.c.id, runs.c.id == bindparam("run_id"), _is_there)
_newest = select(func.max(runs.c.seq)).where(runs.c.task_id == tasks.c.id, _is_there).correlate(tasks).scalar_subquery()
_the_latest_run = runs.c.seq == _newest
_of_task = tasks.c.id == bindparam("task_id")
_RUN = select(runs.c.id).select_from(tasks.outerjoin(runs, _the_run)).where(_of_task)
_LATEST_RUN = select(runs.c.id).select_from(tasks.outerjoin(runs, _the_latest_run)).where(_of_task)


def _resolve(the_run: ColumnElement[bool], columns: Sequence[ColumnElement[Any]]) -> Select[Any]:
    the_name = and_(names.c.task_id == tasks.c.id, names.c.name == bindparam("name"))
    the_answer = and_(
        _p.run_id == runs.c.id,
        _p.name == func.coalesce(names.c.canonical, bindparam("name")),
        _p.visibility < SHADOWED,
    )
    return (
        select(runs.c.id, names.c.canonical, *columns)
        .select_from(tasks.outerjoin(runs, the_run).outerjoin(names, the_name).outerjoin(projections, the_answer))
        .where(_of_task)
        .order_by(_p.visibility)  # a step or artifact called _ctx comes before the reserved name
    )


def _list(the_run: ColumnElement[bool], columns: Sequence[ColumnElement[Any]]) -> Select[Any]:
    the_listed = and_(_p.run_id == runs.c.id, _p.visibility == LISTED)
    return (
        select(runs.c.id, *columns)
        .select_from(tasks.outerjoin(runs, the_run).outerjoin(projections, the_listed))
        .where(_of_task)
        .order_by(_p.name)
    )


# Each statement for a run that is named, and for the newest. A list of a thousand costs what its columns do: those
# that only policies and files need are left out where there are neither.
_RUNS = {False: _the_run, True: _the_latest_run}
_summary_columns = (_p.summary_head, _p.summary_tail, _p.file_path)
_listed_columns = (*_summary_columns, _p.file_sha256, _p.name, _p.step_name)
_SUMMARIES = {is_latest: _list(run, _summary_columns) for is_latest, run in _RUNS.items()}
_LIST = {is_latest: _list(run, _listed_columns) for is_latest, run in _RUNS.items()}
_SUMMARY = {is_latest: _resolve(run, _listed_columns) for is_latest, run in _RUNS.items()}
_stored_body = case(
    (
        and_(_p.json_size <= bindparam("body_up_to"), _p.file_path.is_(None)),
        select(bodies.c.data).where(bodies.c.id == _p.body_id).scalar_subquery(),
    )
)
_RESOLVE = {
    (is_latest, has_body): _resolve(run, (*_answer_columns, _stored_body) if has_body else _answer_columns)
    for is_latest, run in _RUNS.items()
    for has_body in (False, True)
}
_CANONICAL = select(names.c.canonical).where(names.c.task_id == bindparam("task_id"), names.c.name == bindparam("name"))
_ALIASES = select(names.c.name, names.c.canonical).where(names.c.task_id == bindparam("task_id"))
_SOME_ALIASES = _ALIASES.limit(bindparam("most"))
_SOME_NAMES = (
    select(_p.name, _p.step_name)
    .where(_p.run_id == bindparam("run_id"), _p.visibility == LISTED)
    .order_by(_p.name)
    .limit(bindparam("most"))
)
