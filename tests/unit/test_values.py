"""Values: text becomes a JSON value, exactly or not at all."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given

from app.domain.errors import InvalidJson, NestedTooDeep
from app.domain.rendering import render_json
from app.domain.values import MAX_DEPTH, Found, kind_of, parse_json, parse_rendered
from tests.unit.strategies import deep_values, json_values, nested

HUGE = "9" * 5_000


@given(json_values)
def test_what_the_standard_library_writes_is_read(value: Any) -> None:
    """Any JSON text gives the value that it stands for, of the same types."""
    text = json.dumps(value)
    read = parse_json(text)
    assert read == value
    assert parse_json(text.encode()) == value
    assert render_json(read) == render_json(value)


@given(json_values | deep_values)
def test_what_was_rendered_is_read_without_judging_it_again(value: Any) -> None:
    """The quick reader of our own bytes gives what the strict one gives."""
    body = render_json(value)
    assert parse_rendered(body) == value
    assert render_json(parse_rendered(body)) == body


@pytest.mark.parametrize(
    ("text", "expect"),
    [
        ("9" * 300, 10**300 - 1),
        ("-" + "9" * 4_300, -(10**4_300 - 1)),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ("0." + "1" * 400, 0.1111111111111111),
        ("1e400000", None),
        ("-1E+999", None),
        (f"[1e5, {'1' * 301}, 1.5]", [100000.0, int("1" * 301), 1.5]),
        ('"1e999"', "1e999"),
        ('"\\ud800"', "\ud800"),
    ],
)
def test_numbers_are_exact_or_refused(text: str, expect: Any) -> None:
    """An integer keeps every digit; a number that no float can hold is refused, never rounded to infinity."""
    if expect is None:
        with pytest.raises(InvalidJson, match="too large for a float"):
            parse_json(text)
    else:
        assert parse_json(text) == expect


def test_an_integer_of_any_length_is_exact() -> None:
    """Beyond what ``int()`` reads, an integer is a Decimal that writes the same digits, in linear time."""
    value = parse_json(f"[{HUGE}, -{HUGE}]")
    assert value == [Decimal(HUGE), Decimal("-" + HUGE)]
    assert render_json(value) == f"[\n  {HUGE},\n  -{HUGE}\n]".encode()
    assert parse_rendered(render_json(value)) == value
    million = "1" * 1_000_000
    assert render_json(parse_json(million)) == million.encode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "this is not JSON"),
        ("{", "this is not JSON"),
        ("NaN", "NaN is no JSON value"),
        ("[-Infinity]", "-Infinity is no JSON value"),
        ("'a'", "this is not JSON"),
        ("1 2", "this is not JSON"),
        (b"\xff", "not UTF-8: invalid start byte at byte 0"),
        (b'"ab\xed\xa0\x80"', "not UTF-8"),
    ],
)
def test_what_is_no_json_is_refused(text: str | bytes, message: str) -> None:
    """The refusal says what is wrong, whatever the text."""
    with pytest.raises(InvalidJson, match=message):
        parse_json(text)


@pytest.mark.parametrize("keys", [[None], ["k"], [None, "k"]])
def test_a_value_nests_exactly_as_deep_as_it_may(keys: list[str | None]) -> None:
    """``MAX_DEPTH`` levels are a value; one more is refused."""
    value = nested(1, (keys * MAX_DEPTH)[:MAX_DEPTH])
    assert parse_json(render_json(value)) == value
    with pytest.raises(NestedTooDeep, match=f"deeper than {MAX_DEPTH} levels"):
        parse_json(b"[" + render_json(value) + b"]")


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 100_000 + "]" * 100_000, "[" * 300_000])
def test_a_bound_is_told_before_the_text_is_judged(text: str) -> None:
    """What nests deeper than any stack is refused for that."""
    with pytest.raises(NestedTooDeep, match="deeper than 200 levels"):
        parse_json(text, 200)


def test_long_and_short_texts_are_read_alike() -> None:
    """A long text, which is parsed in slices, has the exact numbers and the refusals of a short one."""
    numbers = '[{"a": 1e308, "b": -0.0, "c": [12345678901234567890, 1.5]}, ' + "9" * 5_000 + "]"
    long = parse_json("[" + " " * 300_000 + numbers + "]")
    assert repr(long) == repr([parse_json(numbers)])
    for wrong in ("1e999", "NaN", "[1,]", '{"a" 1}'):
        with pytest.raises(InvalidJson):
            parse_json("[" + " " * 300_000 + wrong + "]")
    assert repr(parse_rendered(b"[" + b" " * 300_000 + b"7" * 5_000 + b"]")) == repr([parse_json("7" * 5_000)])


def test_breadth_is_no_depth() -> None:
    """Many containers side by side, and brackets in a string, nest no deeper than they do."""
    many: list[Any] = [[], {}] * MAX_DEPTH
    assert parse_json(json.dumps(many)) == many
    assert parse_json(json.dumps("[" * 1000)) == "[" * 1000


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({}, "object"),
        ([], "array"),
        ("", "string"),
        (True, "boolean"),
        (None, "null"),
        (1, "number"),
        (1.5, "number"),
        (Decimal(HUGE), "number"),
    ],
)
def test_a_value_has_one_kind(value: Any, kind: str) -> None:
    """The six kinds are JSON's; a boolean is no number."""
    assert kind_of(value) == kind


def test_a_null_that_is_there_is_found() -> None:
    """A found null is not nothing."""
    assert Found(None) is not None
    assert Found(None).value is None
