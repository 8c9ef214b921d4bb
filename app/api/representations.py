"""Representations: what stands at an address of the debug plane.

The invariant: GET, HEAD and a conditional request of one address are answered from one representation, and so agree.
"""

from typing import NamedTuple

from starlette.types import Scope

from app.api.answers import Answer, Headers, header_values, matches, not_modified
from app.domain.answers import Chunks


class Representation(NamedTuple):
    """What stands at an address.

    Source: RFC 9110 §8.
    """

    headers: Headers
    etag: bytes
    size_bytes: int
    body: bytes | Chunks | None
    """None where it was not needed: for HEAD, and where the client has it."""

    is_stored: bool
    """Whether the database alone decides it: a file on disk changes without telling."""

    @property
    def may_be_kept(self) -> bool:
        """Tell whether it can be served again: no file has a say in it, and its body is here or is not wanted."""
        return self.is_stored and (self.body is None or isinstance(self.body, bytes))

    def kept_bytes(self, key: tuple[str, bytes]) -> int:
        """Tell how much memory it takes under its address, roughly."""
        body_bytes = len(self.body) if isinstance(self.body, bytes) else 0
        return body_bytes + len(key[0]) + len(key[1]) + _HEADERS_BYTES

    def answer(self, scope: Scope) -> Answer | None:
        """Answer a request for it; None where that takes the body, which is not here."""
        tags = header_values(scope, b"if-none-match")
        if tags and matches(tags, self.etag):
            return not_modified(self.headers)
        if scope["method"] == "HEAD":
            return Answer(200, self.headers, b"", self.size_bytes)
        return None if self.body is None else Answer(200, self.headers, self.body, self.size_bytes)


_HEADERS_BYTES = 1024
