"""Forms: told from the raw bodies that curl sends under a form's type.

The invariant: a body is called a form only where its type and its bytes both say so.
"""

import re

from starlette.types import Scope

from app.api.answers import header_values
from app.api.errors import UnsupportedMediaType

_URLENCODED = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"


def refuse_form(scope: Scope, body: bytes) -> None:
    """Refuse a form where the bytes themselves are wanted: its frame would be kept as the output.

    Raises:
        UnsupportedMediaType: the body is a form.
    """
    given = b"".join(header_values(scope, b"content-type")[:1]).decode("latin-1")
    media_type = given.partition(";")[0].strip().lower()
    if media_type == _URLENCODED:
        is_form = _is_urlencoded(body)
    else:
        is_form = media_type == _MULTIPART and _is_multipart(given, body)
    if is_form:
        raise UnsupportedMediaType(media_type)


def _is_multipart(content_type: str, body: bytes) -> bool:
    boundary = _BOUNDARY.search(content_type)
    return boundary is not None and body[:_FRAME_BYTES].lstrip(b"\r\n").startswith(
        b"--" + (boundary[1] or boundary[2]).encode("latin-1")
    )


def _is_urlencoded(body: bytes) -> bool:
    """Tell a form from a text under curl's default type.

    One pair alone, as ``a=b`` or base64 with its padding, is more likely what a shell printed: it is a form only where
    something in it was escaped.
    """
    return _PAIRS.fullmatch(body) is not None and (b"&" in body or _ESCAPE.search(body) is not None)


# RFC 2046 §5.1.1: 70 characters at most. Bounded, so that neither costs more than reading once.
_BOUNDARY = re.compile(r"""boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))""", re.IGNORECASE)
_FRAME_BYTES = 128
_PAIRS = re.compile(rb"[A-Za-z0-9_.%+*-]+=[A-Za-z0-9_.%+*~-]*(?:&[A-Za-z0-9_.%+*-]+=[A-Za-z0-9_.%+*~-]*)*")
_ESCAPE = re.compile(rb"%[0-9A-Fa-f]{2}")
