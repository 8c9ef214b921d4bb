"""Outputs: the append-only record of every event, and the bodies.

The invariant: a row that is here never changes, but for the file that its newest Final was materialized to.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Integer, Select, bindparam, func, insert, select, update

from app.domain.answers import Answer, RenderedOutput
from app.domain.records import Kind, Source
from app.storage.reader import Reader, Row
from app.storage.tables import REMOVING, bodies, dispatches, outputs, runs, shown, stored
from app.storage.writer import Writer

_a = outputs.c
ANSWER_COLUMNS = (
    "ok",
    "step_id",
    "step_ref",
    "step_name",
    "attempt",
    "occurrence",
    "created_at",
    "body_id",
    "encoding",
    "json_size",
    "json_sha256",
    "raw_size",
    "raw_sha256",
    "preview",
    "truncated",
    "file_path",
    "file_sha256",
)
"""The columns that outputs and projections share, in the order in which :func:`answer_of` takes them."""


class NewOutput(NamedTuple):
    """An event about to be appended; ``event`` is its JSON without the content."""

    id: str
    run_id: str
    step_id: str
    step_ref: str
    step_name: str
    attempt: int
    occurrence: int
    type: str
    name: str
    producer: str
    ok: bool | None
    event: str
    parent_refs: str
    traceparent: str | None
    created_at: str


class KeptOutput(NamedTuple):
    """An output with its body; ``event`` and ``parent_refs`` are JSON."""

    id: str
    run_id: str
    step_id: str
    step_name: str
    attempt: int
    type: str
    name: str
    producer: str
    event: str
    parent_refs: str
    traceparent: str | None
    created_at: str
    encoding: str
    json_sha256: str
    body: bytes


class OutputWrites:
    """Writes outputs inside one transaction."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def add_body(self, run_id: str, body: bytes) -> int:
        """Keep a body and return its id."""
        return int(self._writer.execute(_ADD_BODY, {"run_id": run_id, "data": body}).scalar_one())

    def add_bodies(self, run_id: str, bodies_: Sequence[bytes]) -> list[int]:
        """Keep many bodies at once and return their ids, in the same order."""
        rows = [{"run_id": run_id, "data": body} for body in bodies_]
        return [int(row[0]) for row in self._writer.execute(_ADD_BODIES, rows)]

    def append(self, output: NewOutput, rendered: RenderedOutput | None, body_id: int | None) -> int:
        """Append an event and return its place in the order of all."""
        row: dict[str, Any] = output._asdict()
        for column in ("name", "producer", "step_ref", "step_name"):
            row[column] = stored(row[column])
        row["ok"] = None if output.ok is None else int(output.ok)
        row |= _rendered_columns(rendered, body_id)
        return int(self._writer.execute(_APPEND, row).scalar_one())

    def attach_file(self, output_seq: int, path: str, sha256: str) -> None:
        """Note the file that an output was materialized to."""
        self._writer.execute(_ATTACH, {"of": output_seq, "path": path, "sha256": sha256})

    def detach_files(self, step_id: str, type_: str, name: str) -> None:
        """Forget the files of a step's earlier outputs of one name: the next one's takes their place."""
        self._writer.execute(_DETACH, {"of_step": step_id, "of_type": type_, "of_name": stored(name)})

    def find_newest(self, step_id: str, type_: str, name: str) -> int | None:
        """Return the place of what answers for a name among a step's own outputs of one type."""
        given = {"of_step": step_id, "of_type": type_, "of_name": stored(name)}
        statement = _NEWEST_FINAL if type_ == "final" else _NEWEST_PART
        seq: int | None = self._writer.execute(statement, given).scalar_one_or_none()
        return seq

    def list_part_names(self, step_id: str) -> list[str]:
        """List what the parts of a step are called, each name once, in no order that matters."""
        return [shown(name) for (name,) in self._writer.execute(_PART_NAMES, {"of_step": step_id})]

    def find_unknown(self, output_ids: Sequence[str]) -> str | None:
        """Return the first of these ids that no output has."""
        for output_id in output_ids:
            if self._writer.execute(_EXISTS, {"id": output_id}).first() is None:
                return output_id
        return None


