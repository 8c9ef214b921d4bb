"""The debug plane: the outputs of a run, listed, looked at, and served byte for byte.

The invariant: every read of it is answered by :func:`answer_plane`, whether it comes by :class:`DebugPlane`, ahead of
the framework (which would cost more than the read), or by the framework's routes, which carry the documentation.
"""

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote

from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from app.api.answers import JSON_HEADERS, Answer, header_values
from app.api.paths import decode_segment
from app.api.representations import Representation
from app.domain.answers import Chunks
from app.domain.errors import InvalidParameter
from app.domain.ids import LATEST, check_id
from app.domain.records import MAX_COUNT
from app.domain.rendering import WHOLE, Narrowing, etag_of, sha256_hex
from app.domain.visible import visible
from app.routes import require_known
from app.services.looks import Look
from app.services.query import FORMATS, McpQueryAdapter
from app.services.recent import Recent
from app.services.scopes import OPERATOR, Scope

ROUTE_KEY = "stepplane.route"
"""Where a route that is answered ahead of the framework leaves its template, for the metrics."""

SCOPE_KEY = "stepplane.scope"
"""Where the guard leaves what the reader may see."""


class DebugPlane:
    """Answers the debug plane's reads itself and passes all else on."""

    def __init__(self, app: ASGIApp, query: McpQueryAdapter, recent: Recent[Representation]) -> None:
        self._app = app
        self._query = query
        self._recent = recent

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        if scope["type"] == "http" and scope["method"] in {"GET", "HEAD"}:
            address = find_address(scope["path"])
            if address is not None:
                scope[ROUTE_KEY] = _TEMPLATES[address.step is not None, address.content is not None]
                answer = await self._answer(scope, address)
                await answer.send(scope, send)
                return
        await self._app(scope, receive, send)

    async def _answer(self, scope: AsgiScope, address: "PlaneAddress") -> Answer:
        if scope.get(SCOPE_KEY) is not OPERATOR:  # what a worker may see is judged each time
            return await answer_plane(self._query, scope, address)
        key = (scope["path"], scope["query_string"])
        known = self._recent.find(key)
        if known is not None and (answer := known.answer(scope)) is not None:
            return answer
        version = self._recent.version
        found = await represent(self._query, scope, address)
        if found.may_be_kept:
            self._recent.keep(key, found, found.kept_bytes(key), version)
        return _answered(found, scope)


class PlaneAddress(NamedTuple):
    """What a path of the debug plane names; the segments are encoded, as they stand in it."""

    task: str
    run: str
    step: str | None
    content: str | None


def find_address(path: str) -> PlaneAddress | None:
    """Read a canonical path; None where it is none of the debug plane's."""
    match = _ROUTE.fullmatch(path)
    return None if match is None else PlaneAddress(*match.groups())


_TEMPLATES = {
    (False, False): "/v1/tasks/{task}/runs/{run}/steps",
    (True, False): "/v1/tasks/{task}/runs/{run}/steps/{step}",
    (True, True): "/v1/tasks/{task}/runs/{run}/steps/{step}/content",
}
_ROUTE = re.compile(r"/v1/tasks/([^/]+)/runs/([^/]+)/steps(?:/([^/]+)(/content)?)?")


async def answer_plane(query: McpQueryAdapter, scope: AsgiScope, address: PlaneAddress) -> Answer:
    """Answer a read of the debug plane."""
    return _answered(await represent(query, scope, address), scope)


def _answered(found: Representation, scope: AsgiScope) -> Answer:
    answer = found.answer(scope)
    assert answer is not None  # noqa: S101 - it was found for this very request
    return answer


async def represent(query: McpQueryAdapter, scope: AsgiScope, address: PlaneAddress) -> Representation:
    """Find what stands at an address, with its body unless the request can be answered without."""
    if scope["query_string"]:
        require_known(scope["query_string"], () if address.step is None else Narrowing._fields)
    task_id = check_id("task", decode_segment(address.task))
    run_given = decode_segment(address.run)
    run_id = None if run_given == LATEST else check_id("run", run_given)
    reader: Scope = scope.get(SCOPE_KEY, OPERATOR)
    if address.step is None:
        listing = await query.list_json(task_id, run_id, reader)
        return _json_representation(listing.body(), is_stored=listing.is_stored)
    name, narrowing = decode_segment(address.step), read_narrowing(scope["query_string"])
    if address.content is None:
        told = await query.summary_json(task_id, run_id, name, narrowing, reader)
        return _json_representation(told.body, is_stored=told.is_stored)
    is_sent = scope["method"] == "GET" and not header_values(scope, b"if-none-match")
    look = await query.look(task_id, run_id, name, narrowing, reader, with_body=is_sent)
    if not is_sent:
        found = _representation(look, None)
        if found.answer(scope) is not None:
            return found
    return _representation(*await query.serve(look))  # what is told of a file is of the bytes that are read now


def _json_representation(body: bytes, *, is_stored: bool) -> Representation:
    etag = etag_of(sha256_hex(body)).encode()
    headers = [*JSON_HEADERS, (b"etag", etag), _NO_CACHE]
    return Representation(headers, etag, len(body), body, is_stored)


def _representation(look: Look, body: bytes | Chunks | None) -> Representation:
    etag = etag_of(look.form.sha256).encode()
    return Representation(_content_headers(look, etag), etag, look.form.size_bytes, body, look.is_stored)


def _content_headers(look: Look, etag: bytes) -> list[tuple[bytes, bytes]]:
    name = quote(_file_name(look), safe="")
    return [
        (b"content-type", look.form.content_type.encode()),
        (b"etag", etag),
        (b"content-disposition", f"inline; filename*=UTF-8''{name}".encode()),
        *_CONTENT_HEADERS,
    ]


_NO_CACHE = (b"cache-control", b"private, no-cache")
_CONTENT_HEADERS = (
    _NO_CACHE,
    (b"accept-ranges", b"none"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"sandbox; default-src 'none'"),
)
_ENDINGS = {"application/json": ".json", "text/markdown; charset=utf-8": ".md"}


def _file_name(look: Look) -> str:
    """Name a download: what stands there, with the ending of what it is, and nothing hidden that would lie about it."""
    ending = _ENDINGS.get(look.form.content_type, ".txt")
    name = visible(look.answer.name)
    return name if name.lower().endswith(ending) or (ending == ".txt" and "." in name) else name + ending


def read_narrowing(query_string: bytes) -> Narrowing:
    """Read the query of a step, whose names were judged.

    Raises:
        InvalidParameter: a value is none that the parameter can have.
    """
    if not query_string:
        return WHOLE
    try:
        given = dict(parse_qsl(query_string.decode("ascii"), keep_blank_values=True, errors="strict"))
    except (UnicodeDecodeError, ValueError) as error:
        raise InvalidParameter("the query is not percent-encoded UTF-8") from error
    asked = given.get("format")
    if asked is not None and asked not in FORMATS:
        raise InvalidParameter(f"format={asked[:40]!r} is none: one is {', '.join(FORMATS)}")
    return Narrowing(given.get("path"), asked, _count("attempt", given), _count("occurrence", given))


def _count(parameter: str, given: dict[str, str]) -> int | None:
    text = given.get(parameter)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise InvalidParameter(f"{parameter}={text[:40]!r} is no number from 1")
    return int(text) if len(text) <= _COUNT_DIGITS and int(text) <= MAX_COUNT else MAX_COUNT


_COUNT_DIGITS = 18
