"""Cursors: where the next page of a list begins, as a text that only the server reads.

The invariant: a cursor is a place in the order of creation, so a page never shows a row twice, whatever comes in.
"""

import base64
import binascii

from app.domain.errors import InvalidParameter

NEWEST = 2**62
"""Before this place stands everything."""


def position_of(cursor: str | None) -> int:
    """Read a cursor: the place before which a page begins; None begins with the newest.

    Raises:
        InvalidParameter: it is none that a page gave out.
    """
    if cursor is None:
        return NEWEST
    try:
        seq = int(base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError) as error:
        raise InvalidParameter("cursor is none that a page gave out: start again without one") from error
    if not 0 < seq < NEWEST:
        raise InvalidParameter("cursor is none that a page gave out: start again without one")
    return seq


def cursor_at(seq: int) -> str:
    """Write the cursor of the page that begins before a place."""
    return base64.urlsafe_b64encode(str(seq).encode()).decode()


def next_cursor(seqs: list[int], limit: int) -> str | None:
    """Write the cursor of the page after one of ``limit`` rows, of which one more was looked for; None at the end."""
    return cursor_at(seqs[limit - 1]) if len(seqs) > limit else None