class OutputReads:
    """Reads outputs."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def body(self, body_id: int) -> bytes | None:
        """Return a body; None when its run was deleted meanwhile."""
        row = await self._reader.first(_BODY, body_id=body_id)
        return None if row is None else bytes(row[0])

    async def piece(self, body_id: int, offset: int, size_bytes: int) -> bytes | None:
        """Return a piece of a body, empty past its end; None as :meth:`body`."""
        row = await self._reader.first(_PIECE, body_id=body_id, first=offset + 1, size=size_bytes)
        return None if row is None else bytes(row[0])

    async def count(self) -> int:
        """Count all outputs."""
        row = await self._reader.first(_COUNT)
        return 0 if row is None else row[0]

    async def get(self, output_id: str) -> KeptOutput | None:
        """Return an output by its id."""
        return _kept(await self._reader.first(_GET, id=output_id))

    async def get_latest_by_name(self, name: str, run_id: str | None = None) -> KeptOutput | None:
        """Return the newest output of a producer: over all runs, or of one."""
        if run_id is None:
            return _kept(await self._reader.first(_LATEST, producer=stored(name)))
        return _kept(await self._reader.first(_LATEST_IN_RUN, producer=stored(name), run_id=run_id))

    async def get_latest_by_name_in_run(self, step_id: str, attempt: int, name: str) -> KeptOutput | None:
        """Return the newest output of a producer in one attempt of a step, and so in one run."""
        row = await self._reader.first(_LATEST_OF_ATTEMPT, step_id=step_id, attempt=attempt, producer=stored(name))
        return _kept(row)

    async def list_for_attempt(self, step_id: str, attempt: int) -> list[KeptOutput]:
        """List the outputs of one attempt of a step, in the order in which they were appended."""
        rows = await self._reader.all(_OF_ATTEMPT, step_id=step_id, attempt=attempt)
        return [kept for kept in map(_kept, rows) if kept is not None]

    async def find_final(self, run_id: str, name: str, occurrence: int | None, attempt: int | None) -> Answer | None:
        """Return the newest Final of a name: of one occurrence, of one attempt, or of the newest that has one.

        Without an occurrence it is looked for in the newest occurrence that has any Final at all.
        """
        given: dict[str, Any] = {"run_id": run_id, "name": stored(name)}
        if occurrence is None:
            newest = await self._reader.first(_NEWEST_OCCURRENCE, **given)
            if newest is None:
                return None
            occurrence = newest[0]
        given["occurrence"] = occurrence
        statement = _FINAL
        if attempt is not None:
            statement = _FINAL_OF_ATTEMPT
            given["attempt"] = attempt
        row = await self._reader.first(statement, **given)
        return None if row is None else answer_of(name, Kind.STEP, Source.DATA_PLANE, row)

    async def find_part(self, run_id: str, name: str, occurrence: int | None, attempt: int | None) -> Answer | None:
        """Return the newest artifact of a name, of one occurrence or attempt of the step that staged it."""
        given: dict[str, Any] = {"run_id": run_id, "name": stored(name)}
        statement = _PART[occurrence is not None, attempt is not None]
        if occurrence is not None:
            given["occurrence"] = occurrence
        if attempt is not None:
            given["attempt"] = attempt
        row = await self._reader.first(statement, **given)
        return None if row is None else answer_of(name, Kind.ARTIFACT, Source.DATA_PLANE, row)


def answer_of(name: str, kind: Kind, source: Source, columns: Row) -> Answer:
    """Build an answer from a row: attempts, occurrences, then ``ANSWER_COLUMNS`` in their order."""
    (
        attempts,
        occurrences,
        ok,
        step_id,
        step_ref,
        step_name,
        attempt,
        occurrence,
        submitted_at,
        body_id,
        encoding,
        json_size,
        json_sha256,
        raw_size,
        raw_sha256,
        preview,
        truncated,
        file_path,
        file_sha256,
    ) = columns
    return Answer(
        name=name,
        kind=kind,
        source=source,
        ok=None if ok is None else bool(ok),
        step_id=step_id,
        step_ref=None if step_ref is None else shown(step_ref),
        attempt=attempt,
        attempts=attempts,
        occurrence=occurrence,
        occurrences=occurrences,
        submitted_at=submitted_at,
        body_id=body_id,
        encoding=encoding,
        json_size=json_size,
        json_sha256=json_sha256,
        raw_size=raw_size,
        raw_sha256=raw_sha256,
        preview=shown(preview),
        truncated=bool(truncated),
        file_path=file_path,
        file_sha256=file_sha256,
        step_name=None if step_name is None else shown(step_name),
    )


def _rendered_columns(rendered: RenderedOutput | None, body_id: int | None) -> dict[str, Any]:
    if rendered is None:
        columns = ("encoding", "json_size", "json_sha256", "raw_size", "raw_sha256", "preview", "truncated", "body_id")
        return dict.fromkeys(columns)
    return {
        "body_id": body_id,
        "encoding": rendered.encoding,
        "json_size": rendered.json_size,
        "json_sha256": rendered.json_sha256,
        "raw_size": rendered.raw_size,
        "raw_sha256": rendered.raw_sha256,
        "preview": stored(rendered.preview),
        "truncated": int(rendered.truncated),
    }


def _kept(row: Row | None) -> KeptOutput | None:
    if row is None:
        return None
    kept = KeptOutput(*row)
    return kept._replace(
        step_name=shown(kept.step_name),
        name=shown(kept.name),
        producer=shown(kept.producer),
        body=bytes(kept.body),
    )


_ADD_BODY = insert(bodies).returning(bodies.c.id)
_ADD_BODIES = insert(bodies).returning(bodies.c.id, sort_by_parameter_order=True)
_APPEND = insert(outputs).returning(outputs.c.seq)
_ATTACH = (
    update(outputs)
    .where(_a.seq == bindparam("of"))
    .values(file_path=bindparam("path"), file_sha256=bindparam("sha256"))
)
_of_step = (_a.step_id == bindparam("of_step"), _a.type == bindparam("of_type"), _a.name == bindparam("of_name"))
_DETACH = update(outputs).where(*_of_step, _a.file_path.is_not(None)).values(file_path=None, file_sha256=None)
_NEWEST_FINAL = select(_a.seq).where(*_of_step).order_by(_a.attempt.desc(), _a.seq.desc()).limit(1)
_NEWEST_PART = select(_a.seq).where(*_of_step).order_by(_a.seq.desc()).limit(1)
_PART_NAMES = select(_a.name).where(_a.step_id == bindparam("of_step"), _a.type == "artifact").distinct()
_EXISTS = select(_a.seq).where(_a.id == bindparam("id"))
_keeping: Select[Any] = (
    select(*(_a[column] for column in KeptOutput._fields if column != "body"), bodies.c.data)
    .select_from(outputs.join(bodies, bodies.c.id == _a.body_id))
    .where(_a.run_id.not_in(select(runs.c.id).where(runs.c.status == REMOVING)))
)
_COUNT = select(func.count()).select_from(outputs)
_GET = _keeping.where(_a.id == bindparam("id"))
_LATEST = _keeping.where(_a.producer == bindparam("producer")).order_by(_a.seq.desc()).limit(1)
_LATEST_IN_RUN = _LATEST.where(_a.run_id == bindparam("run_id"))
_OF_ATTEMPT = _keeping.where(_a.step_id == bindparam("step_id"), _a.attempt == bindparam("attempt")).order_by(_a.seq)
_LATEST_OF_ATTEMPT = _LATEST.where(_a.step_id == bindparam("step_id"), _a.attempt == bindparam("attempt"))
_BODY = select(bodies.c.data).where(bodies.c.id == bindparam("body_id"))
_PIECE = select(func.substr(bodies.c.data, bindparam("first", type_=Integer), bindparam("size", type_=Integer))).where(
    bodies.c.id == bindparam("body_id")
)

_of_name = (_a.run_id == bindparam("run_id"), _a.name == bindparam("name"))
_d = dispatches.alias("counted")
_attempts = (
    select(_d.c.attempt).where(_d.c.step_id == _a.step_id).order_by(_d.c.attempt.desc()).limit(1).scalar_subquery()
)
_occurrences = (
    select(_d.c.occurrence)
    .where(_d.c.run_id == _a.run_id, _d.c.name == _a.step_name)
    .order_by(_d.c.occurrence.desc())
    .limit(1)
    .scalar_subquery()
)
_shared = tuple(_a[column] for column in ANSWER_COLUMNS)
_NEWEST_OCCURRENCE = select(_a.occurrence).where(*_of_name, _a.type == "final").order_by(_a.occurrence.desc()).limit(1)
_of_occurrence = _a.occurrence == bindparam("occurrence")
_of_attempt = _a.attempt == bindparam("attempt")
_FINAL: Select[Any] = (
    select(_attempts, _occurrences, *_shared)
    .where(*_of_name, _a.type == "final", _of_occurrence)
    .order_by(_a.attempt.desc(), _a.seq.desc())
    .limit(1)
)
_FINAL_OF_ATTEMPT = _FINAL.where(_of_attempt)
_newest_part: Select[Any] = (
    select(_attempts, _occurrences, *_shared).where(*_of_name, _a.type == "artifact").order_by(_a.seq.desc()).limit(1)
)
_PART = {
    (False, False): _newest_part,
    (True, False): _newest_part.where(_of_occurrence),
    (False, True): _newest_part.where(_of_attempt),
    (True, True): _newest_part.where(_of_occurrence, _of_attempt),
}
