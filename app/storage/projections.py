"""Projections: what answers now for each name of a run, with its finished summary.

The invariant: a row is rewritten in the very transaction that changes what answers, so that reading is one look-up.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import bindparam, func, insert, select, update

from app.domain.answers import (
    Answer,
    BodyForm,
    Place,
    file_form,
    recount_summary,
    split_summary,
    stored_form,
    summarize,
)
from app.domain.records import Kind
from app.domain.rendering import Preview
from app.storage.reader import Row
from app.storage.tables import (
    LISTED,
    SHADOWED,
    UNLISTED,
    dispatches,
    names,
    projections,
    shown,
    stored,
)
from app.storage.writer import Writer

CTX_KIND = "ctx"


class MaterializedFile(NamedTuple):
    """The file an output was written to."""

    path: str
    size_bytes: int
    sha256: str
    preview: Preview


class ProjectionWrites:
    """Writes what answers for the names of a run, inside one transaction."""

    def __init__(self, writer: Writer, place: Place) -> None:
        self._writer = writer
        self._place = place

    def put_step(self, answer: Answer, step_name: str, output_seq: int) -> bool:
        """Let a Final answer for its step, unless a newer occurrence or attempt does already."""
        there = self._find(answer.name, Kind.STEP)
        if there is not None and tuple(there[1:]) > (answer.occurrence, answer.attempt):
            return False
        self._put(there, self._row(answer, Kind.STEP, LISTED, step_name=step_name, output_seq=output_seq))
        return True

    def put_part(self, answer: Answer, step_name: str, output_seq: int) -> None:
        """Let an artifact answer for its own name, behind any step or alias of that name."""
        there = self._find(answer.name, Kind.ARTIFACT)
        shadowed = self._is_step_name(answer.name)
        visibility = SHADOWED if shadowed else LISTED
        row = self._row(answer, Kind.ARTIFACT, visibility, step_name=step_name, output_seq=output_seq)
        self._put(there, row)

    def count_parts(self, step_name: str, *, besides: str) -> int:
        """Count the parts of a step that bear another name."""
        given = {"of_run": self._place.run_id, "of_step": stored(step_name), "of_name": stored(besides)}
        return int(self._writer.execute(_COUNT_PARTS, given).scalar_one())

    def put_results(self, answers: Sequence[Answer]) -> None:
        """Let the parts of ``result_ref`` answer, each for a step that the data plane has nothing of."""
        if answers:
            self._writer.execute(_ADD, [self._row(answer, Kind.STEP, LISTED) for answer in answers])
            self._writer.execute(_SHADOW_ALL, {"of_run": self._place.run_id, "visibility": SHADOWED})

    def put_ctx(self, answer: Answer) -> None:
        """Keep the whole ``result_ref`` under its reserved name, unlisted."""
        self._put(None, self._row(answer, CTX_KIND, UNLISTED))

    def attach_file(self, output_seq: int, answer: Answer, file: MaterializedFile) -> None:
        """Let the file that an output was written to be its body, while that output answers."""
        counts = self._writer.execute(_COUNTS, {"of_run": self._place.run_id, "of_seq": output_seq}).first()
        if counts is None:  # another output answers by now
            return
        attempts, occurrences = counts  # another dispatch may have come since the output did
        form = file_form(answer, file.path, file.size_bytes, file.sha256, file.preview)
        head, tail = _pieces(answer._replace(attempts=attempts, occurrences=occurrences), form, self._place)
        values = {"file_path": file.path, "file_sha256": file.sha256, "summary_head": head, "summary_tail": tail}
        self._writer.execute(_ATTACH, values | {"of_run": self._place.run_id, "of_seq": output_seq})

    def shadow(self, name: str) -> None:
        """Hide an artifact behind the step that has come to bear its name."""
        given = {"of_run": self._place.run_id, "of_name": stored(name), "of_kind": Kind.ARTIFACT}
        self._writer.execute(_SHADOW, given | {"visibility": SHADOWED})

    def recount(self, step_id: str, step_name: str, attempts: int, occurrences: int) -> None:
        """Let the summaries of a step's outputs tell how often it was dispatched."""
        given = {"of_run": self._place.run_id, "of_name": stored(step_name)}
        for row in self._writer.execute(_OF_STEP_NAME, given):
            seq, put_out_by, known_attempts, tail = row
            told = attempts if put_out_by == step_id else known_attempts
            counts = {"attempts": told, "occurrences": occurrences}
            told_tail = recount_summary(bytes(tail), told, occurrences)
            self._writer.execute(_RECOUNT, {"of_row": seq, "summary_tail": told_tail} | counts)

    def list_answered(self) -> list[str]:
        """List the names that a step's Final answers for."""
        given = {"of_run": self._place.run_id, "of_kind": Kind.STEP}
        return [shown(row[0]) for row in self._writer.execute(_ANSWERED, given)]

    def _find(self, name: str, kind: Kind) -> Row | None:
        """Return the number, occurrence and attempt of the row that answers for a name."""
        given = {"of_run": self._place.run_id, "of_name": stored(name), "of_kind": kind}
        return self._writer.execute(_FIND, given).first()

    def _is_step_name(self, name: str) -> bool:
        given = {"task_id": self._place.task_id, "of_run": self._place.run_id, "of_name": stored(name)}
        return any(self._writer.execute(statement, given).first() for statement in _STEP_NAMES)

    def _put(self, there: Row | None, row: dict[str, Any]) -> None:
        """Write a row in the place of the one that is there, if one is."""
        if there is None:
            self._writer.execute(_ADD, row)
        else:
            # The key by which it was found stays: SQLite would write its index entries anew, and look for the run.
            changed = {column: item for column, item in row.items() if column not in _KEY}
            self._writer.execute(_REPLACE, changed | {"of_row": there[0]})

    def _row(
        self,
        answer: Answer,
        kind: str,
        visibility: int,
        *,
        step_name: str | None = None,
        output_seq: int | None = None,
    ) -> dict[str, Any]:
        head, tail = _pieces(answer, stored_form(answer), self._place)
        return _answer_row(answer, step_name) | {
            "run_id": self._place.run_id,
            "name": stored(answer.name),
            "kind": kind,
            "visibility": visibility,
            "source": answer.source,
            "output_seq": output_seq,
            "attempts": answer.attempts,
            "occurrences": answer.occurrences,
            "summary_head": head,
            "summary_tail": tail,
        }


