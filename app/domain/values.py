"""JSON values: what a step may put out, and how text becomes one.

The invariant: a value that :func:`parse_json` returns can always be rendered, and renders to text
that parses back to an equal value.
"""

import json
import re
from decimal import Decimal
from typing import Any, NamedTuple

from app.domain.errors import InvalidJson

_TYPE_NAMES = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}

JsonValue = Any
"""None, bool, int, float, str, Decimal (only for an integer of over 4,300 digits), list, or dict with str keys.

Left as ``Any`` for the type checker: a recursive alias would make every ``value["key"]`` of a test an error.
"""

MAX_DEPTH = 500
"""How deep arrays and objects may nest. Interpreters differ in what they survive; this they all do."""


BYTE_ORDER_MARK = "\ufeff"
"""What some editors and shells put ahead of UTF-8; no part of the JSON behind it (RFC 8259 §8.1)."""


class Found(NamedTuple):
    """A value that is there, so that a present ``null`` differs from nothing at all (``None``)."""

    value: JsonValue


def parse_json(text: str | bytes) -> JsonValue:
    """Parse strict JSON: integers of any size exact, no NaN or infinities, a later duplicate key wins.

    Raises:
        InvalidJson: it is no JSON, not UTF-8, nests deeper than ``MAX_DEPTH``, or holds a number
            that no float can hold (``1e999``).

    Source: RFC 8259; ARCHITECTURE.md, "Values".
    """
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        decoded = decoded.removeprefix(BYTE_ORDER_MARK)
        hooks: dict[str, Any] = {}
        # The hooks cost a call per number, so only where one may matter.
        if _THREE_DIGITS.search(decoded) and _UNUSUAL_NUMBER.search(decoded):
            hooks = {"parse_float": _finite_float, "parse_int": _exact_integer}
        value = json.loads(decoded, parse_constant=_refuse_constant, **hooks)
    except RecursionError as error:
        raise InvalidJson(f"the JSON nests deeper than {MAX_DEPTH} levels") from error
    except UnicodeDecodeError as error:
        raise InvalidJson(f"the JSON is not UTF-8: {error.reason} at byte {error.start}") from error
    except ValueError as error:
        raise InvalidJson(f"this is not JSON: {error}") from error
    if _may_be_deep(decoded) and _is_deeper(value, MAX_DEPTH):
        raise InvalidJson(f"the JSON nests deeper than {MAX_DEPTH} levels")
    return value


def parse_rendered(body: bytes) -> JsonValue:
    """Parse what :func:`app.domain.rendering.render_json` wrote: it was judged when it came in, and is not again."""
    text = body.decode()
    return json.loads(text, parse_int=_exact_integer) if _LONG_INTEGER.search(text) else json.loads(text)


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


def _may_be_deep(text: str) -> bool:
    return text.count("[") + text.count("{") > MAX_DEPTH


def _is_deeper(value: JsonValue, depth: int) -> bool:
    """Tell whether containers nest deeper than ``depth``, a level at a time so that no stack grows."""
    level = [value]
    for _ in range(depth + 1):
        level = [
            child
            for container in level
            if isinstance(container, dict | list)
            for child in (container.values() if isinstance(container, dict) else container)
        ]
        if not level:
            return False
    return True
