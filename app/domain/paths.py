"""Paths into a JSON value: the one parser, for the ``?path=`` of a client and for the paths of a flow.

The invariant: nothing here raises, recurses or takes more than linear time, whatever the text and
whatever the value. A path that leads nowhere is an answer, not an accident.

Source: contract §2 and §3; ``tests/vectors/key_resolve.json``.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from app.domain.values import Found, JsonValue, kind_of

Segment = str | int
"""One step of a path: a key of an object, or an index of an array (negative from its end)."""


def parse_path(text: str) -> tuple[Segment, ...] | None:
    """Read the path of a projection; None when it is malformed.

    The root ``$`` is optional, empty dot segments are ignored, a dot may stand before a bracket.
    """
    tokens = _read_tokens(text)
    if tokens is None or any(token.is_bare and token.dots == 0 for token in tokens[1:]):
        return None
    return tuple(token.segment for token in tokens if token.segment is not None)


def parse_flow_path(text: str) -> tuple[Segment, ...] | None:
    """Read a path of a flow; None when it is malformed.

    It begins with ``$``; then each key has one dot or stands quoted in brackets, each index in
    brackets. A bare ``$`` is the root.
    """
    tokens = _read_tokens(text)
    if tokens is None or _root_end(text) == 0:
        return None
    if any(token.segment is None or token.dots != int(token.is_bare) for token in tokens):
        return None
    return tuple(token.segment for token in tokens if token.segment is not None)


def walk(value: JsonValue, segments: Sequence[Segment]) -> Found | None:
    """Follow a path; None where it leads nowhere. A ``null`` that is there is found."""
    reached, end = reach(value, segments)
    return Found(end) if reached == len(segments) else None


def reach(value: JsonValue, segments: Sequence[Segment]) -> tuple[int, JsonValue]:
    """Follow a path as far as it leads: the number of segments that led somewhere, and the value there."""
    for reached, segment in enumerate(segments):
        if isinstance(segment, str):
            if not isinstance(value, dict) or segment not in value:
                return reached, value
        elif not isinstance(value, list) or not -len(value) <= segment < len(value):
            return reached, value
        value = value[segment]
    return len(segments), value


def format_path(segments: Iterable[Segment]) -> str:
    """Write the canonical text of a path: from ``$``, a key in quotes where a dot would not do.

    Parsing that text gives the same segments, for every key and every index below ``10**100``.
    """
    return "$" + "".join(_format_segment(segment) for segment in segments)


def explain_miss(value: JsonValue, text: str) -> str:
    """Say in one clause where a projection path ends: one line, a few hundred characters at most."""
    segments = parse_path(text)
    if segments is None:
        return "it is not a well-formed path"
    reached, end = reach(value, segments)
    place = shown(format_path(segments[:reached]), _SHOWN_PATH_CHARS)
    if reached == len(segments):
        return f"{place} is {_described(end)}"
    return f"{place} is {_described(end)}{_missing(end, segments[reached])}"


def shown(text: str, most_chars: int = 80) -> str:
    """Make what a client sent fit for a sentence: bounded, and on one line."""
    cut = text if len(text) <= most_chars else text[:most_chars] + "…"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in cut)


def quoted(text: str) -> str:
    """Quote what a client sent for a sentence: bounded, on one line, in double quotes."""
    return f'"{shown(text)}"'


# --- the tokenizer -------------------------------------------------------------------------------


class _Token(NamedTuple):
    """A run of dots and the segment after it; none after the dots at the end."""

    dots: int
    segment: Segment | None
    is_bare: bool = False


# Possessive quantifiers: no text makes it try twice. A bare key holds anything but a dot and brackets.
_TOKEN = re.compile(
    r"""(?P<dots>\.*+)
    (?: (?P<bare>[^.\[\]]++)
      | \["(?P<quoted>[^"\\]*+(?:\\["\\][^"\\]*+)*+)"\]
      | \[(?P<index>-?[0-9]++)\]
      | \Z )""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r'\\(["\\])')
_PLAIN_KEY = re.compile(r"[^\W\d]\w*", re.ASCII)
_INDEX_DIGITS = 100
_BEYOND: int = 10**_INDEX_DIGITS
"""What a longer index stands for: beyond every array. ``int()`` of thousands of digits would raise."""
_SHOWN_PATH_CHARS = 200


def _read_tokens(text: str) -> list[_Token] | None:
    tokens: list[_Token] = []
    at = _root_end(text)
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        at = match.end()
        tokens.append(_to_token(match))
    return tokens


def _to_token(match: re.Match[str]) -> _Token:
    dots, bare, in_quotes, index = len(match["dots"]), match["bare"], match["quoted"], match["index"]
    if bare is not None:
        return _Token(dots, bare, is_bare=True)
    if in_quotes is not None:
        return _Token(dots, _ESCAPE.sub(r"\1", in_quotes))
    return _Token(dots, None if index is None else _to_index(index))


def _root_end(text: str) -> int:
    """Tell where the path goes on after its root; 0 where it has none (``$defs.a`` starts with a key)."""
    return 1 if text.startswith("$") and (len(text) == 1 or text[1] in ".[") else 0


def _to_index(digits: str) -> int:
    magnitude = digits.lstrip("-0") or "0"
    index = int(magnitude) if len(magnitude) <= _INDEX_DIGITS else _BEYOND
    return -index if digits.startswith("-") else index


def _format_segment(segment: Segment) -> str:
    if isinstance(segment, int):
        return f"[{max(-_BEYOND, min(_BEYOND, segment))}]"
    if _PLAIN_KEY.fullmatch(segment):
        return f".{segment}"
    escaped = segment.replace("\\", "\\\\").replace('"', '\\"')
    return f'["{escaped}"]'


# --- sentences -----------------------------------------------------------------------------------


def _described(value: JsonValue) -> str:
    if isinstance(value, list):
        return f"an array of {len(value)} item{'' if len(value) == 1 else 's'}"
    kind = kind_of(value)
    return {"object": "an object", "null": "null"}.get(kind, f"a {kind}")


def _missing(value: JsonValue, segment: Segment) -> str:
    if isinstance(segment, int):
        index = shown(str(segment), 20)
        if isinstance(value, list):
            return f", there is no index {index}"
        if isinstance(value, dict):
            return f', and an index leads into an array only: a key stands in quotes, ["{index}"]'
        return " and has no items"
    if isinstance(value, dict):
        return f" without the key {quoted(segment)}"
    if isinstance(value, list):
        return " and has no keys: an index stands in brackets, [0]"
    return " and has no keys"
