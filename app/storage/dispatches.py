"""Dispatches: attempts of steps, with all that was snapshotted for each.

The invariant: what a worker may see and do is decided at its dispatch and read from here ever after; of its handle
only the digest is kept.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import bindparam, func, insert, select, update

from app.domain.errors import InFlight
from app.domain.grants import Grant
from app.domain.records import ProgressNote, RunStatus, StepEntry, StepStatus, Usage, elapsed_ms
from app.domain.rendering import compact_json
from app.domain.requests import StatsRequest
from app.domain.values import parse_json
from app.storage.reader import Reader, Row
from app.storage.tables import REMOVING, dispatches, runs, shown, stored
from app.storage.writer import Writer


class NewDispatch(NamedTuple):
    """An attempt of a step about to be dispatched."""

    run_id: str
    step_id: str
    attempt: int
    step_ref: str
    name: str
    occurrence: int
    handle_sha256: str
    expires_at: str
    started_at: str
    projection_root: str | None
    dir_template: str | None
    policy: str
    view: str
    directive: str
    system: str | None


class KeptPrompt(NamedTuple):
    """What an attempt was asked: the directive as JSON, and the system prompt as JSON or None; and its handle."""

    directive: str
    system: str | None
    handle_sha256: str


class Counts(NamedTuple):
    """How often a name was dispatched in a run, and how many attempts one of those has."""

    attempts: int
    occurrences: int


class FilePlace(NamedTuple):
    """Where the files of an attempt are."""

    seq: int
    root: str
    dir_template: str
    step_id: str


class DispatchWrites:
    """Writes dispatches inside one transaction."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def add(self, dispatch: NewDispatch) -> None:
        """Append an attempt."""
        row = dispatch._asdict() | {
            "step_ref": stored(dispatch.step_ref),
            "name": stored(dispatch.name),
            "status": StepStatus.DISPATCHED,
        }
        self._writer.execute(_ADD, row)

    def find_newest_attempt(self, run_id: str, step_id: str) -> Row | None:
        """Return attempt, step_ref, name and occurrence of the newest attempt of a step of this run."""
        row = self._writer.execute(_NEWEST_ATTEMPT, {"run_id": run_id, "step_id": step_id}).first()
        return None if row is None else (row[0], shown(row[1]), shown(row[2]), row[3])

    def count(self, run_id: str, name: str, occurrence: int) -> Counts:
        """Count the occurrences of a name, and the attempts of one of them."""
        given = {"run_id": run_id, "name": stored(name), "occurrence": occurrence}
        attempts, occurrences = self._writer.execute(_COUNTS, given).one()
        return Counts(attempts or 0, occurrences or 0)

    def list_names(self, run_id: str) -> list[str]:
        """List the names that were dispatched in a run, in the order of their first dispatch."""
        return [shown(row[0]) for row in self._writer.execute(_NAMES, {"run_id": run_id})]

    def complete(self, step_id: str, attempt: int, status: StepStatus, at: str) -> None:
        """Note what the newest Final of an attempt said."""
        self._writer.execute(_COMPLETE, {"of_step": step_id, "of_attempt": attempt, "said": status, "at": at})

    def add_stats(self, step_id: str, attempt: int, stats: StatsRequest, usage: str | None) -> None:
        """Keep what a worker says of itself; what it does not say stays as it was."""
        said = {
            "worker_kind": None if stats.worker_kind is None else stored(stats.worker_kind),
            "model": None if stats.model is None else stored(stats.model),
            "usage": usage,
            "num_turns": stats.num_turns,
            "adapter_data": None if stats.adapter_data is None else compact_json(stats.adapter_data).decode(),
        }
        given = {column: item for column, item in said.items() if item is not None}
        if given:
            self._writer.execute(_SAY, given | {"of_step": step_id, "of_attempt": attempt})

    def note_progress(self, step_id: str, attempt: int, progress: ProgressNote) -> None:
        """Keep what an attempt said last that it is doing."""
        note = compact_json(progress.model_dump()).decode()
        self._writer.execute(_SAY, {"progress": note, "of_step": step_id, "of_attempt": attempt})


class DispatchReads:
    """Reads dispatches."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def list_in_order(self, run_id: str) -> list[StepEntry]:
        """List every attempt of a run whole, in the order of dispatch."""
        return [_entry_with(row) for row in await self._reader.all(_WHOLE_ENTRIES, run_id=run_id)]

    async def list_rows(self, run_id: str) -> Sequence[Row]:
        """List every attempt but for its ``adapter_data``, as rows for :func:`entry_of`, in the order of dispatch."""
        return await self._reader.all(_ENTRIES, run_id=run_id)

    async def list_file_places(self, before: int | None, limit: int) -> list[FilePlace]:
        """List where attempts have their files, the newest first; ``before`` goes on behind a page's last one."""
        rows = await self._reader.all(_FILE_PLACES, before=_NEWEST if before is None else before, limit=limit)
        return [FilePlace(*row) for row in rows]

    async def list_names(self, run_id: str, limit: int | None = None) -> list[str]:
        """List the names that were dispatched in a run, in the order of their first dispatch."""
        if limit is None:
            return [shown(row[0]) for row in await self._reader.all(_NAMES, run_id=run_id)]
        return [shown(row[0]) for row in await self._reader.all(_SOME_NAMES, run_id=run_id, most=limit)]

    async def find_newest_of_name(self, run_id: str, name: str) -> InFlight | None:
        """Return the newest dispatch of a canonical name in a run; None where there was none."""
        row = await self._reader.first(_NEWEST_OF_NAME, run_id=run_id, name=stored(name))
        if row is None:
            return None
        status = RunStatus(row[4])
        return InFlight(row[0], row[1], row[2], row[3], status if status.is_terminal else None)

    async def find_grant(self, handle_sha256: str) -> Grant | None:
        """Return what a handle stands for, by the digest of the handle."""
        row = await self._reader.first(_GRANT, handle=handle_sha256)
        if row is None:
            return None
        task_id, run_id, run_status, step_id, attempt, step_ref, name, *snapshotted = row
        status = RunStatus(run_status)
        return Grant(task_id, run_id, status, step_id, attempt, shown(step_ref), shown(name), *snapshotted)

    async def find_bound_handle(self, step_id: str, attempt: int) -> str | None:
        """Return the digest of the handle that is bound to an attempt; None where there is no such attempt."""
        row = await self._reader.first(_HANDLE, step_id=step_id, attempt=attempt)
        return None if row is None else row[0]

    async def find_prompt(self, step_id: str, attempt: int) -> KeptPrompt | None:
        """Return what an attempt was asked."""
        row = await self._reader.first(_PROMPT, step_id=step_id, attempt=attempt)
        return None if row is None else KeptPrompt(*row)


