"""Events: cut and joined, they are what was sent."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from app.domain.events import cut_event, join_event, kind_of_event
from app.domain.records import Kind, OutputEvent
from app.domain.rendering import compact_json, render_json
from app.domain.values import parse_json
from tests.unit.strategies import json_values, unicode_text

EVENTS: TypeAdapter[Any] = TypeAdapter(OutputEvent)

inline = st.builds(lambda value: {"kind": "inline", "value": value}, json_values)
file_refs = st.builds(
    lambda path, more: {"kind": "file_ref", "path": path, **more},
    unicode_text,
    st.fixed_dictionaries({}, optional={"mime": unicode_text, "size_hint": st.integers(0, 2**40)}),
)
events = st.one_of(
    st.builds(
        lambda stage, more: {"type": "progress", "stage": stage, **more},
        unicode_text,
        st.sampled_from([{}, {"note": "n"}]),
    ),
    st.builds(lambda chunk: {"type": "partial", "chunk": chunk}, json_values),
    st.builds(
        lambda name, content: {"type": "artifact", "name": name, "content": content}, unicode_text.filter(bool), inline
    ),
    st.builds(lambda content, ok: {"type": "final", "content": content, "ok": ok}, inline | file_refs, st.booleans()),
)


@given(events)
def test_a_joined_event_is_the_one_that_was_sent(event: dict[str, Any]) -> None:
    """Cutting and joining lose nothing, also when both parts went through the store as JSON."""
    cut = cut_event(EVENTS.validate_python(event))
    stored = cut._replace(shape=parse_json(compact_json(cut.shape)), value=parse_json(render_json(cut.value)))
    assert render_json(join_event(cut)) == render_json(join_event(stored)) == render_json(event)


@given(json_values)
def test_a_value_is_kept_once(value: Any) -> None:
    """The shape of an event holds no value that travels inside it."""
    for event in (
        {"type": "partial", "chunk": value},
        {"type": "final", "content": {"kind": "inline", "value": value}, "ok": True},
    ):
        cut = cut_event(EVENTS.validate_python(event))
        assert render_json(cut.value) == render_json(value)
        assert len(compact_json(cut.shape)) < 70


def test_an_artifact_is_served_as_itself() -> None:
    """Of the four kinds of events only an artifact is a part."""
    kinds = [kind_of_event(event_type) for event_type in ("progress", "partial", "artifact", "final")]
    assert kinds == [Kind.STEP, Kind.STEP, Kind.ARTIFACT, Kind.STEP]
