"""Records: the wire shapes, and the little that they compute."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from app.domain.records import (
    FileRef,
    Inline,
    OutputEvent,
    RunOutcome,
    RunStatus,
    content_value,
    elapsed_ms,
    wire_time,
)

EVENTS: TypeAdapter[Any] = TypeAdapter(OutputEvent)
INLINE = {"kind": "inline", "value": None}


def test_four_statuses_are_terminal() -> None:
    """A run that is pending or running may still change."""
    assert [status.value for status in RunStatus if status.is_terminal] == [
        "done",
        "failed",
        "interrupted",
        "cancelled",
    ]


def test_a_result_of_null_is_a_result() -> None:
    """Null is told from none at all."""
    assert RunOutcome.model_validate({"status": "done", "result": None}).has_result
    assert not RunOutcome.model_validate({"status": "done"}).has_result


@pytest.mark.parametrize(
    "event",
    [
        {"type": "progress", "stage": "plan"},
        {"type": "progress", "stage": "plan", "note": "half way"},
        {"type": "partial", "chunk": [1]},
        {"type": "artifact", "name": "a.md", "content": INLINE},
        {"type": "final", "content": {"kind": "file_ref", "path": "/x", "size_hint": 5}, "ok": False},
    ],
)
def test_an_event_comes_back_as_it_went(event: dict[str, Any]) -> None:
    """The four kinds of events are told apart by ``type``, their contents by ``kind``."""
    assert EVENTS.validate_python(event).model_dump() == event


@pytest.mark.parametrize(
    "event",
    [
        {"type": "finale"},
        {"type": "final", "content": INLINE},
        {"type": "final", "content": INLINE, "ok": True, "x": 1},
        {"type": "artifact", "name": "", "content": INLINE},
        {"type": "final", "content": {"kind": "file_ref"}, "ok": True},
        {"type": "partial"},
    ],
)
def test_another_shape_is_no_event(event: dict[str, Any]) -> None:
    """A missing, an unknown and an empty field are refused."""
    with pytest.raises(ValidationError):
        EVENTS.validate_python(event)


def test_a_content_stands_for_a_value() -> None:
    """Inline content is its value, a file that stays elsewhere is its locator."""
    assert content_value(Inline(value=[1])) == [1]
    assert content_value(FileRef(path="/x", mime="text/plain")) == {
        "file_ref": "/x",
        "mime": "text/plain",
        "size_hint": None,
    }


def test_a_time_is_utc_with_milliseconds() -> None:
    """Whatever zone a moment is in, its wire form is UTC; what is below a millisecond is cut."""
    moment = datetime(2026, 1, 2, 3, 4, 5, 6_999, tzinfo=timezone(timedelta(hours=9)))
    assert wire_time(moment) == "2026-01-01T18:04:05.006Z"


@given(st.datetimes(min_value=datetime(2000, 1, 1), timezones=st.just(UTC)), st.integers(-(10**6), 10**9))  # noqa: DTZ001 -- the zone is given beside it
def test_elapsed_time_never_goes_back(start: datetime, elapsed: int) -> None:
    """Milliseconds between two wire times are exact, and none where the clock went back."""
    start = start.replace(year=2020, microsecond=start.microsecond // 1000 * 1000)
    end = start + timedelta(milliseconds=elapsed)
    assert elapsed_ms(wire_time(start), wire_time(end)) == max(0, elapsed)