_d = dispatches.c
_ADD = insert(dispatches)
_of_name = (_d.run_id == bindparam("run_id"), _d.name == bindparam("name"))
_NEWEST_ATTEMPT = (
    select(_d.attempt, _d.step_ref, _d.name, _d.occurrence)
    .where(_d.run_id == bindparam("run_id"), _d.step_id == bindparam("step_id"))
    .order_by(_d.attempt.desc())
    .limit(1)
)
_COUNTS = select(
    select(func.max(_d.attempt)).where(*_of_name, _d.occurrence == bindparam("occurrence")).scalar_subquery(),
    select(func.max(_d.occurrence)).where(*_of_name).scalar_subquery(),
)
_NAMES = select(_d.name).where(_d.run_id == bindparam("run_id")).group_by(_d.name).order_by(func.min(_d.seq))
_SOME_NAMES = _NAMES.limit(bindparam("most"))
_NEWEST_OF_NAME = (
    select(_d.step_id, _d.attempt, _d.occurrence, _d.started_at, runs.c.status)
    .select_from(dispatches.join(runs, runs.c.id == _d.run_id))
    .where(*_of_name)
    .order_by(_d.occurrence.desc(), _d.attempt.desc())
    .limit(1)
)
_COMPLETE = (
    update(dispatches)
    .where(_d.step_id == bindparam("of_step"), _d.attempt == bindparam("of_attempt"))
    .values(status=bindparam("said"), completed_at=bindparam("at"))
)
_SAY = update(dispatches).where(_d.step_id == bindparam("of_step"), _d.attempt == bindparam("of_attempt"))
_ENTRIES = (
    select(
        _d.step_id,
        _d.step_ref,
        _d.name,
        _d.status,
        _d.attempt,
        _d.occurrence,
        _d.started_at,
        _d.completed_at,
        _d.worker_kind,
        _d.model,
        _d.usage,
        _d.num_turns,
        _d.progress,
    )
    .where(_d.run_id == bindparam("run_id"))
    .order_by(_d.seq)
)
_WHOLE_ENTRIES = _ENTRIES.add_columns(_d.adapter_data)
_GRANT = (
    select(
        runs.c.task_id,
        _d.run_id,
        runs.c.status,
        _d.step_id,
        _d.attempt,
        _d.step_ref,
        _d.name,
        _d.occurrence,
        _d.expires_at,
        _d.projection_root,
        _d.dir_template,
        _d.policy,
        _d.view,
    )
    .select_from(dispatches.join(runs, runs.c.id == _d.run_id))
    .where(_d.handle_sha256 == bindparam("handle"), runs.c.status != REMOVING)
)
_NEWEST = 2**63 - 1
_FILE_PLACES = (
    select(_d.seq, _d.projection_root, _d.dir_template, _d.step_id)
    .where(_d.seq < bindparam("before"), _d.projection_root.is_not(None), _d.dir_template.is_not(None))
    .order_by(_d.seq.desc())
    .limit(bindparam("limit"))
)
_of_attempt = (_d.step_id == bindparam("step_id"), _d.attempt == bindparam("attempt"))
_PROMPT = select(_d.directive, _d.system, _d.handle_sha256).where(*_of_attempt)
_HANDLE = select(_d.handle_sha256).where(*_of_attempt)


def entry_of(row: Row) -> StepEntry:
    """Read an attempt as it is told."""
    step_id, step_ref, name, status, attempt, occurrence, started_at, completed_at, *said = row
    worker_kind, model, usage, num_turns, progress = said
    extra: dict[str, Any] = {
        "worker_kind": None if worker_kind is None else shown(worker_kind),
        "model": None if model is None else shown(model),
        "usage": None if usage is None else Usage.model_validate_json(usage),
        "num_turns": num_turns,
        "progress": None if progress is None else ProgressNote.model_construct(**parse_json(progress)),
    }
    return StepEntry.model_construct(
        step_id=step_id,
        step_ref=shown(step_ref),
        name=shown(name),
        status=StepStatus(status),
        attempt=attempt,
        occurrence=occurrence,
        started_at=started_at,
        completed_at=completed_at,
        duration_ms=None if completed_at is None else elapsed_ms(started_at, completed_at),
        **extra,
    )


def _entry_with(row: Row) -> StepEntry:
    *columns, adapter_data = row
    entry = entry_of(columns)
    return entry if adapter_data is None else entry.model_copy(update={"adapter_data": parse_json(adapter_data)})
