"""Bodies: read within a limit, and parsed strictly.

The invariant: a body over its limit is refused while it streams, and nothing of it is kept.
"""

import math
import re
from collections.abc import Callable, Coroutine
from typing import Any

import yaml
from fastapi import Request, Response
from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from app.api.answers import header_values
from app.api.errors import UnsupportedEncoding
from app.domain.errors import InvalidJson, Malformed, NestedTooDeep, TooLarge
from app.domain.limits import YAML_BYTES, YAML_CHARS, YAML_NODES
from app.domain.values import MAX_DEPTH_TAKEN, JsonValue, parse_json
from app.routes import KnownRoute
from app.services.threads import LONG_BYTES, run_beside

LIMIT_KEY = "stepplane.limit_bytes"
"""Where the guard leaves how large this request's body may be."""

LOAD_KEY = "stepplane.load"
"""Where the envelope leaves what counts this request's body."""

SIZE_KEY = "stepplane.size_bytes"
"""Where the size of the body is, once it was read."""

_YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})


async def read_body(scope: Scope, receive: Receive) -> bytes:
    """Read a body whole.

    A long one is counted while it comes, and waits for its turn to be worked on; the envelope gives both back.

    Raises:
        UnsupportedEncoding: it is coded, and would be read as what it is not.
        TooLarge: it is over the limit; told by its declared length where there is one, else as soon as it shows.
        Busy: as many long bodies are held as there is room for.
    """
    limit_bytes: int = scope[LIMIT_KEY]
    for coding in header_values(scope, b"content-encoding"):
        if coding.strip().lower() not in {b"", b"identity"}:
            raise UnsupportedEncoding(coding.decode("latin-1"))
    declared = b"".join(header_values(scope, b"content-length")[:1])
    if declared.isdigit() and int(declared) > limit_bytes:
        raise TooLarge(limit_bytes, int(declared))
    chunks: list[bytes] = []
    size_bytes, has_more = 0, True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Malformed("the body broke off")
        chunk: bytes = message.get("body", b"")
        size_bytes += len(chunk)
        if size_bytes > limit_bytes:
            raise TooLarge(limit_bytes, None)
        scope[LOAD_KEY].grow(size_bytes)
        chunks.append(chunk)
        has_more = message.get("more_body", False)
    await scope[LOAD_KEY].start()
    scope[SIZE_KEY] = size_bytes
    return b"".join(chunks)


class BodyRoute(KnownRoute):
    """A route whose body is read within its limit, and is strict JSON whatever its type says."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Hand the framework a request that reads its body our way."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(self._request(request))

        return handle

    def _request(self, request: Request) -> Request:
        return _JsonRequest(request.scope, request.receive)


class YamlBodyRoute(BodyRoute):
    """A route whose body may also be YAML, where its type says so."""

    def _request(self, request: Request) -> Request:
        given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        kind = _YamlRequest if given in _YAML_TYPES else _JsonRequest
        return kind(request.scope, request.receive)


class _JsonRequest(Request):
    @property
    def headers(self) -> Headers:
        # To the framework every body here is JSON: a curl that names no type sends one all the same.
        if not hasattr(self, "_headers"):
            others = [(key, value) for key, value in self.scope["headers"] if key != b"content-type"]
            self._headers = Headers(raw=[*others, (b"content-type", b"application/json")])
        return self._headers

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            self._body = await read_body(self.scope, self.receive)
        return self._body

    async def json(self) -> JsonValue:
        body = await self.body()
        return await run_beside(len(body), parse_json, body, MAX_DEPTH_TAKEN)


class _YamlRequest(_JsonRequest):
    async def json(self) -> JsonValue:
        body = await self.body()
        if len(body) > YAML_BYTES.value:
            raise InvalidJson(f"the YAML is {len(body)} bytes; over {YAML_BYTES.value} bytes send JSON instead")
        return await run_beside(max(len(body), LONG_BYTES), parse_yaml, body)


def parse_yaml(body: bytes) -> JsonValue:
    """Parse YAML whose values are those of JSON: dates stay text, keys are text.

    Raises:
        InvalidJson: it is no YAML, holds something that JSON has not, or aliases blow it up.
        NestedTooDeep: it nests deeper than is taken.
    """
    try:
        document = yaml.load(body, Loader=_JsonLoader)  # noqa: S506 - a SafeLoader with less in it
    except yaml.YAMLError as error:
        raise InvalidJson(f"this is not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise NestedTooDeep(MAX_DEPTH_TAKEN) from error
    except (ValueError, LookupError, AttributeError) as error:  # what the parser's own constructors let escape
        raise InvalidJson("this is not YAML: a value is not what its tag says it is") from error
    _check(document)
    return document


# libyaml's parser is seven times as fast, and limits nesting; where PyYAML came without it, its own will do.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _JsonLoader(_Loader):  # type: ignore[misc]  # which of the two is known only where it runs
    """YAML's core schema: ``yes`` and ``2026-01-01`` are text, as in JSON they would have to be."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Refuse merge keys: following them takes a time that grows with the square of the document, or worse."""
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                message = "a merge key (<<) is not taken: write the fields out"
                raise yaml.constructor.ConstructorError(None, None, message, key.start_mark)


_CORE = {"tag:yaml.org,2002:null", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:merge"}
_JsonLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in _CORE]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_JsonLoader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))


def _check(document: JsonValue) -> None:
    """Walk what an alias may have made a huge or endless tree, and stop early."""
    level, nodes, chars = [document], 0, 0
    for _ in range(MAX_DEPTH_TAKEN + 1):
        children: list[JsonValue] = []
        for node in level:
            _check_node(node)
            nodes += 1
            chars += _text_chars(node)
            if chars > YAML_CHARS.value:
                raise InvalidJson(f"the YAML has over {YAML_CHARS.value} characters once its aliases are followed")
            if isinstance(node, dict):
                children.extend(node.values())
            elif isinstance(node, list):
                children.extend(node)
            if nodes + len(children) > YAML_NODES.value:
                raise InvalidJson(f"the YAML has over {YAML_NODES.value} values once its aliases are followed")
        if not any(isinstance(node, dict | list) for node in level):
            return
        level = children
    raise NestedTooDeep(MAX_DEPTH_TAKEN)


def _text_chars(node: JsonValue) -> int:
    if isinstance(node, dict):
        return sum(map(len, node))
    return len(node) if isinstance(node, str) else 0


def _check_node(node: JsonValue) -> None:
    if isinstance(node, dict):
        for key in node:
            if not isinstance(key, str):
                raise InvalidJson(f"the YAML has the key {key!r:.80}, and a key must be text: quote it")
    elif isinstance(node, float) and not math.isfinite(node):
        raise InvalidJson("the YAML holds a number that is not finite, which JSON has not")
    elif node is not None and not isinstance(node, str | int | float | list):
        raise InvalidJson(f"the YAML holds a {type(node).__name__}, which JSON has not")
