"""Outlines: what a value is made of, one level at a time and without the value itself.

The invariant: a child's path, given back as ``?path=``, leads to that very child, and its size is that of the bytes
that are served for that path.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from app.domain.limits import PAGE_CHILDREN
from app.domain.paths import Segment, format_path
from app.domain.rendering import Preview, preview_of, render_json
from app.domain.values import JsonValue, kind_of

DEFAULT_CHILDREN = 100
MAX_CHILDREN = PAGE_CHILDREN.value
PREVIEW_BYTES = 120
TEXT = "text"
"""The type of a body that is no JSON: an artifact's own bytes. Nothing lies inside it."""

_PAGE_CHARS = 1 << 20
"""What the keys, paths and previews of one page may take together: long keys end a page early, after one child."""


class OutlineChild(BaseModel):
    """One child of an object or array."""

    model_config = ConfigDict(frozen=True)

    key: str | int = Field(description="The key of an object's child, the index of an array's.")
    path: str = Field(description="Its path from the root: `?path=` takes it as it is.")
    type: str = Field(description="`object`, `array`, `string`, `number`, `boolean` or `null`.")
    size_bytes: int = Field(description="Size in bytes of what `…/content?path=` serves for its path.")
    child_count: int = Field(description="How many children it has; 0 for what is no object and no array.")
    preview: str = Field(description="The beginning of it as JSON on one line, then an ellipsis when cut.")
    truncated: bool = Field(description="Whether the preview is cut.")


class Outline(BaseModel):
    """What a value is made of: its type and size, and one page of its children."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(description="The canonical name of the step, or the name of the artifact.")
    path: str = Field(description="The path of this value from the root, in its canonical spelling.")
    type: str = Field(
        description="`object`, `array`, `string`, `number`, `boolean`, `null`; `text` for an artifact that is no JSON."
    )
    size_bytes: int = Field(description="Size in bytes of the value as rendered JSON; of a `text`, of the text itself.")
    child_count: int = Field(description="How many children it has in all.")
    children: list[OutlineChild] = Field(
        description="One page of them: an object's by key, bytewise, an array's by index."
    )
    next_cursor: str | None = Field(description="Where the next page begins; null on the last one.")


class Level(NamedTuple):
    """One page of the children of a value, and the position of the next page's first child; None on the last."""

    children: list[OutlineChild]
    next_position: int | None


def list_children(value: JsonValue, path: Sequence[Segment], position: int, limit: int) -> Level:
    """List children of a value, at most ``limit`` of them from a position on, in the order of the rendered JSON.

    Args:
        value: what stands at the path; one that is no object and no array has no children.
        path: where the value stands, each index counted from the beginning.
        position: how many children come before the page.
        limit: how many children a page has at most, at least 1.
    """
    keys = _keys(value)
    end = min(position + limit, len(keys))
    children: list[OutlineChild] = []
    taken_chars = 0
    for key in keys[position:end]:
        child = _child(key, value[key], format_path((*path, key)))
        taken_chars += len(str(child.key)) + len(child.path) + len(child.preview)
        if children and taken_chars > _PAGE_CHARS:
            break
        children.append(child)
    reached = position + len(children)
    return Level(children, reached if reached < len(keys) else None)


def count_children(value: JsonValue) -> int:
    """Count what stands directly inside a value."""
    return len(value) if isinstance(value, dict | list) else 0


def settle_path(value: JsonValue, path: Sequence[Segment]) -> tuple[Segment, ...]:
    """Spell a path that leads somewhere in this value with every index counted from the beginning."""
    return tuple(_settled(value, path))


def preview_line(rendered: bytes) -> Preview:
    """Cut the beginning of rendered JSON for a list: on one line, and never inside a UTF-8 character."""
    head = _INDENT.sub(b" ", rendered[:_LOOKED_AT_BYTES])
    cut = preview_of(head, PREVIEW_BYTES)
    if cut.truncated or len(rendered) <= _LOOKED_AT_BYTES:
        return cut
    return Preview(head.decode("utf-8", "ignore") + "…", truncated=True)


def _keys(value: JsonValue) -> Sequence[Segment]:
    if isinstance(value, dict):
        return sorted(value)  # as rendered; a value read back from its rendering is in order already
    return range(len(value)) if isinstance(value, list) else ()


def _child(key: Segment, value: JsonValue, path: str) -> OutlineChild:
    rendered = render_json(value)
    preview = preview_line(rendered)
    return OutlineChild.model_construct(
        key=key,
        path=path,
        type=kind_of(value),
        size_bytes=len(rendered),
        child_count=count_children(value),
        preview=preview.text,
        truncated=preview.truncated,
    )


def _settled(value: JsonValue, path: Sequence[Segment]) -> Iterator[Segment]:
    for segment in path:
        yield segment if isinstance(segment, str) else segment % len(value)
        value = value[segment]


# Line ends stand between tokens alone: inside a string they are escaped.
_INDENT = re.compile(rb"\n *")
# Room for the indentation that goes: deeper than this, a preview is shorter than it might be.
_LOOKED_AT_BYTES = 4096
