"""Locations: the line and column at which a place of a document stands in its text.

The invariant: a place that is not there is told as the nearest one around it that is; nothing here judges the document.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import yaml

from app.domain.paths import Segment


class Location(NamedTuple):
    """A line and a column of a text, from 1."""

    line: int
    column: int


START = Location(1, 1)


def locate_in_json(text: str, place: Sequence[Segment]) -> Location:
    """Find a place in the text of a JSON document: a field's name, an item's beginning."""
    at = start = _skip_space(text, 0)
    for segment in place:
        members = _members_of(text, at)
        # A later duplicate key wins, as it does for the parser.
        found = [member for member in members if member.segment == segment]
        if not found:
            break
        start, at = found[-1].start, found[-1].value
    return _location(text, start)


def locate_in_yaml(text: str, place: Sequence[Segment]) -> Location:
    """Find a place in the text of a YAML document: a field's name, an item's beginning."""
    node: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    start = node.start_mark if node is not None else None
    for segment in place:
        found = None
        if isinstance(node, yaml.MappingNode) and isinstance(segment, str):
            found = next(((key, item) for key, item in node.value if key.value == segment), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(segment, int) and segment < len(node.value):
            found = (node.value[segment], node.value[segment])
        if found is None:
            break
        start, node = found[0].start_mark, found[1]
    return START if start is None else Location(start.line + 1, start.column + 1)


class _Member(NamedTuple):
    """A field or an item: where it begins, and where its value does."""

    segment: Segment
    start: int
    value: int


_DECODER = json.JSONDecoder()
_SPACE = " \t\n\r"


def _members_of(text: str, at: int) -> Iterator[_Member]:
    """Walk what stands in the object or array that begins there; nothing does in any other value."""
    opened = text[at : at + 1]
    if opened not in {"{", "["} or not opened:
        return
    at, index = _skip_space(text, at + 1), 0
    while text[at] not in "}]":
        start, segment = at, index
        if opened == "{":
            segment, at = _DECODER.raw_decode(text, at)
            at = _skip_space(text, _skip_space(text, at) + 1)  # the colon
        yield _Member(segment, start, at)
        at = _skip_space(text, _DECODER.raw_decode(text, at)[1])
        if text[at] == ",":
            at = _skip_space(text, at + 1)
        index += 1


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _location(text: str, at: int) -> Location:
    line_start = text.rfind("\n", 0, at) + 1
    return Location(text.count("\n", 0, at) + 1, at - line_start + 1)
