"""How values become bytes: rendered JSON, previews, digests, content URLs, submission files.

The invariant: equal values render to equal bytes, on every machine and in every release: clients keep digests.
"""

import hashlib
import re
from collections.abc import Iterator
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson

from app.domain.errors import IndentedTooLarge, ProjectionSerialize
from app.domain.limits import INDENTATION_BYTES
from app.domain.values import JsonValue

JSON_TYPE = "application/json"
MARKDOWN_TYPE = "text/markdown; charset=utf-8"
TEXT_TYPE = "text/plain; charset=utf-8"
PREVIEW_BYTES = 512


def render_json(value: JsonValue) -> bytes:
    r"""Render a value as the body that ``/content`` serves: two-space indent, keys sorted, non-ASCII as is.

    Integers of any size are exact, floats in shortest form. A lone surrogate, which UTF-8 cannot
    carry, is written as its ``\udXXX`` escape.

    Raises:
        ProjectionSerialize: the value is no JSON value.

    Source: contract §2, "Rendered JSON"; ``tests/vectors/bodies.json``.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | _STRICT, default=_refuse)
    except TypeError:  # an integer over 64 bits, a lone surrogate, nesting over 254: rare, and orjson cannot
        return _render_any(value, indent="\n").encode()


def require_renderable(value: JsonValue) -> None:
    """Hold a value to a rendering that is not many times what was sent.

    Two spaces a level make 100 KB of brackets that nest 400 deep 40 MB. What is shallow may be of any size: only where
    the lines are indented by more than 64 spaces on average is the whole of it limited.

    Raises:
        IndentedTooLarge: indentation alone would take more than 32 MiB.
    """
    spaces, lines = count_indentation(value)
    if spaces > MAX_INDENTATION_BYTES and spaces > _DEEP_INDENTATION * lines:
        raise IndentedTooLarge(MAX_INDENTATION_BYTES, spaces)


def count_indentation(value: JsonValue) -> tuple[int, int]:
    """Count the spaces that indent a value's rendering, and the lines that begin with any, without rendering it."""
    spaces, lines, depth, level = 0, 0, 0, [value]
    while containers := [item for item in level if type(item) in _CONTAINERS and item]:
        depth += 1
        count = sum(map(len, containers))
        spaces += 2 * depth * count + 2 * (depth - 1) * len(containers)
        lines += count + (len(containers) if depth > 1 else 0)
        level = [item for each in containers for item in (each.values() if type(each) is dict else each)]
    return spaces, lines


MAX_INDENTATION_BYTES = INDENTATION_BYTES.value
_DEEP_INDENTATION = 64
_CONTAINERS = frozenset({dict, list})


def compact_json(value: JsonValue) -> bytes:
    """Render a value on one line without spaces, keys in the order they have.

    Raises:
        ProjectionSerialize: the value is no JSON value.
    """
    try:
        return orjson.dumps(value, option=_STRICT, default=_refuse)
    except TypeError:
        return _render_any(value, indent="").encode()


def sha256_hex(body: bytes) -> str:
    """Digest a body: 64 lowercase hex digits."""
    return hashlib.sha256(body).hexdigest()


def etag_of(sha256: str) -> str:
    """Write a digest as the strong entity tag that carries it."""
    return f'"sha256:{sha256}"'


class Preview(NamedTuple):
    """The beginning of a body, for lists."""

    text: str
    truncated: bool


def preview_of(body: bytes, most_bytes: int = PREVIEW_BYTES) -> Preview:
    """Cut the first 512 bytes of a body, never inside a UTF-8 character; an ellipsis marks the cut.

    Bytes that are no UTF-8 (a file on disk may hold any) show as U+FFFD.

    Source: ``tests/vectors/preview.json``.
    """
    if len(body) <= most_bytes:
        return Preview(body.decode("utf-8", "replace"), truncated=False)
    end = most_bytes
    while end > most_bytes - 4 and body[end] in _CONTINUATION:
        end -= 1
    return Preview(body[:end].decode("utf-8", "replace") + "…", truncated=True)


_CONTINUATION = range(0x80, 0xC0)  # the bytes of a UTF-8 character after its first


def text_bytes(text: str) -> bytes:
    """Encode a string value as its own UTF-8; a lone surrogate becomes U+FFFD, since UTF-8 has no form for it."""
    return _LONE.sub("\ufffd", text).encode()


def artifact_type(name: str) -> str:
    """Name the content type of a part by the ending of its name."""
    lowered = name.lower()
    if lowered.endswith(".md"):
        return MARKDOWN_TYPE
    return JSON_TYPE if lowered.endswith(".json") else TEXT_TYPE


def quote_segment(text: str) -> str:
    """Percent-encode one path segment; ``.`` and ``..`` whole, so that no client normalises them away.

    Source: RFC 3986 §2.3; ``tests/vectors/content_url.json``.
    """
    if text in {".", ".."}:
        return text.replace(".", "%2E")
    return quote(text, safe="")


def steps_path(task_id: str, run_id: str) -> str:
    """Write the path of a run's steps, from ``/``."""
    return f"/v1/tasks/{quote_segment(task_id)}/runs/{quote_segment(run_id)}/steps"


class Narrowing(NamedTuple):
    """The query of a step: which of its values, and which part and form of it."""

    path: str | None = None
    format: str | None = None
    attempt: int | None = None
    occurrence: int | None = None


WHOLE = Narrowing()
"""No narrowing: the newest OUTPUT, as it is."""


