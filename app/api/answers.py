"""Answers: a status, headers and a body, sent by the shortest way that ASGI has.

The invariant: an answer to HEAD has the headers of the one to GET, and no body.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.domain.answers import Chunks

Headers = list[tuple[bytes, bytes]]

JSON_HEADERS: Headers = [(b"content-type", b"application/json"), (b"x-content-type-options", b"nosniff")]


class Answer(NamedTuple):
    """What is sent; ``size_bytes`` where the body is left away (HEAD) or comes in chunks."""

    status: int
    headers: Headers
    body: bytes | Chunks = b""
    size_bytes: int | None = None

    async def send(self, scope: Scope, send: Send) -> None:
        """Send the answer."""
        size_bytes = len(self.body) if isinstance(self.body, bytes) and self.size_bytes is None else self.size_bytes
        headers = list(self.headers)
        if self.status != _NOT_MODIFIED and size_bytes is not None:
            headers.append((b"content-length", b"%d" % size_bytes))
        try:
            await send({"type": "http.response.start", "status": self.status, "headers": headers})
            if scope["method"] == "HEAD" or isinstance(self.body, bytes):
                body = b"" if scope["method"] == "HEAD" else self.body
                await send({"type": "http.response.body", "body": body})
                return
            async for chunk in self.body.chunks():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            if not isinstance(self.body, bytes):
                self.body.close()


_NOT_MODIFIED = 304


class AnswerResponse(Response):
    """An answer in the place of the framework's own response."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(status_code=answer.status)
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        """Send the answer."""
        await self._answer.send(scope, send)


def not_modified(headers: Headers) -> Answer:
    """Answer that what the client has is still right."""
    return Answer(_NOT_MODIFIED, headers)


def matches(if_none_match: Iterable[bytes], etag: bytes) -> bool:
    """Tell whether the client has the representation already: a list of tags, weak ones alike, or ``*``.

    Source: RFC 9110 §13.1.2 (weak comparison).
    """
    return any(given.strip() == b"*" or etag in _TAG.findall(given) for given in if_none_match)


_TAG = re.compile(rb'(?:W/)?("[^"]*")')


def header_values(scope: Scope, name: bytes) -> list[bytes]:
    """Return every value of a header; names are in lower case."""
    return [value for key, value in scope["headers"] if key == name]
