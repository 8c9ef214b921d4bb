"""Answers: every form of a value has the size and digest of the bytes that are served for it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.answers import (
    Answer,
    BodyForm,
    Place,
    file_form,
    form_of,
    json_form,
    pointer_json,
    raw_body,
    raw_form,
    render_output,
    rendered_value,
    split_summary,
    stored_form,
    summarize,
    summary_json,
    value_of,
)
from app.domain.records import Kind, Source
from app.domain.rendering import Narrowing, preview_of, render_json, sha256_hex, text_bytes
from app.domain.values import parse_json
from tests.unit.strategies import any_text, json_values, names

PLACE = Place("T-1", "R-1")


def answer_of(value: Any, kind: Kind = Kind.STEP, name: str = "planner") -> tuple[Answer, bytes]:
    """A value as the store answers it: everything about it, and its stored body."""
    rendered = render_output(value, kind)
    about = rendered._asdict()
    body = about.pop("body")
    return (
        Answer(
            name=name,
            kind=kind,
            source=Source.DATA_PLANE,
            ok=True if kind is Kind.STEP else None,
            step_id="ST-1",
            step_ref="planner",
            attempt=1,
            attempts=1,
            occurrence=1,
            occurrences=1,
            submitted_at="2026-01-01T00:00:00.000Z",
            body_id=1,
            **about,
        ),
        body,
    )


def agrees(form: BodyForm, body: bytes) -> bool:
    """Whether a form says of its bytes what is true."""
    told = form.preview is None or form.preview == preview_of(body)
    return told and (form.size_bytes, form.sha256) == (len(body), sha256_hex(body))


@given(json_values, st.sampled_from(Kind))
def test_every_form_is_of_its_bytes(value: Any, kind: Kind) -> None:
    """Size, digest and preview of a form are those of the bytes made from the stored body; the value survives."""
    answer, body = answer_of(value, kind)
    assert agrees(json_form(answer), rendered_value(answer.encoding, body))
    assert agrees(raw_form(answer), raw_body(answer, body))
    stored = stored_form(answer)
    assert agrees(stored, raw_body(answer, body) if kind is Kind.ARTIFACT else rendered_value(answer.encoding, body))
    assert stored.preview is not None
    assert rendered_value(answer.encoding, body) == render_json(value)
    assert raw_body(answer, body) == (text_bytes(value) if isinstance(value, str) else render_json(value))
    assert render_json(value_of(answer.encoding, body)) == render_json(value)
    assert answer.is_text == isinstance(value, str)


@pytest.mark.parametrize(
    ("value", "kind", "name", "stored", "raw"),
    [
        ("text", Kind.STEP, "a.md", "application/json", "text/plain; charset=utf-8"),
        ({"a": 1}, Kind.STEP, "a", "application/json", "application/json"),
        ("text", Kind.ARTIFACT, "a.md", "text/markdown; charset=utf-8", "text/plain; charset=utf-8"),
        ("text", Kind.ARTIFACT, "a.json", "application/json", "text/plain; charset=utf-8"),
        ([1], Kind.ARTIFACT, "a.html", "text/plain; charset=utf-8", "application/json"),
    ],
)
def test_a_form_has_its_type(value: Any, kind: Kind, name: str, stored: str, raw: str) -> None:
    """JSON is JSON, a string's own bytes are text, and an artifact is what its name says."""
    answer, _ = answer_of(value, kind, name)
    assert stored_form(answer).content_type == stored
    assert raw_form(answer).content_type == raw
    assert json_form(answer).content_type == "application/json"


def test_a_file_is_a_form() -> None:
    """A Final's file is Markdown, an artifact's what its name says, with the path it lies at."""
    step, _ = answer_of(1)
    part, _ = answer_of("{}", Kind.ARTIFACT, "a.json")
    assert file_form(step, "/x/planner.md", 3, "ab") == BodyForm(
        3, "ab", "text/markdown; charset=utf-8", None, "/x/planner.md"
    )
    assert file_form(part, "/x/a.json", 3, "ab").content_type == "application/json"
    assert agrees(form_of(b"x" * 600, "text/plain"), b"x" * 600)


@given(names, st.none() | any_text.filter(lambda text: text.isprintable()), st.sampled_from(["", "http://h/base"]))
def test_a_summary_splits_at_its_url(name: str, path: str | None, base_url: str) -> None:
    """A stored summary without a base becomes the answered one by putting the base between its halves."""
    answer, body = answer_of('"content_url":"/', name=name)
    answer = answer._replace(file_path='/"content_url":"/x')
    form = form_of(rendered_value(answer.encoding, body), "application/json")._replace(file_path=answer.file_path)
    narrowing = Narrowing(path=path)
    head, tail = split_summary(summarize(answer, form, PLACE, narrowing))
    summary = summarize(answer, form, PLACE._replace(base_url=base_url), narrowing)
    assert head + base_url.encode() + tail == summary_json(summary)
    assert parse_json(summary_json(summary))["name"] == name


def test_a_summary_has_its_fields_in_order() -> None:
    """The wire shape is the contract's; a path that is absent is left out, what is unknown is null."""
    answer, _ = answer_of({"a": 1})
    shown = parse_json(summary_json(summarize(answer, stored_form(answer), PLACE)))
    assert list(shown) == [
        "name",
        "size_bytes",
        "sha256",
        "content_type",
        "source",
        "content_url",
        "preview",
        "truncated",
        "kind",
        "ok",
        "step_id",
        "step_ref",
        "attempt",
        "attempts",
        "occurrence",
        "occurrences",
        "submitted_at",
    ]
    assert shown["content_url"] == "/v1/tasks/T-1/runs/R-1/steps/planner/content"


@given(names, names, st.sampled_from(["", "https://h/base"]), st.booleans())
def test_a_pointer_is_cut_from_a_summary_without_parsing_it(
    name: str, text: str, base_url: str, has_file: bool
) -> None:
    """Whatever name, path and preview hold, the pointer is the summary's own fields, and no more."""
    answer, _ = answer_of(text, name=name)
    form = stored_form(answer)._replace(file_path=f"/files/{text}" if has_file else None)
    summary = summarize(answer, form, PLACE._replace(base_url=base_url))
    pointer = parse_json(pointer_json(summary_json(summary)))
    fields = ("name", "size_bytes", "file_path", "content_url", "sha256")
    assert pointer == {field: item for field in fields if (item := getattr(summary, field)) is not None}
    assert list(pointer) == [field for field in fields if field in pointer]


def test_a_summary_with_a_base_is_not_split() -> None:
    """What already names a host cannot be stored."""
    answer, _ = answer_of(1)
    with pytest.raises(ValueError, match="not found"):
        split_summary(summarize(answer, stored_form(answer), PLACE._replace(base_url="http://h")))
