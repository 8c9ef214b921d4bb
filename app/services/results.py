"""Results: what a finished run's ``result_ref`` answers with.

The invariant: a part of it answers only for a name that the data plane has nothing of.
"""

from app.domain.answers import Answer, render_output
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


def keep_result(stores: WriteStores, run: RunState, naming: StepNaming | None, result: JsonValue) -> int:
    """Keep a result whole, and let its parts answer for the steps that the data plane has nothing of."""
    projections = stores.projections(run.task_id, run.id)
    kept: dict[str, int] = {}

    def answer(name: str, value: JsonValue) -> Answer:
        rendered = render_output(value, Kind.STEP)
        if rendered.json_sha256 not in kept:  # many steps may point at one part: its body is kept once
            kept[rendered.json_sha256] = stores.outputs.add_body(run.id, rendered.body)
        return Answer(
            name=name,
            kind=Kind.STEP,
            source=Source.RESULT_REF,
            ok=None,
            step_id=None,
            step_ref=None,
            attempt=None,
            attempts=None,
            occurrence=None,
            occurrences=None,
            submitted_at=None,
            body_id=kept[rendered.json_sha256],
            encoding=rendered.encoding,
            json_size=rendered.json_size,
            json_sha256=rendered.json_sha256,
            raw_size=rendered.raw_size,
            raw_sha256=rendered.raw_sha256,
            preview=rendered.preview,
            truncated=rendered.truncated,
        )

    answered = frozenset(projections.list_answered())
    for name, value in result_values(naming, stores.dispatches.list_names(run.id), result).items():
        if name not in answered and is_name(name):  # a key that can be no name is still in the whole
            projections.put_result(answer(name, value))
    whole = answer(CTX_NAME, result)
    projections.put_ctx(whole)
    return whole.body_id
