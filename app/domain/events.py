"""Events: an event cut into what is kept of it, and put together again.

The invariant: cutting and joining give the event that was sent; its value is kept once, as the body.
"""

from typing import Any, NamedTuple

from app.domain.limits import LISTED_CHARS
from app.domain.records import Artifact, Final, Kind, Partial, Progress, ProgressNote, content_value
from app.domain.values import JsonValue


class CutEvent(NamedTuple):
    """An event without its value, and the value."""

    shape: dict[str, Any]
    value: JsonValue


def cut_event(event: Progress | Partial | Artifact | Final) -> CutEvent:
    """Cut an event. The value of a progress is what it says, and stays in the shape as well."""
    if isinstance(event, Progress):
        return CutEvent(event.model_dump(exclude_none=True), {"stage": event.stage, "note": event.note})
    if isinstance(event, Partial):
        return CutEvent({"type": event.type}, event.chunk)
    # The value is left out before the dump: it would be copied, however large it is.
    shape = event.model_dump(exclude_none=True, exclude=_INLINE_VALUE)
    return CutEvent(shape, content_value(event.content))


_INLINE_VALUE: Any = {"content": {"value"}}


def join_event(cut: CutEvent) -> dict[str, Any]:
    """Put an event together again, as it was sent."""
    content = cut.shape.get("content")
    if cut.shape["type"] == "partial":
        return {**cut.shape, "chunk": cut.value}
    if content is not None and content["kind"] == "inline":
        return {**cut.shape, "content": {**content, "value": cut.value}}
    return cut.shape


def progress_note(event: Progress, at: str) -> ProgressNote:
    """Write a sign of life as lists show it: they hold many, so a long text is cut."""
    return ProgressNote(stage=_cut(event.stage), note=None if event.note is None else _cut(event.note), at=at)


def _cut(text: str) -> str:
    return text if len(text) <= LISTED_CHARS.value else text[: LISTED_CHARS.value] + "…"


def kind_of_event(event_type: str) -> Kind:
    """Tell how an event's value is served: a part as itself, all else as rendered JSON."""
    return Kind.ARTIFACT if event_type == "artifact" else Kind.STEP
