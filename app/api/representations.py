"""Representations: what stands at an address of the debug plane, and those that were served last.

The invariant: a representation is served again only while no commit has happened since before it was made.
"""

from collections.abc import Callable
from typing import NamedTuple

from starlette.types import Scope

from app.api.answers import Answer, Headers, header_values, matches, not_modified
from app.domain.answers import Chunks

MAX_KEPT_BYTES = 32 * 1024 * 1024
"""How many bytes of bodies are kept for the next reader."""

_MAX_KEPT = 4096
_MAX_BODY_BYTES = 1024 * 1024


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

    def answer(self, scope: Scope) -> Answer | None:
        """Answer a request for it; None where that takes the body, which is not here."""
        tags = header_values(scope, b"if-none-match")
        if tags and matches(tags, self.etag):
            return not_modified(self.headers)
        if scope["method"] == "HEAD":
            return Answer(200, self.headers, b"", self.size_bytes)
        return None if self.body is None else Answer(200, self.headers, self.body, self.size_bytes)


class RecentRepresentations:
    """Remembers what was served since the database last changed.

    Most readers of a debug plane ask the same again: pages that poll, workers that follow the same pointer. As long
    as nobody commits, they get the same bytes for a look into memory, and any commit, of whichever process, empties
    it. So it needs no list of what a write makes stale, which could be wrong.

    Args:
        version: returns a number that differs after any commit; None where that cannot be told.
    """

    def __init__(self, version: Callable[[], int | None]) -> None:
        self._read_version = version
        self._version: int | None = None
        self._kept: dict[tuple[str, bytes], Representation] = {}
        self._kept_bytes = 0

    def find(self, key: tuple[str, bytes]) -> Representation | None:
        """Return what stands at an address, given as path and query, unless that could have changed.

        After None, :meth:`keep` takes what is read now.
        """
        version = self._read_version()
        if version is None or version != self._version:
            self._forget()
            self._version = version
        return self._kept.get(key)

    @property
    def version(self) -> int | None:
        """The version that the last :meth:`find` saw: what is read after it is at least as new."""
        return self._version

    def keep(self, key: tuple[str, bytes], found: Representation, version: int | None) -> None:
        """Remember what was read after :attr:`version` was ``version``."""
        body_bytes = len(found.body) if isinstance(found.body, bytes) else 0
        is_whole = found.body is None or isinstance(found.body, bytes)
        if version is None or version != self._version or not is_whole or not found.is_stored:
            return
        if body_bytes > _MAX_BODY_BYTES:
            return
        if self._kept_bytes + body_bytes > MAX_KEPT_BYTES or len(self._kept) >= _MAX_KEPT:
            self._forget()
        before = self._kept.get(key)
        if before is not None and isinstance(before.body, bytes):
            self._kept_bytes -= len(before.body)
        self._kept[key] = found
        self._kept_bytes += body_bytes

    def _forget(self) -> None:
        self._kept.clear()
        self._kept_bytes = 0
