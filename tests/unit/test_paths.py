"""Paths: one grammar for clients, one for flows, and neither can be made to fail."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.paths import explain_miss, format_path, parse_flow_path, parse_path, quoted, reach, shown, walk
from app.domain.projection import ProjectionKey
from app.domain.values import Found
from tests.unit.strategies import any_text, deep_values, json_values, pathlike_text, segments

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "key_resolve.json").read_text(encoding="utf-8"))


def found_of(expect: dict[str, Any]) -> Found | None:
    """What a vector expects, in our words."""
    return Found(expect["value"]) if expect["found"] else None


def parents(value: Any) -> Any:
    """Every container of a value with its path, outermost first."""
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while waiting:
        path, item = waiting.pop()
        yield path, item
        if isinstance(item, dict):
            waiting += [((*path, key), child) for key, child in item.items()]
        elif isinstance(item, list):
            waiting += [((*path, index), child) for index, child in enumerate(item)]


class TestVectors:
    """tests/vectors/key_resolve.json."""

    @pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: f"{case['ctx']}-{case['step']}-{case['path']}")
    def test_a_key_resolves_as_the_contract_says(self, case: dict[str, Any]) -> None:
        """A key finds exactly what its vector says, and a miss is no error."""
        key = ProjectionKey(task_id="T-1", step=case["step"], path=case["path"])
        assert key.resolve(VECTORS["ctx"][case["ctx"]]) == found_of(case["expect"])

    def test_no_part_of_the_file_is_left_out(self) -> None:
        """A vector that nobody runs is a defect."""
        assert VECTORS.keys() == {"about", "ctx", "cases"}
        assert {case["ctx"] for case in VECTORS["cases"]} == VECTORS["ctx"].keys()
        assert all(case.keys() <= {"ctx", "step", "path", "expect", "why"} for case in VECTORS["cases"])
        assert all(case["expect"].keys() <= {"found", "value"} for case in VECTORS["cases"])


class TestGrammar:
    """What is a path, and of which segments."""

    @pytest.mark.parametrize(
        ("text", "expect"),
        [
            ("$defs.a", ("$defs", "a")),
            ("a.$.b", ("a", "$", "b")),
            ("$.a b", ("a b",)),
            ('$.a"b', ('a"b',)),
            ("$.a\\b", ("a\\b",)),
            ("...", ()),
            ("a.[0]", ("a", 0)),
            ("[0][-0][007]", (0, 0, 7)),
            ("[" + "0" * 5000 + "1]", (1,)),
            ('$[""]', ("",)),
            ('$["\\\\"]', ("\\",)),
            ('$["a\nb"]', ("a\nb",)),
            ("$$", ("$$",)),
            ("[-" + "9" * 5000 + "]", (-(10**100),)),
            ("[" + "9" * 5000 + "]", (10**100,)),
        ],
    )
    def test_a_projection_path_is_lenient(self, text: str, expect: tuple[str | int, ...]) -> None:
        """A client's path needs no root, and what can only mean one thing means that."""
        assert parse_path(text) == expect

    @pytest.mark.parametrize(
        "text",
        [
            "$.a]",
            "]",
            "[",
            "[0",
            '["a]',
            "['a']",
            '["a\\n"]',
            "[--1]",
            "[+1]",
            "[٣]",
            "[0]a",
            "a[0]b",
            "$x[",
            "[ 0]",
            "[]",
        ],
    )
    def test_a_malformed_path_has_no_segments(self, text: str) -> None:
        """Whatever is outside the grammar is refused as a whole, by both readers."""
        assert parse_path(text) is None
        assert parse_flow_path(text) is None
        assert parse_flow_path("$." + text) is None

    @pytest.mark.parametrize(
        ("text", "expect"),
        [
            ("$", ()),
            ("$.a.b", ("a", "b")),
            ('$["x.y"].a[0]', ("x.y", "a", 0)),
            ('$.a["b"]["c"]', ("a", "b", "c")),
            ("$.計画", ("計画",)),
        ],
    )
    def test_a_flow_path_begins_at_the_root(self, text: str, expect: tuple[str | int, ...]) -> None:
        """A path of a flow is a root, dotted keys, quoted keys and indices."""
        assert parse_flow_path(text) == expect

    @pytest.mark.parametrize("text", ["", "a", "$a", "$.", "$..a", "$.a.", '$.["a"]', '["a"]', "$.[0]", "$a.b"])
    def test_a_flow_path_is_strict(self, text: str) -> None:
        """What a client may write loosely, a flow may not: each of its paths says where it writes."""
        assert parse_flow_path(text) is None

    @given(segments)
    def test_writing_and_reading_are_inverse(self, path: tuple[str | int, ...]) -> None:
        """The canonical text of any segments reads as those segments, for clients and for flows."""
        text = format_path(path)
        assert parse_path(text) == path
        assert parse_flow_path(text) == path

    def test_an_index_beyond_every_array_is_written_as_such(self) -> None:
        """No integer is too long to be written."""
        assert parse_path(format_path([10**5000, -(10**5000)])) == (10**100, -(10**100))

    @given(pathlike_text)
    def test_a_flow_path_is_a_projection_path(self, text: str) -> None:
        """Where a flow reads a path, a client reads the same one."""
        path = parse_flow_path(text)
        assert path is None or parse_path(text) == path


