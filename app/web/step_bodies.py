"""Bodies of a step's page: its tree, its text as Markdown or as it is, and the pointer to it.

The invariant: whatever the size of an output, a page holds a bounded piece of it, says so, and says where the rest is.
"""

import json
from typing import NamedTuple

from markupsafe import Markup

from app.domain.answers import Chunks, pointer_json, summary_start
from app.domain.outline import DEFAULT_CHILDREN, Outline
from app.domain.rendering import TEXT_TYPE
from app.services.outlines import Outlines, Page
from app.services.query import McpQueryAdapter
from app.services.threads import run_apart
from app.web.formats import shortened
from app.web.markdown import RENDERED_BYTES, render_markdown
from app.web.step_address import StepAddress

RAW_BYTES = 64 * 1024
"""How much of a body stands in the page itself; a script shows all of it, line by line."""


class TreeNode(NamedTuple):
    """One child in a tree."""

    key: str
    path: str
    type: str
    size_bytes: int
    child_count: int
    preview: str
    url: str | None
    is_index: bool


class TreeBody(NamedTuple):
    """A value as a tree: its first level, to be opened further by a script, or by following links."""

    type: str
    size_bytes: int
    child_count: int
    nodes: list[TreeNode]
    next_cursor: str | None
    next_url: str | None
    outline_url: str
    content_url: str
    value: str | None
    is_value_cut: bool


class RenderedBody(NamedTuple):
    """A text as Markdown; what is no text as JSON."""

    html: Markup | None
    text: str
    is_cut: bool
    size_bytes: int


class RawBody(NamedTuple):
    """A body as it is, from its beginning; ``content_url`` serves the whole."""

    text: str
    is_cut: bool
    size_bytes: int
    content_url: str
    is_text: bool


class PointerBody(NamedTuple):
    """What a downstream worker is given of a step."""

    text: str
    is_shown: bool


Body = TreeBody | RenderedBody | RawBody | PointerBody


class StepBodies:
    """Makes bodies.

    Args:
        query: finds and serves outputs.
        outlines: outlines them.
    """

    def __init__(self, query: McpQueryAdapter, outlines: Outlines) -> None:
        self._query = query
        self._outlines = outlines

    async def make(self, address: StepAddress) -> Body:
        """Make the body that an address asks for.

        Raises:
            NotFound: it leads nowhere.
            InvalidParameter: its cursor is none of this value.
        """
        if address.view == "tree":
            return await self._tree(address)
        if address.view == "pointer":
            return await self._pointer(address)
        if address.view == "raw":
            text, size_bytes, is_text = await self._text(address, RAW_BYTES)
            return RawBody(text, len(text.encode()) < size_bytes, size_bytes, address.content_url("raw"), is_text)
        text, size_bytes, is_text = await self._text(address, RENDERED_BYTES)
        html = await run_apart(size_bytes * _SLOWER, render_markdown, text) if is_text else None
        return RenderedBody(html, text, len(text.encode()) < size_bytes, size_bytes)

    async def _tree(self, address: StepAddress) -> TreeBody:
        page = Page(address.path, DEFAULT_CHILDREN, address.cursor)
        sight = await self._outlines.find(address.task_id, address.run_id, address.name, address.narrowing, page)
        outline = await self._outlines.read(sight)
        value, is_cut = None, False
        if not outline.child_count:
            text, size_bytes, _ = await self._text(address, RAW_BYTES)
            value, is_cut = text, len(text.encode()) < size_bytes
        cursor = outline.next_cursor
        return TreeBody(
            type=outline.type,
            size_bytes=outline.size_bytes,
            child_count=outline.child_count,
            nodes=tree_nodes(outline, address),
            next_cursor=cursor,
            next_url=None if cursor is None else address._replace(cursor=cursor).url,
            outline_url=address.outline_url(),
            content_url=address._replace(path="").content_url("raw"),
            value=value,
            is_value_cut=is_cut,
        )

    async def _text(self, address: StepAddress, most_bytes: int) -> tuple[str, int, bool]:
        """Return the beginning of a body, its whole size, and whether it is a string's own text."""
        narrowing = address.narrowing._replace(format="raw")
        look = await self._query.look(address.task_id, address.run_id, address.name, narrowing)
        look, body = await self._query.serve(look)
        head = await _head(body, most_bytes)
        return head.decode("utf-8", "ignore"), look.form.size_bytes, look.form.content_type == TEXT_TYPE

    async def _pointer(self, address: StepAddress) -> PointerBody:
        """Cut the pointer out of the very list that a worker's pointers are cut from."""
        listing = await self._query.list_json(address.task_id, address.run_id)
        start = summary_start(address.name)
        found = next((summary for summary in listing.summaries if summary.startswith(start)), None)
        if found is None:
            return PointerBody("", is_shown=False)
        return PointerBody(json.dumps(json.loads(pointer_json(found)), ensure_ascii=False, indent=2), is_shown=True)


# Markdown takes some hundred times as long as JSON of the same size.
_SLOWER = 100


def tree_nodes(outline: Outline, address: StepAddress) -> list[TreeNode]:
    """Put the children of an outline under the URLs that they have of their own."""
    # An address of more than this no server takes: such a child can be seen, and not opened by itself.
    urls = {
        child.path: address._replace(path=child.path, cursor=None).url
        for child in outline.children
        if len(child.path) <= _PATH_CHARS
    }
    return [
        TreeNode(
            key=shortened(str(child.key), _KEY_CHARS),
            path=child.path if child.path in urls else "",
            type=child.type,
            size_bytes=child.size_bytes,
            child_count=child.child_count,
            preview=child.preview,
            url=urls.get(child.path),
            is_index=isinstance(child.key, int),
        )
        for child in outline.children
    ]


_KEY_CHARS = 500
_PATH_CHARS = 4_000


async def _head(body: bytes | Chunks, most_bytes: int) -> bytes:
    """Read the beginning of a body, cut between two characters, and let go of the rest."""
    if isinstance(body, bytes):
        return body[:most_bytes]
    pieces: list[bytes] = []
    taken_bytes = 0
    try:
        async for piece in body.chunks():
            pieces.append(piece)
            taken_bytes += len(piece)
            if taken_bytes >= most_bytes:
                break
    finally:
        body.close()
    return b"".join(pieces)[:most_bytes]
