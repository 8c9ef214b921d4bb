"""Documents: values of an exact size, and the bytes that a server must answer for them.

The invariant: the bytes are made by the standard library alone, so that they check the product and not mirror it.
"""

import json
from typing import Any

from app.domain.values import JsonValue

_WORDS = "what did that step put out while the run still goes on "


def document(name: str, size_bytes: int) -> dict[str, JsonValue]:
    """Make an object whose body has exactly this size."""
    return _padded({"name": name, "text": ""}, size_bytes)


def table_document(size_bytes: int, rows: int) -> dict[str, JsonValue]:
    """Make an object with a list of objects, numbers and lists, whose body has exactly this size."""
    return _padded({"rows": [_row(number) for number in range(rows)], "text": ""}, size_bytes)


def body_of(value: JsonValue) -> bytes:
    """Render a value as the product promises to: two-space indent, keys sorted, no escapes beyond what JSON needs."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False).encode()


def _padded(value: dict[str, Any], size_bytes: int) -> dict[str, JsonValue]:
    missing = size_bytes - len(body_of(value))
    if missing < 0:
        message = f"{size_bytes} bytes are too few for this document"
        raise ValueError(message)
    value["text"] = (_WORDS * (missing // len(_WORDS) + 1))[:missing]
    return value


def _row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"row {number}",
        "share": number / 8,
        "done": number % 3 == 0,
        "tags": ["a", "b", None],
    }
