"""Results: what a finished run's ``result_ref`` answers with.

The invariant: a part of it answers only for a name that the data plane has nothing of.
"""

from collections.abc import Sequence
from typing import NamedTuple

from app.domain.answers import Answer, Origin, RenderedOutput, answer_with, render_output
from app.domain.ids import CTX_NAME, is_name
from app.domain.naming import StepNaming, result_values
from app.domain.records import Kind, RunOutcome, Source
from app.domain.values import JsonValue
from app.storage.runs import RunState
from app.storage.stores import WriteStores


def outcome_digest(outcome: RunOutcome) -> str:
    """Digest an outcome: finishing again with the same one is no conflict."""
    fields = {"status": outcome.status, "error": outcome.error}
    rendered = render_output(fields | ({"result": outcome.result} if outcome.has_result else {}), Kind.STEP)
    return rendered.json_sha256


class RenderedResult(NamedTuple):
    """A result and its parts, rendered: the whole, and each name that a part may answer for."""

    whole: RenderedOutput
    parts: dict[str, RenderedOutput]
    dispatched: frozenset[str]


def render_result(naming: StepNaming | None, dispatched: Sequence[str], result: JsonValue) -> RenderedResult:
    """Render a result before the transaction that keeps it: no other write then waits for the rendering.

    A key that can be no name is in the whole alone.
    """
    values = result_values(naming, dispatched, result)
    parts = {name: render_output(value, Kind.STEP) for name, value in values.items() if is_name(name)}
    return RenderedResult(render_output(result, Kind.STEP), parts, frozenset(dispatched))


def keep_result(stores: WriteStores, run: RunState, rendered: RenderedResult) -> int:
    """Keep a result whole, and let its parts answer for the steps that the data plane has nothing of.

    Returns:
        The id of the body that is the whole.
    """
    projections = stores.projections(run.task_id, run.id)
    answered = frozenset(projections.list_answered())
    parts = {name: part for name, part in rendered.parts.items() if name not in answered}
    # Many steps may point at one part: its body is kept once.
    by_digest = {output.json_sha256: output.body for output in (rendered.whole, *parts.values())}
    body_ids = dict(zip(by_digest, stores.outputs.add_bodies(run.id, list(by_digest.values())), strict=True))
    projections.put_results([_answer(name, part, body_ids[part.json_sha256]) for name, part in parts.items()])
    whole_id = body_ids[rendered.whole.json_sha256]
    projections.put_ctx(_answer(CTX_NAME, rendered.whole, whole_id))
    return whole_id


def _answer(name: str, rendered: RenderedOutput, body_id: int) -> Answer:
    return answer_with(rendered, body_id, name=name, kind=Kind.STEP, source=Source.RESULT_REF, origin=Origin())
