"""JSON values: what a step may put out, and how text becomes one.

The invariant: a value that :func:`parse_json` returns can always be rendered, and renders to text
that parses back to an equal value.
"""

import json
import re
from decimal import Decimal
from typing import Any, NamedTuple

from app.domain import limits
from app.domain.errors import InvalidJson, NestedTooDeep, TooManyValues
from app.domain.slices import OverBoundError, parse_sliced

_TYPE_NAMES = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}

JsonValue = Any
"""None, bool, int, float, str, Decimal (only for an integer of over 4,300 digits), list, or dict with str keys.

Left as ``Any`` for the type checker: a recursive alias would make every ``value["key"]`` of a test an error.
"""

MAX_DEPTH = 501
"""How deep a value nests that was kept once: 500 levels, and an empty one. Interpreters survive this, all of them."""

MAX_DEPTH_TAKEN = limits.DEPTH.value
"""How deep a value nests that is taken now."""


BYTE_ORDER_MARK = "\ufeff"
"""What some editors and shells put ahead of UTF-8; no part of the JSON behind it (RFC 8259 §8.1)."""


class Found(NamedTuple):
    """A value that is there, so that a present ``null`` differs from nothing at all (``None``)."""

    value: JsonValue


def parse_json(text: str | bytes, max_depth: int = MAX_DEPTH) -> JsonValue:
    """Parse strict JSON: integers of any size exact, no NaN or infinities, a later duplicate key wins.

    Args:
        text: the JSON.
        max_depth: how deep its arrays and objects may nest.

    Raises:
        InvalidJson: it is no JSON, not UTF-8, or holds a number that no float can hold (``1e999``).
        NestedTooDeep: it nests deeper.
        TooManyValues: it is long, and holds more values than are taken.

    Source: RFC 8259; ARCHITECTURE.md, "Values".
    """
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        decoded = decoded.removeprefix(BYTE_ORDER_MARK)
        # The hooks cost a call per number, so only where one may matter.
        decoder = _EXACT if _may_be_unusual(decoded) else _PLAIN
        if len(decoded) >= _LONG_CHARS:
            return parse_sliced(decoded, decoder, most_depth=max_depth, most_values=limits.VALUES.value)
        value = decoder.decode(decoded)
    except (RecursionError, OverBoundError) as error:
        if isinstance(error, OverBoundError) and not error.is_depth:
            raise TooManyValues(limits.VALUES.value) from error
        raise NestedTooDeep(max_depth) from error
    except UnicodeDecodeError as error:
        raise InvalidJson(f"the JSON is not UTF-8: {error.reason} at byte {error.start}") from error
    except ValueError as error:
        raise InvalidJson(f"this is not JSON: {error}") from error
    if _may_be_deep(decoded, max_depth) and _is_deeper(value, max_depth):
        raise NestedTooDeep(max_depth)
    return value


def parse_rendered(body: bytes) -> JsonValue:
    """Parse what :func:`app.domain.rendering.render_json` wrote: it was judged when it came in, and is not again."""
    text = body.decode()
    decoder = _EXACT_INTEGERS if _LONG_INTEGER.search(text) else _ANY
    if len(text) < _LONG_CHARS:
        return decoder.decode(text)
    return parse_sliced(text, decoder, most_depth=MAX_DEPTH, most_values=len(text))


_LONG_CHARS = 256 * 1024
"""From this length on a text is parsed in slices; a shorter one takes the decoder some ten milliseconds at most."""

_LONG_INTEGER = re.compile(r"[0-9]{4301}")


def kind_of(value: JsonValue) -> str:
    """Name the JSON type of a value: object, array, string, number, boolean or null."""
    return _TYPE_NAMES.get(type(value), "number")


# An exponent of three digits may overflow a float, and so may 200 digits with one of two; int() reads 4,300 digits.
_UNUSUAL_NUMBER = re.compile(r"[eE]\+?[0-9]{3}|[0-9]{200}")
_THREE_DIGITS = re.compile(r"[0-9][0-9][0-9]")  # in each of them; five times as fast to look for, in a text without
_INT_DIGITS = 4_300


def _exact_integer(digits: str) -> int | Decimal:
    # int() of millions of digits takes minutes (and Python refuses it); Decimal holds them exactly, in linear time.
    return int(digits) if len(digits) <= _INT_DIGITS else Decimal(digits)


def _finite_float(digits: str) -> float:
    number = float(digits)
    if number in {float("inf"), float("-inf")}:
        message = f"the number {digits[:40]} is too large for a float"
        raise ValueError(message)
    return number


def _refuse_constant(name: str) -> None:
    message = f"{name} is no JSON value"
    raise ValueError(message)


_PLAIN = json.JSONDecoder(parse_constant=_refuse_constant)
_EXACT = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite_float, parse_int=_exact_integer)
_ANY = json.JSONDecoder()
_EXACT_INTEGERS = json.JSONDecoder(parse_int=_exact_integer)


def _may_be_unusual(text: str) -> bool:
    if _THREE_DIGITS.search(text) is None:
        return False
    # By windows that overlap: a search through megabytes holds the interpreter's lock as long as parsing them.
    return any(_UNUSUAL_NUMBER.search(text, at, at + _WINDOW_CHARS + 200) for at in range(0, len(text), _WINDOW_CHARS))


_WINDOW_CHARS = 64 * 1024


def _may_be_deep(text: str, depth: int) -> bool:
    return text.count("[") + text.count("{") > depth


def _is_deeper(value: JsonValue, depth: int) -> bool:
    """Tell whether containers nest deeper than ``depth``, a level at a time so that no stack grows."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(depth):
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, dict | list)
        ]
    return bool(level)
