"""Tasks and their tables of names.

The invariant: a task and its table are written once, together, and never changed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, func, insert, select

from app.domain.limits import LISTED_CHARS
from app.domain.naming import StepNaming
from app.domain.records import RunStatus, TaskRecord, TaskSummary, excerpt
from app.domain.rendering import compact_json
from app.domain.values import JsonValue, parse_json
from app.storage.reader import Reader, Row
from app.storage.tables import REMOVING, beginning, names, runs, shown, stored, tasks
from app.storage.writer import Writer


class TaskWrites:
    """Writes tasks inside one transaction."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def add(self, task: TaskRecord, naming: StepNaming | None) -> None:
        """Append a task with its Blueprint's table of names."""
        self._writer.execute(
            _ADD,
            {
                "id": task.id,
                "goal": None if task.goal is None else stored(task.goal),
                "project_root": _optional(task.project_root),
                "work_dir": _optional(task.work_dir),
                "created_at": task.created_at,
                "task_metadata": _json(task.task_metadata),
                "init_ctx": _json(task.init_ctx),
                "blueprint": _json(task.blueprint),
                "naming": None if naming is None else naming.model_dump_json(),
            },
        )
        if naming is not None and naming.entries:
            self._writer.execute(_ADD_NAMES, _name_rows(task.id, naming))


class TaskReads:
    """Reads tasks."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def list_newest(self, limit: int, before_seq: int) -> list[tuple[int, TaskSummary]]:
        """List tasks newest first, each with its place in that order."""
        rows = await self._reader.all(_NEWEST, before=before_seq, most=limit)
        return [(row[0], _listed(row)) for row in rows]

    async def find(self, task_id: str) -> TaskRecord | None:
        """Return a task whole."""
        row = await self._reader.first(_ONE, task_id=task_id)
        if row is None:
            return None
        metadata, init_ctx, blueprint = (None if text is None else parse_json(text) for text in row[8:11])
        return TaskRecord.model_construct(
            **_summary(row), task_metadata=metadata, init_ctx=init_ctx, blueprint=blueprint
        )

    async def count(self) -> int:
        """Count all tasks."""
        row = await self._reader.first(_COUNT)
        return 0 if row is None else row[0]

    async def exists(self, task_id: str) -> bool:
        """Tell whether a task has this id."""
        return await self._reader.first(_EXISTS, task_id=task_id) is not None

    async def find_naming(self, task_id: str) -> StepNaming | None:
        """Return a task's table of names; None without a task or without a Blueprint."""
        row = await self._reader.first(_NAMING, task_id=task_id)
        return None if row is None or row[0] is None else StepNaming.model_validate_json(row[0])


_latest_run = (
    select(runs.c.seq)
    .where(runs.c.task_id == tasks.c.id, runs.c.status != REMOVING)
    .order_by(runs.c.seq.desc())
    .limit(1)
    .correlate(tasks)
)
_rest = (tasks.c.project_root, tasks.c.work_dir, tasks.c.created_at, runs.c.id, runs.c.status)
_columns = (tasks.c.seq, tasks.c.id, tasks.c.goal, *_rest)
_listed_columns = (tasks.c.seq, tasks.c.id, beginning(tasks.c.goal, LISTED_CHARS.value), *_rest)
_joined = tasks.outerjoin(runs, runs.c.seq == _latest_run.scalar_subquery())
_NEWEST = (
    select(*_listed_columns)
    .select_from(_joined)
    .where(tasks.c.seq < bindparam("before"))
    .order_by(tasks.c.seq.desc())
    .limit(bindparam("most"))
)
_ONE = (
    select(*_columns, tasks.c.task_metadata, tasks.c.init_ctx, tasks.c.blueprint)
    .select_from(_joined)
    .where(tasks.c.id == bindparam("task_id"))
)
_ADD = insert(tasks)
_ADD_NAMES = insert(names)
_COUNT = select(func.count()).select_from(tasks)
_EXISTS = select(tasks.c.seq).where(tasks.c.id == bindparam("task_id"))
_NAMING = select(tasks.c.naming).where(tasks.c.id == bindparam("task_id"))


def _summary(row: Row) -> dict[str, Any]:
    _, task_id, goal, project_root, work_dir, created_at, run_id, status = row[:8]
    return {
        "id": task_id,
        "goal": None if goal is None else shown(goal),
        "status": RunStatus(status or RunStatus.PENDING),
        "latest_run_id": run_id,
        "project_root": None if project_root is None else shown(project_root),
        "work_dir": None if work_dir is None else shown(work_dir),
        "created_at": created_at,
    }


def _listed(row: Row) -> TaskSummary:
    told = _summary(row)
    goal = excerpt(told["goal"])
    return TaskSummary.model_construct(**told | {"goal": goal.text, "goal_truncated": goal.is_cut})


def _name_rows(task_id: str, naming: StepNaming) -> Sequence[Mapping[str, str]]:
    return [
        {"task_id": task_id, "name": stored(name), "canonical": stored(entry.canonical)}
        for entry in naming.entries
        for name in sorted({entry.canonical, *entry.aliases})
    ]


def _optional(text: str | None) -> str | None:
    return None if text is None else stored(text)


def _json(value: JsonValue) -> str | None:
    return None if value is None else compact_json(value).decode()
