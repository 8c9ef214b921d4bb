"""Submissions: what workers put out, kept before it is acknowledged.

The invariant: every write goes through :meth:`Submissions._append`, which judges in the transaction that keeps.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from app.domain.answers import Answer, RenderedOutput, render_output
from app.domain.errors import Forbidden, InvalidParameter, RunFinished
from app.domain.folding import Verdict, decode_body, fold_body, settle_verdict
from app.domain.grants import Grant
from app.domain.ids import check_name, new_output_id
from app.domain.records import Kind, Source, StepStatus, wire_time
from app.domain.rendering import compact_json
from app.domain.values import JsonValue, parse_json
from app.services.file_bodies import FileBodies
from app.services.materializer import Materializer, Submitted
from app.storage.database import Database
from app.storage.outputs import NewOutput
from app.storage.stores import WriteStores


class Submissions:
    """The worker's writes.

    Args:
        database: where outputs are kept.
        materializer: writes them to files as well.
        file_bodies: reads bodies that are named by a file.
        clock: tells the time, with its zone.
    """

    def __init__(
        self,
        database: Database,
        materializer: Materializer,
        file_bodies: FileBodies,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._database = database
        self._materializer = materializer
        self._file_bodies = file_bodies
        self._clock = clock

    async def submit(self, grant: Grant, raw: bytes, *, ok: bool | None, verdict: str | None) -> None:
        """Keep a raw body as the Final of the bearer's attempt.

        Raises:
            VerdictConflict: ``verdict`` is unknown, or contradicts ``ok``.
            InvalidText, NotJson: the body is no UTF-8, or no JSON where the step takes only that.
            FileSubmitRefused, TooLarge: an ``@file:`` body that is not allowed, or too large.
            RunFinished: the run has ended.
        """
        settled = settle_verdict(ok=ok, verdict=verdict)
        extra = _extra(grant)
        text = await self._text(grant, raw, extra)
        await self._final(grant, fold_body(text, extra.get("submit_format")), settled)

    async def result(self, grant: Grant, step_id: str, attempt: int | None, value: JsonValue, *, ok: bool) -> None:
        """Keep a JSON value as the Final of the bearer's attempt.

        Raises:
            Forbidden: the body names another step or attempt than the bearer's.
            RunFinished: the run has ended.
        """
        require_bound(grant, step_id, attempt)
        await self._final(grant, value, settle_verdict(ok=ok, verdict=None))

    async def stage(self, grant: Grant, name: str, raw: bytes) -> None:
        """Keep a raw body as a named part of the bearer's step.

        Raises:
            InvalidName: the name could not be kept.
            InvalidParameter: the name is the step's own.
            InvalidText, FileSubmitRefused, TooLarge: as for :meth:`submit`.
            RunFinished: the run has ended.
        """
        check_name(name)
        if name == grant.name:
            raise InvalidParameter(f"a part may not bear the name of its own step, {name!r}")
        value = await self._text(grant, raw, _extra(grant))
        await self._append(grant, _Event.part(name, value))

    async def _text(self, grant: Grant, raw: bytes, extra: dict[str, JsonValue]) -> str:
        text = decode_body(raw)
        named = self._file_bodies.named_by(text)
        return text if named is None else decode_body(await self._file_bodies.read(named, grant, extra))

    async def _final(self, grant: Grant, value: JsonValue, verdict: Verdict) -> None:
        await self._append(grant, _Event.final(grant.name, value, verdict))

    async def _append(self, grant: Grant, event: "_Event") -> None:
        rendered = render_output(event.value, event.kind)
        at = wire_time(self._clock())
        output = _new_output(grant, event, at)

        def work(stores: WriteStores) -> Submitted:
            run = stores.runs.lock(grant.run_id)
            if run.status.is_terminal:
                raise RunFinished(run.id, run.status)
            counts = stores.dispatches.count(grant.run_id, grant.name, grant.occurrence)
            body_id = stores.outputs.add_body(grant.run_id, rendered.body)
            answer = _answer(output, event.kind, rendered, body_id)
            answer = answer._replace(attempts=counts.attempts, occurrences=counts.occurrences)
            seq = stores.outputs.append(output, rendered, body_id)
            own = (grant.step_id, event.type, event.name)
            # A late Final of an older attempt takes the file from nobody.
            if grant.projection_root is not None and stores.outputs.find_newest(*own) == seq:
                stores.outputs.detach_files(*own)
            projections = stores.projections(grant.task_id, grant.run_id)
            if event.status is None:
                projections.put_part(answer, grant.name, seq)
            else:
                projections.put_step(answer, grant.name, seq)
                stores.dispatches.complete(grant.step_id, grant.attempt, event.status, at)
            stores.runs.touch(grant.run_id, at)
            return Submitted(grant, answer, seq, event.value)

        await self._materializer.materialize(await self._database.write(work))


def require_bound(grant: Grant, step_id: str | None, attempt: int | None = None) -> None:
    """Hold a request to what its bearer is bound to.

    Raises:
        Forbidden: it names another step or attempt.
    """
    if step_id is not None and step_id != grant.step_id:
        raise Forbidden(f"this handle is bound to the step {grant.step_id}, not to the one that the request names")
    if attempt is not None and attempt != grant.attempt:
        raise Forbidden(f"this handle is bound to attempt {grant.attempt}, not to attempt {attempt}")


class _Event(NamedTuple):
    """A Final or a part that is to be kept; only a Final has a status."""

    type: str
    kind: Kind
    name: str
    value: JsonValue
    ok: bool | None
    status: StepStatus | None

    @classmethod
    def final(cls, name: str, value: JsonValue, verdict: Verdict) -> "_Event":
        return cls("final", Kind.STEP, name, value, verdict.ok, verdict.status)

    @classmethod
    def part(cls, name: str, value: JsonValue) -> "_Event":
        return cls("artifact", Kind.ARTIFACT, name, value, None, None)


def _extra(grant: Grant) -> dict[str, JsonValue]:
    """The keys of the unfiltered view that are the server's own switches."""
    extra: Any = parse_json(grant.view).get("extra")
    return extra or {}


def _new_output(grant: Grant, event: _Event, at: str) -> NewOutput:
    shape: dict[str, JsonValue] = {"type": event.type, "content": {"kind": "inline"}}
    shape |= {"name": event.name} if event.kind is Kind.ARTIFACT else {"ok": event.ok}
    return NewOutput(
        id=new_output_id(),
        run_id=grant.run_id,
        step_id=grant.step_id,
        step_ref=grant.step_ref,
        step_name=grant.name,
        attempt=grant.attempt,
        occurrence=grant.occurrence,
        type=event.type,
        name=event.name,
        producer=event.name if event.kind is Kind.ARTIFACT else grant.step_ref,
        ok=event.ok,
        event=compact_json(shape).decode(),
        parent_refs="[]",
        created_at=at,
    )


def _answer(output: NewOutput, kind: Kind, rendered: RenderedOutput, body_id: int) -> Answer:
    return Answer(
        name=output.name,
        kind=kind,
        source=Source.DATA_PLANE,
        ok=output.ok,
        step_id=output.step_id,
        step_ref=output.step_ref,
        attempt=output.attempt,
        attempts=None,
        occurrence=output.occurrence,
        occurrences=None,
        submitted_at=output.created_at,
        body_id=body_id,
        encoding=rendered.encoding,
        json_size=rendered.json_size,
        json_sha256=rendered.json_sha256,
        raw_size=rendered.raw_size,
        raw_sha256=rendered.raw_sha256,
        preview=rendered.preview,
        truncated=rendered.truncated,
    )
