"""Projections: what answers now for each name of a run, with its finished summary.

The invariant: a row is rewritten in the very transaction that changes what answers, so that reading is one look-up.
"""

from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, func, insert, select, update

from app.domain.answers import Answer, BodyForm, Place, file_form, split_summary, stored_form, summarize
from app.domain.records import Kind, Source
from app.domain.rendering import Preview
from app.storage.outputs import ANSWER_COLUMNS, answer_of
from app.storage.reader import Reader, Row
from app.storage.tables import (
    LISTED,
    SHADOWED,
    UNLISTED,
    dispatches,
    names,
    projections,
    runs,
    shown,
    stored,
    tasks,
)

CTX_KIND = "ctx"


class MaterializedFile(NamedTuple):
    """The file an output was written to."""

    path: str
    size_bytes: int
    sha256: str
    preview: Preview


class ProjectionWrites:
    """Writes what answers for the names of a run, inside one transaction."""

    def __init__(self, connection: Connection, place: Place) -> None:
        self._connection = connection
        self._place = place

    def put_step(self, answer: Answer, step_name: str, output_seq: int) -> bool:
        """Let a Final answer for its step, unless a newer occurrence or attempt does already."""
        there = self._find(answer.name, Kind.STEP)
        if there is not None and (there.occurrence, there.attempt) > (answer.occurrence, answer.attempt):
            return False
        self._put(there, answer, Kind.STEP, LISTED, step_name=step_name, output_seq=output_seq)
        return True

    def put_part(self, answer: Answer, step_name: str, output_seq: int) -> None:
        """Let an artifact answer for its own name, behind any step or alias of that name."""
        there = self._find(answer.name, Kind.ARTIFACT)
        shadowed = self._is_step_name(answer.name)
        visibility = SHADOWED if shadowed else LISTED
        self._put(there, answer, Kind.ARTIFACT, visibility, step_name=step_name, output_seq=output_seq)

    def put_result(self, answer: Answer) -> None:
        """Let a part of ``result_ref`` answer for a step that the data plane has nothing of."""
        if self._find(answer.name, Kind.STEP) is None:
            self._put(None, answer, Kind.STEP, LISTED)
            self.shadow(answer.name)

    def put_ctx(self, answer: Answer) -> None:
        """Keep the whole ``result_ref`` under its reserved name, unlisted."""
        self._put(None, answer, CTX_KIND, UNLISTED)

    def attach_file(self, output_seq: int, answer: Answer, file: MaterializedFile) -> None:
        """Let the file that an output was written to be its body, while that output answers."""
        form = file_form(answer, file.path, file.size_bytes, file.sha256, file.preview)
        head, tail = _pieces(answer, form, self._place)
        values = {"file_path": file.path, "file_sha256": file.sha256, "summary_head": head, "summary_tail": tail}
        self._connection.execute(_ATTACH, values | {"of_run": self._place.run_id, "of_seq": output_seq})

    def shadow(self, name: str) -> None:
        """Hide an artifact behind the step that has come to bear its name."""
        given = {"of_run": self._place.run_id, "of_name": stored(name), "of_kind": Kind.ARTIFACT}
        self._connection.execute(_SHADOW, given | {"visibility": SHADOWED})

    def recount(self, step_id: str, step_name: str, attempts: int, occurrences: int) -> None:
        """Let the summaries of a step's outputs tell how often it was dispatched."""
        given = {"of_run": self._place.run_id, "of_name": stored(step_name)}
        self._connection.execute(_RECOUNT_OCCURRENCES, given | {"occurrences": occurrences})
        if attempts > 1:
            self._connection.execute(_RECOUNT_ATTEMPTS, given | {"of_step": step_id, "attempts": attempts})

    def list_answered(self) -> list[str]:
        """List the names that a step's Final answers for."""
        given = {"of_run": self._place.run_id, "of_kind": Kind.STEP}
        return [shown(row[0]) for row in self._connection.execute(_ANSWERED, given)]

    def _find(self, name: str, kind: Kind) -> Any:
        given = {"of_run": self._place.run_id, "of_name": stored(name), "of_kind": kind}
        return self._connection.execute(_FIND, given).first()

    def _is_step_name(self, name: str) -> bool:
        given = {"task_id": self._place.task_id, "of_run": self._place.run_id, "of_name": stored(name)}
        return any(self._connection.execute(statement, given).first() for statement in _STEP_NAMES)

    def _put(
        self,
        there: Row | None,
        answer: Answer,
        kind: str,
        visibility: int,
        *,
        step_name: str | None = None,
        output_seq: int | None = None,
    ) -> None:
        head, tail = _pieces(answer, stored_form(answer), self._place)
        row = _answer_row(answer, step_name) | {
            "visibility": visibility,
            "source": answer.source,
            "output_seq": output_seq,
            "attempts": answer.attempts,
            "occurrences": answer.occurrences,
            "summary_head": head,
            "summary_tail": tail,
        }
        if there is None:
            address = {"run_id": self._place.run_id, "name": stored(answer.name), "kind": kind}
            self._connection.execute(_ADD, row | address)
        else:
            self._connection.execute(_REPLACE, row | {"of_row": there[0]})


