"""Paths: routing looks at a path as it was sent, so that a ``%2F`` is part of a name and a ``/`` separates.

The invariant: one spelling per path. Every segment is decoded and encoded again before anything judges or routes it.
"""

from urllib.parse import quote, unquote_to_bytes

from starlette.types import Scope

from app.domain.errors import InvalidParameter


def canonical_path(scope: Scope) -> str:
    """Return the path as it was sent, each segment in its one encoded spelling."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    path = raw.partition(b"?")[0]
    if b"%" not in path:
        return path.decode("latin-1") if path.isascii() else quote(path, safe="/")
    return "/".join(quote(unquote_to_bytes(segment), safe=_UNQUOTED) for segment in path.split(b"/"))


def decode_segment(segment: str) -> str:
    """Return the name that a segment spells.

    Raises:
        InvalidParameter: its bytes are no UTF-8.
    """
    if "%" not in segment:
        return segment
    try:
        return unquote_to_bytes(segment).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidParameter("a name in the path is not percent-encoded UTF-8") from error


# What RFC 3986 §3.3 lets stand in a segment; the rest is spelled with a percent sign.
_UNQUOTED = "-._~!$&'()*+,;=:@"
