"""Runs: kicked, finished once, listed, deleted.

The invariant: a terminal run never changes again, and the order of runs is that of their creation, never of a clock.
A run that is being removed is found by nobody but :meth:`RunWrites.remove_some`.
"""

from typing import Any, NamedTuple

from sqlalchemy import Executable, Table, bindparam, delete, func, insert, or_, select, update

from app.domain.errors import RunNotFound
from app.domain.limits import DEGRADATIONS, LISTED_CHARS, SHOWN_DEGRADATIONS
from app.domain.records import RunStatus, RunSummary, excerpt
from app.domain.rendering import compact_json
from app.domain.values import JsonValue, parse_json
from app.storage.reader import Reader, Row
from app.storage.tables import (
    REMOVING,
    beginning,
    bodies,
    degradations,
    dispatches,
    outputs,
    projections,
    runs,
    shown,
    stored,
)
from app.storage.writer import Writer


class RunState(NamedTuple):
    """What a write needs to know of its run."""

    id: str
    task_id: str
    status: RunStatus
    outcome_sha256: str | None
    updated_at: str


class RemovedSlice(NamedTuple):
    """What one slice of a removal took away, and whether the run is gone with it."""

    size_bytes: int
    is_last: bool


SLICE_ROWS = 500
SLICE_BYTES = 4 * 1024 * 1024
"""How much of a run one transaction removes at most (one body at least): some 20 ms, in which other writes wait."""