class TestWalk:
    """Where a path leads."""

    @given(json_values | deep_values, pathlike_text | any_text)
    def test_no_text_and_no_value_make_it_fail(self, value: Any, text: str) -> None:
        """Any path on any value is a hit, a miss, or malformed; and a miss can be explained."""
        path = parse_path(text)
        found = None if path is None else walk(value, path)
        parse_flow_path(text)
        sentence = explain_miss(value, text)
        assert found is not None or sentence
        assert len(sentence) < 2000
        assert sentence.isprintable()

    @given(json_values)
    def test_every_value_has_a_path(self, value: Any) -> None:
        """Whatever is inside a value is found at its canonical path, and its last segment alone is missed elsewhere."""
        for path, item in parents(value):
            text = format_path(path)
            assert walk(value, parse_path(text) or ()) == Found(item)
            assert reach(value, (*path, 10**9)) == (len(path), item)

    @given(st.lists(st.none(), min_size=1, max_size=5), st.integers(1, 5))
    def test_a_negative_index_counts_from_the_end(self, items: list[None], back: int) -> None:
        """``[-n]`` is the n-th item from the end, as long as there is one."""
        numbered = list(range(len(items)))
        expect = Found(numbered[-back]) if back <= len(items) else None
        assert walk(numbered, (-back,)) == expect

    @pytest.mark.parametrize(
        ("text", "segments"),
        [
            ("." * 1_000_000, 0),
            ("[0]" * 300_000, 300_000),
            ('["' + "\\" * 1_000_000, None),
            ("$" + ".a" * 500_000, 500_000),
            ("[" + "9" * 1_000_000 + "]", 1),
        ],
    )
    def test_time_is_linear(self, text: str, segments: int | None) -> None:
        """A megabyte of path is read like any other; in quadratic time this would never end."""
        path = parse_path(text)
        assert (None if path is None else len(path)) == segments


class TestSentences:
    """What is said of a miss."""

    @pytest.mark.parametrize(
        ("value", "text", "expect"),
        [
            ({}, "a[", "it is not a well-formed path"),
            ({"a": {"b": {}}}, "$.a.b.c", '$.a.b is an object without the key "c"'),
            ({"list": [1, 2, 3]}, "list[7]", "$.list is an array of 3 items, there is no index 7"),
            ([1], "[1]", "$ is an array of 1 item, there is no index 1"),
            ([1], "x", "$ is an array of 1 item and has no keys: an index stands in brackets, [0]"),
            ({"x": "s"}, "x.y", "$.x is a string and has no keys"),
            ({"x": True}, "x[0]", "$.x is a boolean and has no items"),
            ({"x": 2.5}, "x.y", "$.x is a number and has no keys"),
            (None, "a", "$ is null and has no keys"),
            ({}, "[0]", '$ is an object, and an index leads into an array only: a key stands in quotes, ["0"]'),
            ({"x y\n": 1}, '["x y\n"].z', '$["x y\\n"] is a number and has no keys'),
            ({"a": 1}, "a", "$.a is a number"),
            ([], "[" + "9" * 60 + "]", "$ is an array of 0 items, there is no index 99999999999999999999…"),
        ],
    )
    def test_a_miss_says_where_the_path_ends(self, value: Any, text: str, expect: str) -> None:
        """The sentence names the last place that is there, what it is, and what it lacks."""
        assert explain_miss(value, text) == expect

    def test_what_a_client_sent_is_bounded_and_on_one_line(self) -> None:
        """Text in a sentence is cut, and nothing in it ends the line."""
        assert shown("a" * 100) == "a" * 80 + "…"
        assert shown("a\r\n\x00\u2028\ud800é", 20) == "a\\r\\n\\x00\\u2028\\ud800é"
        assert quoted("x") == '"x"'