class ListedRow(NamedTuple):
    """One line of a list: its finished summary in pieces, and the file that may have changed since."""

    name: str
    summary_head: bytes
    summary_tail: bytes
    attempts: int | None
    occurrence: int | None
    occurrences: int | None
    submitted_at: str | None
    file_path: str | None
    file_sha256: str | None
    step_name: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """Its name, and that of the step that put it out: a policy may speak of either."""
        return (shown(self.name),) if self.step_name is None else (shown(self.name), shown(self.step_name))

    def summary(self, base_url: bytes) -> bytes:
        """Join the pieces to the summary's JSON."""
        _, head, tail, attempts, occurrence, occurrences, submitted_at, *_ = self
        if attempts is None:
            return b"".join((head, base_url, tail, _NO_COUNTS))
        counts = f'{attempts},"occurrence":{occurrence},"occurrences":{occurrences},"submitted_at":"{submitted_at}"}}'
        return b"".join((head, base_url, tail, counts.encode()))


_NO_COUNTS = b'null,"occurrence":null,"occurrences":null,"submitted_at":null}'


class RunAddress(NamedTuple):
    """A run that was found under a task, or what of the two was not."""

    task_exists: bool
    run_id: str | None


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
            return RunAddress(task_exists=False, run_id=None)
        return RunAddress(task_exists=True, run_id=row[0])

    async def list_by_name(self, run_id: str) -> list[ListedRow]:
        """List what the run's names answer with, ascending by name, bytewise."""
        return list(map(ListedRow._make, await self._reader.all(_LIST, run_id=run_id)))

    async def list_answers_with_files(self, run_id: str) -> dict[str, Answer]:
        """Return the answers of a run that have a materialized file, by name."""
        rows = await self._reader.all(_WITH_FILES, run_id=run_id)
        return {answer.name: answer for answer in map(_answer, rows)}

    async def find(self, task_id: str, run_id: str | None, name: str) -> tuple[RunAddress, str, Answer | None]:
        """Find a run as :meth:`find_run`, the canonical name of a name in it, and what answers for that now."""
        given = {"task_id": task_id, "name": stored(name)}
        if run_id is None:
            row = await self._reader.first(_RESOLVE_LATEST, **given)
        else:
            row = await self._reader.first(_RESOLVE, run_id=run_id, **given)
        if row is None:
            return RunAddress(task_exists=False, run_id=None), name, None
        canonical = name if row[1] is None else shown(row[1])
        return RunAddress(task_exists=True, run_id=row[0]), canonical, None if row[2] is None else _answer(row[2:])

    async def resolve_name(self, task_id: str, name: str) -> str:
        """Return the canonical name that a name of the task's Blueprint leads to, or the name itself."""
        row = await self._reader.first(_CANONICAL, task_id=task_id, name=stored(name))
        return name if row is None else shown(row[0])

    async def list_aliases(self, task_id: str) -> dict[str, str]:
        """Return every name of the task's Blueprint and the canonical name it leads to."""
        return {shown(row[0]): shown(row[1]) for row in await self._reader.all(_ALIASES, task_id=task_id)}


def _pieces(answer: Answer, form: BodyForm, place: Place) -> tuple[bytes, bytes]:
    """Cut a summary at the base URL, and again before the counts, which later dispatches change."""
    head, tail = split_summary(summarize(answer, form, place))
    return head, tail[: tail.rindex(_COUNTS_KEY) + len(_COUNTS_KEY)]


_COUNTS_KEY = b'"attempts":'