class RunWrites:
    """Writes runs inside one transaction."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def add(self, run_id: str, task_id: str, at: str) -> None:
        """Kick a run."""
        self._writer.execute(
            _ADD,
            {"id": run_id, "task_id": task_id, "status": RunStatus.RUNNING, "created_at": at, "updated_at": at},
        )

    def lock(self, run_id: str) -> RunState:
        """Return the state of a run and keep every other writer from it until the transaction ends.

        Raises:
            RunNotFound: no such run.
        """
        row = self._writer.execute(_LOCK, {"run_id": run_id}).first()
        if row is None:
            raise RunNotFound(run_id)
        return RunState(row[0], row[1], RunStatus(row[2]), row[3], row[4])

    def finish(
        self, run: RunState, status: str, error: str | None, *, result_body_id: int | None, outcome_sha256: str, at: str
    ) -> None:
        """End a run, for good."""
        self._writer.execute(
            _FINISH,
            {
                "of_run": run.id,
                "status": status,
                "error": None if error is None else stored(error),
                "result_body_id": result_body_id,
                "outcome_sha256": outcome_sha256,
                "updated_at": at,
            },
        )

    def touch(self, run_id: str, at: str) -> None:
        """Note that something of the run changed."""
        self._writer.execute(_TOUCH, {"touched": run_id, "at": at})

    def add_degradation(self, run_id: str, record: JsonValue) -> None:
        """Keep what a worker reported as done in a lesser way, and count it.

        Of a run with more than are kept, one between the first and the last makes place for each new one.
        """
        self._writer.execute(_ADD_DEGRADATION, {"run_id": run_id, "record": compact_json(record).decode()})
        count = self._writer.execute(_COUNT_DEGRADATION, {"of_run": run_id}).scalar_one()
        if count > DEGRADATIONS.value:
            self._writer.execute(_DROP_DEGRADATION, {"of_run": run_id, "kept": DEGRADATIONS.value // 2})

    def hide(self, run_id: str) -> None:
        """Let nobody find a run any more; :meth:`remove_some` removes it."""
        self._writer.execute(_HIDE, {"hidden": run_id})

    def remove_some(self, run_id: str) -> RemovedSlice:
        """Remove a slice of a hidden run, and the run itself with its last one; its files stay where they are.

        What answers for a name goes before what it leads to, so that nothing is found that is half gone.
        """
        left = SLICE_ROWS
        for statement in _REMOVE_ANSWERS:
            left -= self._remove(statement, run_id, left)
            if not left:
                return RemovedSlice(0, is_last=False)
        removed, size_bytes, is_last = self._remove_bodies(run_id, left)
        left -= removed
        for statement in _REMOVE_THE_REST:
            if not is_last or not left:
                return RemovedSlice(size_bytes, is_last=False)
            left -= self._remove(statement, run_id, left)
        if not left:
            return RemovedSlice(size_bytes, is_last=False)
        self._writer.execute(_REMOVE_RUN, {"of_run": run_id})
        return RemovedSlice(size_bytes, is_last=True)

    def _remove(self, statement: Executable, run_id: str, most: int) -> int:
        return sum(1 for _ in self._writer.execute(statement, {"of_run": run_id, "most": most}))

    def _remove_bodies(self, run_id: str, most: int) -> tuple[int, int, bool]:
        """Remove bodies up to a number of rows and bytes; return both, and whether none is left."""
        found = list(self._writer.execute(_BODIES_TO_REMOVE, {"of_run": run_id, "most": most}))
        removed, size_bytes = 0, 0
        for body_id, body_bytes in found:
            self._writer.execute(_REMOVE_BODY, {"body": body_id})
            removed, size_bytes = removed + 1, size_bytes + body_bytes
            if size_bytes >= SLICE_BYTES:
                break
        return removed, size_bytes, removed == len(found) < most


class RunReads:
    """Reads runs."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def list_newest(
        self, limit: int, before_seq: int, task_id: str | None, status: str | None
    ) -> list[tuple[int, RunSummary]]:
        """List runs newest first, each with its place in that order."""
        given: dict[str, Any] = {"before": before_seq, "most": limit}
        statement = _NEWEST[task_id is not None, status is not None]
        if task_id is not None:
            given["task_id"] = task_id
        if status is not None:
            given["status"] = status
        return [(row[0], _listed(row)) for row in await self._reader.all(statement, **given)]

    async def find(self, run_id: str) -> tuple[RunSummary, bytes] | None:
        """Return a run and its ``result_ref`` as rendered JSON."""
        row = await self._reader.first(_ONE, run_id=run_id)
        return None if row is None else (_summary(row), b"null" if row[-1] is None else bytes(row[-1]))

    async def find_summary(self, run_id: str) -> RunSummary | None:
        """Return a run without its result."""
        row = await self._reader.first(_SUMMARY, run_id=run_id)
        return None if row is None else _summary(row)

    async def measure(self, run_id: str) -> int:
        """Count the bytes of the bodies of a run."""
        row = await self._reader.first(_BODY_BYTES, run_id=run_id)
        return 0 if row is None else int(row[0] or 0)

    async def list_hidden(self) -> list[str]:
        """List the runs whose removal has begun, oldest first."""
        return [row[0] for row in await self._reader.all(_HIDDEN)]

    async def count_by_status(self) -> dict[str, int]:
        """Count all runs, by status."""
        return {row[0]: row[1] for row in await self._reader.all(_COUNT_BY_STATUS)}

    async def list_ended_before(self, moment: str, keep_last: int, after_seq: int, limit: int) -> list[tuple[int, str]]:
        """List terminal runs that nothing changed since a moment, oldest first, each with its place in the order.

        The ``keep_last`` newest runs of each task are left out, whatever their age.
        """
        given = {
            "moment": moment,
            "keep_last": keep_last,
            "newer": max(0, keep_last - 1),
            "after": after_seq,
            "most": limit,
        }
        return [(row[0], row[1]) for row in await self._reader.all(_ENDED_BEFORE, **given)]

    async def list_unended_before(self, moment: str, after_seq: int, limit: int) -> list[tuple[int, str]]:
        """List runs that go on and that nothing changed since a moment, oldest first, each with its place."""
        given = {"moment": moment, "after": after_seq, "most": limit}
        return [(row[0], row[1]) for row in await self._reader.all(_UNENDED_BEFORE, **given)]

    async def list_degradations(self, run_id: str) -> list[JsonValue]:
        """List what workers reported as done in a lesser way, in the order it came; of many, the first and the last."""
        half = SHOWN_DEGRADATIONS.value // 2
        first = await self._reader.all(_FIRST_DEGRADATIONS, run_id=run_id, most=half)
        rows = list(first)
        if len(first) == half:
            last = await self._reader.all(_LAST_DEGRADATIONS, run_id=run_id, most=half, after=first[-1][0])
            rows += reversed(last)
        return [parse_json(record) for _, record in rows]


_head = (runs.c.seq, runs.c.id, runs.c.task_id, runs.c.status)
_rest = (runs.c.created_at, runs.c.updated_at, runs.c.degradation_count)
_columns = (*_head, runs.c.error, *_rest)
_listed_columns = (*_head, beginning(runs.c.error, LISTED_CHARS.value), *_rest)
_ADD = insert(runs)
_FINISH = update(runs).where(runs.c.id == bindparam("of_run"))
_ADD_DEGRADATION = insert(degradations)
_COUNT_DEGRADATION = (
    update(runs)
    .where(runs.c.id == bindparam("of_run"))
    .values(degradation_count=runs.c.degradation_count + 1)
    .returning(runs.c.degradation_count)
)
_oldest_between = (
    select(degradations.c.seq)
    .where(degradations.c.run_id == bindparam("of_run"))
    .order_by(degradations.c.seq)
    .limit(1)
    .offset(bindparam("kept"))
    .scalar_subquery()
)
_DROP_DEGRADATION = delete(degradations).where(degradations.c.seq == _oldest_between)
_is_there = runs.c.status != REMOVING
_HIDE = update(runs).where(runs.c.id == bindparam("hidden")).values(status=REMOVING)
_HIDDEN = select(runs.c.id).where(runs.c.status == REMOVING).order_by(runs.c.seq)


