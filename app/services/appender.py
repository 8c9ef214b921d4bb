"""The appender: the one place where a worker's event becomes an output.

The invariant: the run is judged in the transaction that keeps the output, and the output is acknowledged after it.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from app.domain.answers import Answer, Origin, RenderedOutput, answer_with, render_output
from app.domain.errors import Forbidden, PartNameTaken, RunFinished, TooManyParts, UnknownParent
from app.domain.events import CutEvent, cut_event, kind_of_event, progress_note
from app.domain.grants import Grant
from app.domain.ids import new_output_id
from app.domain.limits import PARTS
from app.domain.placement import find_namesake, is_device
from app.domain.records import Artifact, Final, OutputEvent, Progress, Source, StepStatus, wire_time
from app.domain.rendering import compact_json
from app.observability import OUTPUT_BYTES, OUTPUTS
from app.services.materializer import Materializer, Submitted
from app.services.threads import run_beside
from app.storage.database import Database
from app.storage.outputs import NewOutput
from app.storage.stores import WriteStores


class Emission(NamedTuple):
    """An event about to be kept."""

    event: OutputEvent
    producer: str
    status: StepStatus | None = None
    parent_refs: Sequence[str] = ()
    traceparent: str | None = None
    size_bytes: int = 0
    """How large the value is, as far as known: rendering a long one would keep everybody waiting."""


class Appender:
    """Keeps events.

    Args:
        database: where outputs are kept.
        materializer: writes Finals and parts to files as well.
        clock: tells the time, with its zone.
    """

    def __init__(self, database: Database, materializer: Materializer, *, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._materializer = materializer
        self._clock = clock

    async def append(self, grant: Grant, emission: Emission) -> str:
        """Keep an event of the bearer's attempt and return the id of the output.

        Raises:
            RunFinished: the run has ended.
            UnknownParent: a parent ref names no output.
            PartNameTaken: the file of a part would be another one of its step, on some disk.
            TooManyParts: the step has as many parts as are taken, under other names.
        """
        cut = cut_event(emission.event)
        kind = kind_of_event(emission.event.type)
        rendered = await run_beside(emission.size_bytes, render_output, cut.value, kind)
        output = _new_output(grant, emission, cut, wire_time(self._clock()))

        def work(stores: WriteStores) -> Submitted:
            require_alive(stores, grant)
            unknown = stores.outputs.find_unknown(emission.parent_refs)
            if unknown is not None:
                raise UnknownParent(f"parent_refs names {unknown[:100]!r}, which no output is")
            if isinstance(emission.event, Artifact):
                _require_room(stores, grant, emission.event.name)
                require_own_file(stores, grant, emission.event.name)
            counts = stores.dispatches.count(grant.run_id, grant.name, grant.occurrence)
            body_id = stores.outputs.add_body(grant.run_id, rendered.body)
            answer = _answer(output, rendered, body_id)
            answer = answer._replace(attempts=counts.attempts, occurrences=counts.occurrences)
            seq = stores.outputs.append(output, rendered, body_id)
            self._project(stores, grant, emission, Submitted(grant, answer, seq, cut.value))
            stores.runs.touch(grant.run_id, output.created_at)
            return Submitted(grant, answer, seq, cut.value)

        submitted = await self._database.write(work)
        OUTPUTS.labels(emission.event.type).inc()
        OUTPUT_BYTES.inc(len(rendered.body))
        if isinstance(emission.event, Final | Artifact):
            await self._materializer.materialize(submitted)
        return output.id

    def _project(self, stores: WriteStores, grant: Grant, emission: Emission, submitted: Submitted) -> None:
        """Let a Final or a part answer for its name; a sign of life or a piece never does."""
        event, answer, seq = emission.event, submitted.answer, submitted.output_seq
        if isinstance(event, Progress):
            progress = progress_note(event, answer.submitted_at or "")
            stores.dispatches.note_progress(grant.step_id, grant.attempt, progress)
        if not isinstance(event, Final | Artifact):
            return
        own = (grant.step_id, event.type, answer.name)
        # A late Final of an older attempt takes the file from nobody. An attempt without a root may follow one with.
        has_files = grant.projection_root is not None or grant.attempt > 1
        if has_files and stores.outputs.find_newest(*own) == seq:
            stores.outputs.detach_files(*own)
        projections = stores.projections(grant.task_id, grant.run_id)
        if isinstance(event, Artifact):
            projections.put_part(answer, grant.name, seq)
            return
        projections.put_step(answer, grant.name, seq)
        status = emission.status or (StepStatus.PASSED if event.ok else StepStatus.BLOCKED)
        stores.dispatches.complete(grant.step_id, grant.attempt, status, answer.submitted_at or "")


def require_bound(grant: Grant, step_id: str | None, attempt: int | None = None) -> None:
    """Hold a request to what its bearer is bound to.

    Raises:
        Forbidden: it names another step or attempt.
    """
    if step_id is not None and step_id != grant.step_id:
        raise Forbidden(f"this handle is bound to the step {grant.step_id}, not to the one that the request names")
    if attempt is not None and attempt != grant.attempt:
        raise Forbidden(f"this handle is bound to attempt {grant.attempt}, not to attempt {attempt}")


def require_alive(stores: WriteStores, grant: Grant) -> None:
    """Hold a worker's write to a run that has not ended, and keep others from ending it meanwhile.

    Raises:
        RunFinished: it has.
    """
    run = stores.runs.lock(grant.run_id)
    if run.status.is_terminal:
        raise RunFinished(run.id, run.status)


def require_own_file(stores: WriteStores, grant: Grant, name: str) -> None:
    """Hold a part to a name whose file is no other one of its step, on whatever disk.

    It is judged whether or not there is a root, so that a run can move between disks.

    Raises:
        PartNameTaken: it is.
    """
    parts = stores.outputs.list_part_names(grant.step_id)
    if name in parts:
        return  # judged when it first came
    taken = find_namesake(name, grant.name, parts)
    if taken is not None or is_device(name):
        raise PartNameTaken(name, taken)


def _require_room(stores: WriteStores, grant: Grant, name: str) -> None:
    """Hold a step to the parts that it may have; a new one of a name takes the place of that name's last."""
    if stores.projections(grant.task_id, grant.run_id).count_parts(grant.name, besides=name) >= PARTS.value:
        raise TooManyParts(grant.name, PARTS.value)


def _new_output(grant: Grant, emission: Emission, cut: CutEvent, at: str) -> NewOutput:
    event = emission.event
    return NewOutput(
        id=new_output_id(),
        run_id=grant.run_id,
        step_id=grant.step_id,
        step_ref=grant.step_ref,
        step_name=grant.name,
        attempt=grant.attempt,
        occurrence=grant.occurrence,
        type=event.type,
        name=event.name if isinstance(event, Artifact) else grant.name,
        producer=emission.producer,
        ok=event.ok if isinstance(event, Final) else None,
        event=compact_json(cut.shape).decode(),
        parent_refs=compact_json(list(emission.parent_refs)).decode(),
        traceparent=emission.traceparent,
        created_at=at,
    )


def _answer(output: NewOutput, rendered: RenderedOutput, body_id: int) -> Answer:
    origin = Origin(output.ok, output.step_id, output.step_ref, output.attempt, output.occurrence, output.created_at)
    kind = kind_of_event(output.type)
    return answer_with(rendered, body_id, name=output.name, kind=kind, source=Source.DATA_PLANE, origin=origin)
