"""Slices: long JSON parsed in short calls is what ``json.loads`` makes of it."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.domain.slices import OverBoundError, parse_sliced
from tests.unit.strategies import json_values

DECODER = json.JSONDecoder()
BOUNDS = {"most_depth": 200, "most_values": 10_000}
spaces = st.text(" \t\n\r", max_size=2)
scraps = st.lists(
    st.sampled_from(
        [
            *'[]{},:"\\ \n',
            "1",
            "-",
            "1.5e3",
            "null",
            "nul",
            "NaN",
            '"a"',
            '"a":',
            '"b" : ',
            '"\\""',
            '"\\',
            "[1,2]",
            '{"a":1}',
        ]
    ),
    max_size=14,
).map("".join)


def judged(parse: Any, text: str) -> tuple[bool, Any]:
    try:
        return True, repr(parse(text))  # tells -0.0 from 0, and the order of keys
    except ValueError:
        return False, None


def sliced(slice_chars: int) -> Any:
    return lambda text: parse_sliced(text, DECODER, slice_chars=slice_chars, **BOUNDS)


@given(scraps, st.integers(1, 12))
@example('{"k": -[1,2]}', 1)
@example("[1,]", 1)
@example("[,1]", 1)
@example("[[1,2] [3]]", 1)
@example("[[1,2],[3],]", 1)
@example('{"a":1,"a":[2,3],"a":4,"b":5}', 1)
@example('["a,b]","c"', 1)
@example("[1,2]]", 1)
@example("1,2", 1)
@example("{[1,2]:3}", 1)
@example('{"a":[1,2],"a"}', 1)
@example("[                    ]", 3)
@example("{                    }", 3)
def test_scraps_are_judged_alike(text: str, slice_chars: int) -> None:
    """Whatever brackets, quotes and commas stand together: what is no JSON is refused, and all else is equal."""
    assert judged(sliced(slice_chars), text) == judged(json.loads, text)


@given(json_values, spaces, st.integers(1, 40), st.booleans())
def test_values_are_read_alike(value: Any, space: str, slice_chars: int, is_ascii: bool) -> None:
    """Any value, however it is spaced and escaped, is read back as itself."""
    text = json.dumps(value, ensure_ascii=is_ascii, separators=(f"{space},{space}", f"{space}:{space}"))
    assert judged(sliced(slice_chars), space + text + space) == judged(json.loads, text)


def test_no_call_sees_more_than_two_slices_and_a_string() -> None:
    """However a value is built, the decoder is given about a slice at a time."""
    seen: list[int] = []

    class Watched(json.JSONDecoder):
        def decode(self, s: str) -> Any:  # type: ignore[override]  # its second argument is private
            seen.append(len(s))
            return super().decode(s)

    chain: Any = 0
    for _ in range(100):
        chain = [*[1] * 30, chain, *[2] * 30]
    values: tuple[Any, ...] = (
        list(range(5_000)), [[]] * 5_000, [{"a": at, "b": [at]} for at in range(2_000)], chain,
        {f"k{at}": {"x": [at] * 50} for at in range(200)}, {"value": {"rows": [[1, 2, 3]] * 2_000}},
    )  # fmt: skip
    for value in values:
        seen.clear()
        text = json.dumps(value)
        assert parse_sliced(text, Watched(), slice_chars=100, most_depth=200, most_values=100_000) == value
        assert max(seen) < 400, len(text)


@pytest.mark.parametrize("slice_chars", [1, 1_000_000])
def test_the_bounds_are_exact(slice_chars: int) -> None:
    """The deepest and the most that are taken are taken, and one more is told by its kind."""
    parse = sliced(slice_chars)
    assert parse("[" * 200 + "]" * 200) == json.loads("[" * 200 + "]" * 200)
    with pytest.raises(OverBoundError) as deep:
        parse("[" * 201 + "]" * 201)
    assert deep.value.is_depth
    assert len(parse("[" + "1," * 9_999 + "1]")) == 10_000
    for many in ("[" + "1," * 10_000 + "1]", "[" + "[]," * 5_000 + "[]]"):
        with pytest.raises(OverBoundError) as crowded:
            parse(many)
        assert not crowded.value.is_depth
    assert parse('["' + "[,{" * 20_000 + '"]') == ["[,{" * 20_000]