def _some_of(table: Table) -> Executable:
    some = select(table.c.seq).where(table.c.run_id == bindparam("of_run")).limit(bindparam("most"))
    return delete(table).where(table.c.seq.in_(some)).returning(table.c.seq)


_REMOVE_ANSWERS = (_some_of(projections), _some_of(outputs))
_REMOVE_THE_REST = (_some_of(dispatches), _some_of(degradations))
_BODIES_TO_REMOVE = (
    select(bodies.c.id, func.length(bodies.c.data))
    .where(bodies.c.run_id == bindparam("of_run"))
    .limit(bindparam("most"))
)
_REMOVE_BODY = delete(bodies).where(bodies.c.id == bindparam("body"))
_REMOVE_RUN = delete(runs).where(runs.c.id == bindparam("of_run"))
_LOCK = (
    select(runs.c.id, runs.c.task_id, runs.c.status, runs.c.outcome_sha256, runs.c.updated_at)
    .where(runs.c.id == bindparam("run_id"), _is_there)
    .with_for_update()
)
_TOUCH = update(runs).where(runs.c.id == bindparam("touched")).values(updated_at=bindparam("at"))
_COUNT_BY_STATUS = select(runs.c.status, func.count()).where(_is_there).group_by(runs.c.status).order_by(runs.c.status)
_SUMMARY = select(*_columns).where(runs.c.id == bindparam("run_id"), _is_there)
_ONE = (
    select(*_columns, bodies.c.data)
    .select_from(runs.outerjoin(bodies, bodies.c.id == runs.c.result_body_id))
    .where(runs.c.id == bindparam("run_id"), _is_there)
)
_BODY_BYTES = select(func.sum(func.length(bodies.c.data))).where(bodies.c.run_id == bindparam("run_id"))
_newer = runs.alias("newer")
# Of the newer ones as many as stay are looked at, not all: a task may have had a hundred thousand runs.
_has_newer = (
    select(_newer.c.seq)
    .where(_newer.c.task_id == runs.c.task_id, _newer.c.seq > runs.c.seq, _newer.c.status != REMOVING)
    .order_by(_newer.c.seq)
    .limit(1)
    .offset(bindparam("newer"))
    .correlate(runs)
    .exists()
)
_ENDED_BEFORE = (
    select(runs.c.seq, runs.c.id)
    .where(
        runs.c.seq > bindparam("after"),
        runs.c.status != RunStatus.PENDING,
        runs.c.status != RunStatus.RUNNING,
        runs.c.updated_at < bindparam("moment"),
        _is_there,
        or_(bindparam("keep_last") == 0, _has_newer),
    )
    .order_by(runs.c.seq)
    .limit(bindparam("most"))
)
_UNENDED_BEFORE = (
    select(runs.c.seq, runs.c.id)
    .where(
        runs.c.seq > bindparam("after"),
        or_(runs.c.status == RunStatus.RUNNING, runs.c.status == RunStatus.PENDING),
        runs.c.updated_at < bindparam("moment"),
    )
    .order_by(runs.c.seq)
    .limit(bindparam("most"))
)
_reports = select(degradations.c.seq, degradations.c.record).where(degradations.c.run_id == bindparam("run_id"))
_FIRST_DEGRADATIONS = _reports.order_by(degradations.c.seq).limit(bindparam("most"))
_LAST_DEGRADATIONS = (
    _reports.where(degradations.c.seq > bindparam("after")).order_by(degradations.c.seq.desc()).limit(bindparam("most"))
)
_page = (
    select(*_listed_columns)
    .where(runs.c.seq < bindparam("before"), _is_there)
    .order_by(runs.c.seq.desc())
    .limit(bindparam("most"))
)
_of_task = runs.c.task_id == bindparam("task_id")
_of_status = runs.c.status == bindparam("status")
_NEWEST = {
    (False, False): _page,
    (True, False): _page.where(_of_task),
    (False, True): _page.where(_of_status),
    (True, True): _page.where(_of_task, _of_status),
}


def _summary(row: Row) -> RunSummary:
    _, run_id, task_id, status, error, created_at, updated_at, degradation_count = row[:8]
    return RunSummary.model_construct(
        id=run_id,
        task_id=task_id,
        status=RunStatus(status),
        error=None if error is None else shown(error),
        created_at=created_at,
        updated_at=updated_at,
        degradation_count=degradation_count,
    )


def _listed(row: Row) -> RunSummary:
    told = _summary(row)
    error = excerpt(told.error)
    return told.model_copy(update={"error": error.text, "error_truncated": error.is_cut})