def content_path(task_id: str, run_id: str, name: str, narrowing: Narrowing = WHOLE) -> str:
    """Write the path and query under which a step's content is served, from ``/``."""
    pairs = [f"{key}={quote(str(given), safe='')}" for key, given in narrowing._asdict().items() if given is not None]
    query = "?" + "&".join(pairs) if pairs else ""
    return f"{steps_path(task_id, run_id)}/{quote_segment(name)}/content{query}"


def content_url(base_url: str | None, path: str) -> str:
    """Make a path absolute under the configured base, or leave it from ``/`` when there is none."""
    return (base_url or "").rstrip("/") + path


# --- submission files ----------------------------------------------------------------------------


def render_submission(front_matter: dict[str, Any], value: JsonValue) -> bytes:
    """Render the file of a Final: YAML front matter, then the value in a JSON fence.

    The front matter's scalars are written as JSON where YAML would read them as something else, so
    a step named ``yes`` or ``a: b`` reads back as that.

    Source: ``tests/vectors/bodies.json``, submission_files.
    """
    lines = [f"{key}: {_yaml_scalar(item)}" for key, item in front_matter.items()]
    return "\n".join(["---", *lines, "---", "", _FENCE_OPEN, ""]).encode() + render_json(value) + _FENCE_CLOSE


def read_submission(body: bytes) -> bytes:
    """Take the rendered value out of a submission file.

    It lies between the first line that opens a JSON fence and the last one that closes it: a value
    that holds fences of its own cannot end it early.

    Raises:
        ProjectionSerialize: the file has no such fence.
    """
    start = body.find(b"\n" + _FENCE_OPEN.encode() + b"\n")
    end = body.rstrip().rfind(b"\n```")
    if start < 0 or end <= start:
        raise ProjectionSerialize("the file holds no ```json fence to read the value from")
    return body[start + len(_FENCE_OPEN) + 2 : end]


_FENCE_OPEN = "```json"
_FENCE_CLOSE = b"\n```\n"
# A plain YAML scalar that every YAML reader takes for a string: it starts with a letter and has no indicator in it.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def _yaml_scalar(item: Any) -> str:
    if isinstance(item, str) and _PLAIN.fullmatch(item) and item.lower() not in _YAML_WORDS:
        return item
    return compact_json(item).decode() if not isinstance(item, str) else _ascii_json(item)


def _ascii_json(text: str) -> str:
    # YAML forbids some characters that JSON allows (DEL, C1 controls): escapes are safe in both.
    return '"' + "".join(_escaped(char) for char in encode_basestring(text)[1:-1]) + '"'


def _escaped(char: str) -> str:
    if char < "\x7f":
        return char
    return f"\\u{ord(char):04x}" if char <= "\uffff" else f"\\U{ord(char):08x}"


# --- what orjson cannot ----------------------------------------------------------------------------

_STRICT = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_SHORT_BITS = 14_000
_LONE = re.compile("[\ud800-\udfff]")


def _refuse(item: Any) -> Any:
    if isinstance(item, Decimal):
        return orjson.Fragment(format(item, "f"))
    message = f"a {type(item).__name__} is no JSON value"
    raise ProjectionSerialize(message)


def _render_any(value: JsonValue, indent: str) -> str:
    """Render any JSON value; ``indent`` is a newline and the current indent, or empty for one line.

    Without recursion: a value nests up to ``MAX_DEPTH`` deep, and the caller's stack is no one's to spend.
    """
    pieces: list[str] = []
    open_containers = [(iter([("", value)]), "")]
    while open_containers:
        items, closing = open_containers[-1]
        lead, item = next(items, (closing, _END))
        pieces.append(lead)
        if item is _END:
            open_containers.pop()
        elif isinstance(item, dict | list) and item:
            outer = indent + "  " * (len(open_containers) - 1) if indent else ""
            pieces.append("{" if isinstance(item, dict) else "[")
            open_containers.append((_items_of(item, outer), outer + ("}" if isinstance(item, dict) else "]")))
        else:
            pieces.append(_render_leaf(item))
    return "".join(pieces)


_END = object()


def _items_of(container: dict[str, JsonValue] | list[JsonValue], outer: str) -> Iterator[tuple[str, JsonValue]]:
    """Give each item of a container, and what stands before it."""
    inner = outer + "  " if outer else ""
    if isinstance(container, list):
        yield from ((f",{inner}" if index else inner, item) for index, item in enumerate(container))
        return
    if not all(isinstance(key, str) for key in container):
        raise ProjectionSerialize("a key of an object is no string")
    colon = ": " if outer else ":"
    for index, key in enumerate(sorted(container) if outer else container):
        yield f"{',' if index else ''}{inner}{_render_leaf(key)}{colon}", container[key]


def _render_leaf(value: JsonValue) -> str:
    if isinstance(value, str):
        return _LONE.sub(lambda match: f"\\u{ord(match[0]):04x}", encode_basestring(value))
    if isinstance(value, bool) or value is None or isinstance(value, float):
        return orjson.dumps(value).decode()
    if isinstance(value, int | Decimal):
        is_short = isinstance(value, int) and value.bit_length() < _SHORT_BITS
        return str(value) if is_short else format(Decimal(value), "f")  # str(int) refuses over 4,300 digits
    if isinstance(value, dict | list):  # an empty one
        return "{}" if isinstance(value, dict) else "[]"
    message = f"a {type(value).__name__} is no JSON value"
    raise ProjectionSerialize(message)
