"""Outlines: the types, sizes and paths inside an output, so that a reader can choose before it fetches.

The invariant: every page of an outline is of the one value that its cursor began with; another value's is refused.
"""

import base64
import binascii
from collections import OrderedDict
from typing import NamedTuple

from app.domain.errors import InvalidParameter, PathNotFound
from app.domain.outline import DEFAULT_CHILDREN, TEXT, Outline, count_children, list_children, settle_path
from app.domain.paths import explain_miss, format_path, parse_path, walk
from app.domain.records import Kind
from app.domain.rendering import Narrowing, etag_of, render_json, sha256_hex
from app.domain.values import JsonValue, kind_of
from app.services.looks import Look
from app.services.query import McpQueryAdapter
from app.services.scopes import OPERATOR, Scope
from app.services.threads import LONG_BYTES, run_beside

CACHED_BYTES = 8 * 2**20
"""How much rendered JSON is kept parsed, in up to six times the memory; a node of 2 MiB opens in 1 ms, not 40."""


class Page(NamedTuple):
    """Which part of an outline is asked for."""

    path: str = ""
    limit: int = DEFAULT_CHILDREN
    cursor: str | None = None


class Sight(NamedTuple):
    """A value that is there and the page of its outline that is asked for, before any body is read."""

    look: Look
    page: Page

    @property
    def etag(self) -> str:
        """The tag of the page: of the value's digest, and of all else that the page depends on."""
        cursor = "" if self.page.cursor is None else self.page.cursor
        parts = (_FORM, self.look.answer.name, self._digest, self.page.path, str(self.page.limit), cursor)
        return etag_of(_digest_of(parts))

    @property
    def mark(self) -> str:
        """What a cursor carries, so that it leads on in this value alone."""
        return _digest_of((self._digest, self.page.path))[:_MARK_CHARS]

    @property
    def is_text(self) -> bool:
        """Tell whether the body is an artifact's own text, and no JSON."""
        return self.look.answer.kind is Kind.ARTIFACT and self.look.answer.is_text

    @property
    def _digest(self) -> str:
        return f"{self.look.answer.kind}:{self.look.answer.json_sha256}"


_FORM = "1"
"""The form of the answer: another release that answers otherwise counts on."""
_MARK_CHARS = 16


class Outlines:
    """Outlines outputs.

    Args:
        query: finds and serves what is outlined.
    """

    def __init__(self, query: McpQueryAdapter) -> None:
        self._query = query
        # A digest stands for one value for ever, so that what is kept can never be stale.
        self._parsed: OrderedDict[str, tuple[int, JsonValue]] = OrderedDict()
        self._parsed_bytes = 0

    async def find(
        self,
        task_id: str,
        run_id: str | None,
        name: str,
        narrowing: Narrowing,
        page: Page,
        *,
        scope: Scope = OPERATOR,
    ) -> Sight:
        """Find what is to be outlined, without its body; of the narrowing only attempt and occurrence count.

        Raises:
            NotFound, Forbidden: as :meth:`McpQueryAdapter.look`.
        """
        of_value = Narrowing(None, "json", narrowing.attempt, narrowing.occurrence)
        return Sight(await self._query.look(task_id, run_id, name, of_value, scope), page)

    async def read(self, sight: Sight) -> Outline:
        """Outline what was found.

        Raises:
            PathNotFound: the path leads nowhere.
            InvalidParameter: the cursor is none that a page of this very value and path gave out.
            RunNotFound: the run was deleted meanwhile.
        """
        position = _position(sight)
        value = await self._value_of(sight.look)
        return await run_beside(sight.look.answer.json_size, _outline, sight, value, position)

    async def _value_of(self, look: Look) -> JsonValue:
        digest, size_bytes = look.answer.json_sha256, look.answer.json_size
        known = self._parsed.get(digest)
        if known is not None:
            self._parsed.move_to_end(digest)
            return known[1]
        value = await self._query.load_value(look)
        if size_bytes >= LONG_BYTES:
            self._keep(digest, size_bytes, value)
        return value

    def _keep(self, digest: str, size_bytes: int, value: JsonValue) -> None:
        """Keep a value that took long to parse: whoever opens one node of a tree opens the next."""
        if size_bytes > CACHED_BYTES or digest in self._parsed:
            return
        self._parsed[digest] = size_bytes, value
        self._parsed_bytes += size_bytes
        while self._parsed_bytes > CACHED_BYTES:
            self._parsed_bytes -= self._parsed.popitem(last=False)[1][0]


def _outline(sight: Sight, root: JsonValue, position: int) -> Outline:
    answer, path = sight.look.answer, sight.page.path
    segments = parse_path(path)
    found = None if segments is None else walk(root, segments)
    if segments is None or found is None:
        raise PathNotFound(answer.name, path, explain_miss(root, path))
    settled = settle_path(root, segments)
    if sight.is_text:
        type_, size_bytes = TEXT, answer.raw_size
    else:
        type_ = kind_of(found.value)
        size_bytes = len(render_json(found.value)) if settled else answer.json_size
    level = list_children(found.value, settled, position, sight.page.limit)
    return Outline.model_construct(
        name=answer.name,
        path=format_path(settled),
        type=type_,
        size_bytes=size_bytes,
        child_count=count_children(found.value),
        children=level.children,
        next_cursor=None if level.next_position is None else _cursor(sight, level.next_position),
    )


def _cursor(sight: Sight, position: int) -> str:
    return base64.urlsafe_b64encode(f"{position}.{sight.mark}".encode()).decode()


def _position(sight: Sight) -> int:
    if sight.page.cursor is None:
        return 0
    refusal = InvalidParameter("cursor is none that this value and path gave out: start again without one")
    try:
        text = base64.b64decode(sight.page.cursor.encode("ascii"), altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise refusal from error
    position, _, mark = text.partition(".")
    if mark != sight.mark or not position.isdigit() or len(position) > _POSITION_DIGITS:
        raise refusal
    return int(position)


_POSITION_DIGITS = 12


def _digest_of(parts: tuple[str, ...]) -> str:
    return sha256_hex("\0".join(f"{len(part)}:{part}" for part in parts).encode("utf-8", "surrogatepass"))
