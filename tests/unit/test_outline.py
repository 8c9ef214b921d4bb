"""Outlines: every child has a path that leads to it, and the size of what that path serves."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.outline import (
    PREVIEW_BYTES,
    OutlineChild,
    count_children,
    list_children,
    preview_line,
    settle_path,
)
from app.domain.paths import format_path, parse_path, walk
from app.domain.rendering import render_json
from app.domain.values import Found, kind_of
from tests.unit.strategies import any_text, deep_values, json_values

containers = st.lists(json_values, max_size=8) | st.dictionaries(any_text, json_values, max_size=8)


def all_children(value: Any, limit: int) -> list[OutlineChild]:
    """Read every page of a value's children."""
    children: list[OutlineChild] = []
    position: int | None = 0
    while position is not None:
        page, position = list_children(value, (), position, limit)
        assert page or not children
        children += page
    return children


class TestChildren:
    @given(json_values | containers)
    def test_a_child_is_told_as_it_is_served(self, value: Any) -> None:
        """A child's path leads to that child; its type, size and count are those of the value there."""
        children = all_children(value, 100)
        assert len(children) == count_children(value)
        for child in children:
            segments = parse_path(child.path)
            assert segments == (child.key,)
            assert format_path(segments) == child.path
            assert walk(value, segments) == Found(value[child.key])
            told = (child.type, child.size_bytes, child.child_count)
            found = value[child.key]
            assert told == (kind_of(found), len(render_json(found)), count_children(found))

    @given(containers, st.integers(1, 9))
    def test_pages_make_up_the_whole(self, value: Any, limit: int) -> None:
        """Pages of any size hold every child once, in the order in which the value is rendered."""
        children = all_children(value, limit)
        assert children == all_children(value, 100)
        keys = [child.key for child in children]
        assert keys == (list(range(len(value))) if isinstance(value, list) else sorted(value))

    @given(deep_values, st.integers(0, 3))
    def test_a_value_is_read_to_its_depth(self, value: Any, levels_left: int) -> None:
        """A child that lies hundreds of levels deep has a path that is taken."""
        path: list[Any] = []
        reached = value
        while count_children(reached):
            path.append(next(iter(reached)) if isinstance(reached, dict) else 0)
            reached = reached[path[-1]]
        above = path[: len(path) - 1 - levels_left]
        found = walk(value, above)
        assert found is not None
        (child,) = list_children(found.value, above, 0, 1).children
        assert parse_path(child.path) == tuple(path[: len(above) + 1])

    def test_a_page_of_long_keys_ends_early(self) -> None:
        """Keys of a megabyte stand on a page each, so that no page grows with what a path repeats."""
        value = {letter * 2**20: 1 for letter in "abc"}
        assert [len(list_children(value, (), position, 100).children) for position in range(3)] == [1, 1, 1]
        assert list_children(value, (), 1, 100).next_position == 2
        assert list_children(value, (), 2, 100).next_position is None

    @given(st.none() | st.booleans() | st.integers() | any_text, st.integers(0, 3))
    def test_a_scalar_has_no_children(self, value: Any, position: int) -> None:
        """What is no object and no array has an empty page, wherever it begins."""
        assert list_children(value, (), position, 5) == ([], None)

    @given(st.lists(json_values, min_size=1, max_size=5), st.data())
    def test_an_index_from_the_end_is_spelled_from_the_beginning(self, value: list[Any], data: st.DataObject) -> None:
        """A path has one spelling in an outline, however an index of it was counted."""
        index = data.draw(st.integers(-len(value), len(value) - 1))
        assert settle_path([value], (-1, index)) == (0, index % len(value))


class TestPreview:
    @given(json_values)
    def test_a_preview_is_a_line_of_the_value(self, value: Any) -> None:
        """It stands on one line, is bounded, says when it is cut, and else is the value without its line ends."""
        rendered = render_json(value)
        preview = preview_line(rendered)
        assert "\n" not in preview.text
        line = re.sub("\n *", " ", rendered.decode())
        if preview.truncated:
            assert preview.text.endswith("…")
            assert line.startswith(preview.text[:-1])
            assert PREVIEW_BYTES - 4 < len(preview.text[:-1].encode()) <= PREVIEW_BYTES
        else:
            assert preview.text == line

    @pytest.mark.parametrize("size", [PREVIEW_BYTES - 2, PREVIEW_BYTES - 1, 4094, 4095, 5000])
    def test_the_cut_is_told(self, size: int) -> None:
        """A value whose rendering is longer than what is shown of it is cut, and only then."""
        preview = preview_line(render_json("é" * (size // 2) + "x" * (size % 2)))
        assert preview.truncated == (size + 2 > PREVIEW_BYTES)
        assert len(preview.text.encode()) <= PREVIEW_BYTES + len("…".encode())

    def test_indentation_alone_can_fill_what_is_looked_at(self) -> None:
        """A very deep value has a preview that is short, on one line, and cut."""
        value: Any = 1
        for _ in range(400):
            value = [value]
        preview = preview_line(render_json(value))
        assert preview.truncated
        assert set(preview.text) == {"[", " ", "…"}