def _pieces(answer: Answer, form: BodyForm, place: Place) -> tuple[bytes, bytes]:
    return split_summary(summarize(answer, form, place))


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


_p = projections.c
_run = _p.run_id == bindparam("of_run")
_named = (_run, _p.name == bindparam("of_name"), _p.kind == bindparam("of_kind"))
_FIND = select(_p.seq, _p.occurrence, _p.attempt).where(*_named)
# The columns come with the parameters: a statement that is built anew costs more than it takes to run.
_ADD = insert(projections)
_REPLACE = update(projections).where(_p.seq == bindparam("of_row"))
_KEY = frozenset({"run_id", "name", "kind"})
_COUNT_PARTS = (
    select(func.count())
    .select_from(projections)
    .where(
        _run,
        _p.step_name == bindparam("of_step"),
        _p.kind == Kind.ARTIFACT,
        _p.name != bindparam("of_name"),
    )
)
_SHADOW = update(projections).where(*_named).values(visibility=bindparam("visibility"))
_steps = projections.alias("steps")
_SHADOW_ALL = (
    update(projections)
    .where(
        _run,
        _p.kind == Kind.ARTIFACT,
        _p.name.in_(select(_steps.c.name).where(_steps.c.run_id == bindparam("of_run"), _steps.c.kind == Kind.STEP)),
    )
    .values(visibility=bindparam("visibility"))
)
_ANSWERED = select(_p.name).where(_run, _p.kind == bindparam("of_kind"))
_ATTACH = (
    update(projections)
    .where(_run, _p.output_seq == bindparam("of_seq"))
    .values({column: bindparam(column) for column in ("file_path", "file_sha256", "summary_head", "summary_tail")})
)
_OF_STEP_NAME = select(_p.seq, _p.step_id, _p.attempts, _p.summary_tail).where(
    _run, _p.step_name == bindparam("of_name")
)
_RECOUNT = update(projections).where(_p.seq == bindparam("of_row"))
_COUNTS = select(_p.attempts, _p.occurrences).where(_run, _p.output_seq == bindparam("of_seq"))

_STEP_NAMES = (
    select(names.c.name).where(names.c.task_id == bindparam("task_id"), names.c.name == bindparam("of_name")),
    select(dispatches.c.seq)
    .where(dispatches.c.run_id == bindparam("of_run"), dispatches.c.name == bindparam("of_name"))
    .limit(1),
    select(_p.seq).where(_run, _p.name == bindparam("of_name"), _p.kind == Kind.STEP),
)
