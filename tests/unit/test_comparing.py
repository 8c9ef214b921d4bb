"""Comparing: what is told to differ is all that differs, and no comparison grows without bound."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.comparing import LINE_CHARS, MOST_LINES, diff_lines, list_changes
from app.domain.paths import parse_path, walk
from app.domain.rendering import render_json
from app.domain.values import parse_rendered
from tests.unit.strategies import deep_values, json_values

similar = st.tuples(json_values, json_values, json_values).map(
    lambda three: (
        {"same": three[0], "other": three[1], "list": [three[0], three[1]]},
        {"same": three[0], "other": three[2], "list": [three[0], three[2], three[1]], "new": three[1]},
    )
)
"""Pairs of values that are alike in some places."""

pairs = st.tuples(json_values, json_values) | similar | similar.map(lambda pair: pair[::-1])
texts = st.lists(st.sampled_from(["", "a", "b", "}", "long " * 3]), max_size=30).map("\n".join)


def applied(before: Any, after: Any) -> Any:
    """Make the changes that are told, each with the value that stands there afterwards."""
    root = [parse_rendered(render_json(before))]
    changes = list_changes(before, after, most=10**6).shown
    removals = [change for change in changes if change.kind == "removed"]
    for change in (*reversed(removals), *(change for change in changes if change.kind != "removed")):
        *above, last = (0, *(parse_path(change.path) or ()))
        container, wanted = walk(root, above), walk([after], (*above, last))
        assert container is not None
        if wanted is None:
            del container.value[last]
        elif change.kind == "added" and isinstance(container.value, list):
            assert last == len(container.value)
            container.value.append(wanted.value)
        else:
            container.value[last] = wanted.value
    return root[0]


class TestChanges:
    @given(pairs)
    def test_nothing_differs_where_the_bytes_are_equal(self, pair: tuple[Any, Any]) -> None:
        """Two values have changes if and only if they render to different bytes."""
        before, after = pair
        assert (list_changes(before, after).total > 0) == (render_json(before) != render_json(after))
        assert list_changes(before, before).total == 0

    @given(pairs)
    def test_a_change_is_where_it_is_told(self, pair: tuple[Any, Any]) -> None:
        """Each path leads to a value on the sides that have one, and on no other."""
        before, after = pair
        for change in list_changes(before, after).shown:
            path = parse_path(change.path)
            assert path is not None
            there = (walk(before, path) is not None, walk(after, path) is not None)
            assert there == {"added": (False, True), "removed": (True, False), "changed": (True, True)}[change.kind]
            assert (change.before is not None, change.after is not None) == there

    @given(pairs)
    def test_the_changes_are_all_there_is(self, pair: tuple[Any, Any]) -> None:
        """Whoever makes the changes that are told has the other value."""
        before, after = pair
        assert render_json(applied(before, after)) == render_json(after)

    @pytest.mark.parametrize(
        ("before", "after", "kind", "path"),
        [
            ({"a": 1}, {"a": True}, "changed", "$.a"),
            ({"a": 1}, {"a": 1.0}, "changed", "$.a"),
            ({"a": 0.0}, {"a": -0.0}, "changed", "$.a"),
            ({"a": None}, {}, "removed", "$.a"),
            ([1], [1, None], "added", "$[1]"),
            ({}, [], "changed", "$"),
            ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, "changed", "$.a.b[1]"),
            ("x", "y", "changed", "$"),
        ],
    )
    def test_a_single_change(self, before: Any, after: Any, kind: str, path: str) -> None:
        """What Python takes for equal differs where its JSON does, and a null is a value."""
        changes = list_changes(before, after)
        assert changes.total == 1
        assert (changes.shown[0].kind, changes.shown[0].path) == (kind, path)

    def test_many_changes_are_counted(self) -> None:
        """Of many changes the first are shown in order, and all are counted."""
        changes = list_changes(list(range(1000)), list(range(1, 1001)), most=3)
        assert ([change.path for change in changes.shown], changes.total) == (["$[0]", "$[1]", "$[2]"], 1000)

    @given(deep_values)
    def test_depth_is_no_limit(self, value: Any) -> None:
        """Values that nest as deep as they may are compared to their leaves."""
        assert list_changes(value, value).total == 0
        assert list_changes([value], [[value]]).total >= 1


class TestLines:
    @given(texts, texts)
    def test_both_texts_can_be_read_off(self, before: str, after: str) -> None:
        """Every line is told with its number: what was removed, what was added, and what stands around, unchanged."""
        diff = diff_lines(before, after)
        old, new = before.split("\n"), after.split("\n")
        for line in diff.lines:
            assert line.kind == "gap" or line.before is not None or line.after is not None
            assert line.before is None or old[line.before - 1] == line.text
            assert line.after is None or new[line.after - 1] == line.text
        removed = {line.before for line in diff.lines if line.kind == "removed"}
        added = {line.after for line in diff.lines if line.kind == "added"}
        kept_old = [text for number, text in enumerate(old, 1) if number not in removed]
        kept_new = [text for number, text in enumerate(new, 1) if number not in added]
        assert kept_old == kept_new
        assert (diff.removed, diff.added) == (len(removed), len(added))
        assert (diff.removed + diff.added > 0) == (before != after)

    def test_equal_lines_are_left_away_but_for_those_around(self) -> None:
        """Far from a change, equal lines become a gap that counts them."""
        lines = [str(number) for number in range(100)]
        diff = diff_lines("\n".join(lines), "\n".join([*lines[:50], "new", *lines[50:]]))
        told = [(line.kind, line.text) for line in diff.lines]
        assert told == [
            ("gap", "47 equal lines"),
            *(("same", str(number)) for number in (47, 48, 49)),
            ("added", "new"),
            *(("same", str(number)) for number in (50, 51, 52)),
            ("gap", "47 equal lines"),
        ]

    def test_what_is_too_much_is_left_out_and_counted(self) -> None:
        """Of two long texts that share nothing the first lines are compared; how many were not is told."""
        diff = diff_lines("\n".join(f"a{number}" for number in range(5000)), "\n".join("b" * 3))
        assert (diff.removed, diff.added) == (MOST_LINES, 3)
        assert (diff.left_out_before, diff.left_out_after) == (5000 - MOST_LINES, 0)

    def test_lines_that_recur_are_matched_where_that_is_cheap(self) -> None:
        """Lines of which there are few kinds, as in a list of like rows, still tell what stayed and what came."""
        rows = "{\n  ok\n}\n" * 60
        diff = diff_lines(f"{rows}end", f"first\n{rows}second\n{rows}")
        assert (diff.removed, diff.added) == (1, 183)

    def test_one_change_in_a_long_text_is_found(self) -> None:
        """However long two texts are, a change is found where they are alike before and after it."""
        lines = [f"line {number}" for number in range(50_000)]
        diff = diff_lines("\n".join(lines), "\n".join([*lines[:40_000], "changed", *lines[40_001:]]))
        assert [line.after for line in diff.lines if line.kind == "added"] == [40_001]
        assert (diff.left_out_before, diff.left_out_after) == (0, 0)

    def test_a_long_line_is_cut(self) -> None:
        """A line of megabytes shows its beginning and says how long it is."""
        (removed, added) = diff_lines("x" * 2**21, "y").lines
        assert removed.text == "x" * LINE_CHARS + "… (2,097,152 characters)"
        assert added.text == "y"