def _answer_row(answer: Answer, step_name: str | None) -> dict[str, Any]:
    return {
        "ok": None if answer.ok is None else int(answer.ok),
        "step_id": answer.step_id,
        "step_ref": None if answer.step_ref is None else stored(answer.step_ref),
        "step_name": None if step_name is None else stored(step_name),
        "attempt": answer.attempt,
        "occurrence": answer.occurrence,
        "created_at": answer.submitted_at,
        "body_id": answer.body_id,
        "encoding": answer.encoding,
        "json_size": answer.json_size,
        "json_sha256": answer.json_sha256,
        "raw_size": answer.raw_size,
        "raw_sha256": answer.raw_sha256,
        "preview": stored(answer.preview),
        "truncated": int(answer.truncated),
        "file_path": answer.file_path,
        "file_sha256": answer.file_sha256,
    }


def _answer(row: Row) -> Answer:
    kind = Kind.ARTIFACT if row[1] == Kind.ARTIFACT else Kind.STEP
    return answer_of(shown(row[0]), kind, Source(row[2]), row[3:])


_p = projections.c
_run = _p.run_id == bindparam("of_run")
_named = (_run, _p.name == bindparam("of_name"), _p.kind == bindparam("of_kind"))
_of_step_name = (_run, _p.step_name == bindparam("of_name"))
_FIND = select(_p.seq, _p.occurrence, _p.attempt).where(*_named)
# The columns come with the parameters: a statement that is built anew costs more than it takes to run.
_ADD = insert(projections)
_REPLACE = update(projections).where(_p.seq == bindparam("of_row"))
_SHADOW = update(projections).where(*_named).values(visibility=bindparam("visibility"))
_ANSWERED = select(_p.name).where(_run, _p.kind == bindparam("of_kind"))
_ATTACH = (
    update(projections)
    .where(_run, _p.output_seq == bindparam("of_seq"))
    .values({column: bindparam(column) for column in ("file_path", "file_sha256", "summary_head", "summary_tail")})
)
_RECOUNT_OCCURRENCES = update(projections).where(*_of_step_name).values(occurrences=bindparam("occurrences"))
_RECOUNT_ATTEMPTS = (
    update(projections).where(*_of_step_name, _p.step_id == bindparam("of_step")).values(attempts=bindparam("attempts"))
)

_STEP_NAMES = (
    select(names.c.name).where(names.c.task_id == bindparam("task_id"), names.c.name == bindparam("of_name")),
    select(dispatches.c.seq)
    .where(dispatches.c.run_id == bindparam("of_run"), dispatches.c.name == bindparam("of_name"))
    .limit(1),
    select(_p.seq).where(_run, _p.name == bindparam("of_name"), _p.kind == Kind.STEP),
)
_LIST = (
    select(
        _p.name,
        _p.summary_head,
        _p.summary_tail,
        _p.attempts,
        _p.occurrence,
        _p.occurrences,
        _p.created_at,
        _p.file_path,
        _p.file_sha256,
        _p.step_name,
    )
    .where(_p.run_id == bindparam("run_id"), _p.visibility == LISTED)
    .order_by(_p.name)
)
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
_the_run = and_(runs.c.task_id == tasks.c.id, runs.c.id == bindparam("run_id"))
_newest = select(func.max(runs.c.seq)).where(runs.c.task_id == tasks.c.id).correlate(tasks).scalar_subquery()
_the_latest_run = runs.c.seq == _newest
_of_task = tasks.c.id == bindparam("task_id")
_RUN = select(runs.c.id).select_from(tasks.outerjoin(runs, _the_run)).where(_of_task)
_LATEST_RUN = select(runs.c.id).select_from(tasks.outerjoin(runs, _the_latest_run)).where(_of_task)


def _resolve(the_run: ColumnElement[bool]) -> Select[Any]:
    the_name = and_(names.c.task_id == tasks.c.id, names.c.name == bindparam("name"))
    the_answer = and_(
        _p.run_id == runs.c.id,
        _p.name == func.coalesce(names.c.canonical, bindparam("name")),
        _p.visibility < SHADOWED,
    )
    return (
        select(runs.c.id, names.c.canonical, *_answer_columns)
        .select_from(tasks.outerjoin(runs, the_run).outerjoin(names, the_name).outerjoin(projections, the_answer))
        .where(_of_task)
        .order_by(_p.visibility)  # a step or artifact called _ctx comes before the reserved name
    )


_RESOLVE = _resolve(_the_run)
_RESOLVE_LATEST = _resolve(_the_latest_run)
_CANONICAL = select(names.c.canonical).where(names.c.task_id == bindparam("task_id"), names.c.name == bindparam("name"))
_ALIASES = select(names.c.name, names.c.canonical).where(names.c.task_id == bindparam("task_id"))
