"""One server and one bearer: requests out, answers in, every failure as a :class:`ClientError`.

The invariant: the bearer goes to the server that the caller named and nowhere else, and nothing shows it.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx

from app.client.errors import ClientError, ServerError, Unreachable
from app.domain.errors import InvalidJson
from app.domain.rendering import JSON_TYPE, compact_json
from app.domain.values import JsonValue, parse_json

RAW_TYPE = "application/octet-stream"
_IDLE_SECONDS = 30.0
"""How long an own connection may be idle: well under the 75 s of a server, so that it is the client that gives up."""
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class Content(NamedTuple):
    """The bytes of an OUTPUT with the headers they came with."""

    body: bytes
    headers: Mapping[str, str]
    not_modified: bool = False
    """True where the etag that the caller gave still holds: the body is then empty."""

    @property
    def etag(self) -> str:
        """The strong entity tag, with its quotes; empty when the server sent none."""
        return self.headers.get("etag", "")

    @property
    def content_type(self) -> str:
        """The media type of the body."""
        return self.headers.get("content-type", "")


class Connection:
    """The HTTP of the client: it knows the one error shape, and nothing of routes."""

    def __init__(
        self,
        base_url: str,
        token: str | None,
        transport: httpx.AsyncBaseTransport | None,
        timeout_seconds: float,
    ) -> None:
        url = _checked_url(base_url)
        is_loopback = url.host in _LOOPBACK
        self.base_url = str(url).rstrip("/")
        self._http = httpx.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {_checked_token(token)}"} if token else {},
            transport=transport,
            timeout=timeout_seconds,
            limits=httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=_IDLE_SECONDS),
            trust_env=not is_loopback,  # a proxy from the environment cannot reach this machine's loopback
            verify=url.scheme == "https" or not is_loopback,  # loading certificates for nothing takes 50 ms
        )

    async def aclose(self) -> None:
        """Close the sockets."""
        await self._http.aclose()

    async def get(self, address: str) -> JsonValue:
        """Get a JSON answer."""
        return await self.send("GET", address)

    async def post(self, address: str, document: JsonValue) -> JsonValue:
        """Post a JSON document; None answers where the server sent no body."""
        return await self.send("POST", address, compact_json(document), JSON_TYPE)

    async def send(
        self, method: str, address: str, body: bytes | None = None, media_type: str = JSON_TYPE
    ) -> JsonValue:
        """Send a request, with any body; None answers where the server sent none."""
        headers = {} if body is None else {"Content-Type": media_type}
        async with self.answer(method, address, body=body, headers=headers) as response:
            if response.status_code == httpx.codes.NO_CONTENT:
                return None
            try:
                return parse_json(await response.aread())
            except InvalidJson as error:
                raise _unexpected(response) from error

    async def content(self, address: str, etag: str | None = None) -> Content:
        """Get raw bytes, unless ``etag`` is still their tag."""
        headers = {"If-None-Match": etag} if etag else {}
        async with self.answer("GET", address, headers=headers) as response:
            unchanged = response.status_code == httpx.codes.NOT_MODIFIED
            return Content(await response.aread(), response.headers, not_modified=unchanged)

    @asynccontextmanager
    async def answer(
        self,
        method: str,
        address: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        checked: bool = True,
    ) -> AsyncIterator[httpx.Response]:
        """Open an answer whose body is still to come; ``checked`` lets only a success or a 304 through."""
        with self._reaching():
            response = await self._opened(method, address, body, headers)
            try:
                if checked and not response.is_success and response.status_code != httpx.codes.NOT_MODIFIED:
                    await response.aread()
                    raise _server_error(response)
                yield response
            finally:
                await response.aclose()

    async def _opened(
        self, method: str, address: str, body: bytes | None, headers: Mapping[str, str] | None
    ) -> httpx.Response:
        """Send a request until its answer begins; a read is sent again where a reused connection broke under it.

        A server may close an idle connection just as the next request leaves. On a fresh one it is another fault, and
        a write may have been done before the connection broke: neither is repeated.

        Source: RFC 9110 §9.2.2.
        """
        events: set[str] = set()

        async def note(event: str, _: Mapping[str, Any]) -> None:
            events.add(event)

        def request() -> httpx.Request:
            return self._http.build_request(method, address, content=body, headers=headers, extensions={"trace": note})

        try:
            return await self._http.send(request(), stream=True)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            is_reused = _SENDING in events and _CONNECTING not in events
            if method not in _READS or not is_reused:
                raise
        return await self._http.send(request(), stream=True)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except httpx.TimeoutException as error:
            raise Unreachable(f"the server at {self.base_url} did not answer in time") from error
        except httpx.ConnectError as error:
            raise Unreachable(f"no server answers at {self.base_url}: start one with 'stepplane serve'") from error
        except httpx.HTTPError as error:
            raise Unreachable(f"the connection to {self.base_url} broke: {type(error).__name__}") from error
        except httpx.InvalidURL as error:
            raise ClientError(f"no URL can hold this request: {error}") from error


_READS = frozenset({"GET", "HEAD"})
_CONNECTING, _SENDING = "connection.connect_tcp.started", "http11.send_request_headers.started"


def query_of(**given: str | int | None) -> str:
    """Write a query with its question mark; what is None is left out."""
    pairs = [f"{key}={quote(str(item), safe='')}" for key, item in given.items() if item is not None]
    return "?" + "&".join(pairs) if pairs else ""


def _checked_url(given: str) -> httpx.URL:
    try:
        url = httpx.URL(given)
    except httpx.InvalidURL as error:
        raise ClientError(_NO_URL) from error
    if url.scheme not in {"http", "https"} or not url.host or url.userinfo or url.query or url.fragment:
        raise ClientError(_NO_URL)
    return url


_NO_URL = "the server's URL has to be http://host:port or https://host:port, without a user, a query or a fragment"


def _checked_token(token: str) -> str:
    if not all("!" <= char <= "~" for char in token):
        raise ClientError("the token holds a character that cannot travel in a header")  # never the token itself
    return token


def _server_error(response: httpx.Response) -> ServerError:
    try:
        said = parse_json(response.content)
    except InvalidJson:
        return _unexpected(response)
    match said:
        case {"error": str(sentence), "code": str(code)}:
            return ServerError(response.status_code, code, sentence, said.get("request_id"), said.get("details"))
        case _:
            return _unexpected(response)


def _unexpected(response: httpx.Response) -> ServerError:
    url = response.url.copy_with(query=None)
    sentence = f"{url} answered {response.status_code} and not as a stepplane server does: is something else there?"
    return ServerError(response.status_code, "unexpected_answer", sentence)
