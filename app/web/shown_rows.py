"""Rows that a page shows already: a page that asks for news of itself gets those that changed, and no others.

The invariant: a row is known by a digest of its view and of whatever else its markup depends on, so that one with the
same mark is the same row; the server remembers nothing of what it sent, and any process can answer.
"""

import base64
import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple

SHOWN_HEADER = "stepplane-shown"
"""What a page shows: the marks of the rows of each list one after the other, a dot between two lists."""

_MARK_BYTES = 6
_MARK_CHARS = 8


class Row(NamedTuple):
    """A row to write; or, without a view, those from one mark to another, which stay as they are shown.

    Attributes:
        it: the view of the row; None for rows that stay.
        mark: tells this row from every other, and from itself before it changed; of several, the first one's.
        last_mark: of the last row that stays; that of the row itself otherwise.
    """

    it: Any
    mark: str
    last_mark: str


class ShownRows:
    """Tells which rows of a list the asker has.

    Args:
        told: the header that the asker sent; empty for none, and whatever is no list of marks counts as unknown marks.
        edition: of templates and program: rows of another one are not ours.
    """

    def __init__(self, told: str, edition: str) -> None:
        self._edition = edition
        self._places: dict[str, int] = {}
        place = 0
        for marks in told.split("."):
            for start in range(0, len(marks), _MARK_CHARS):
                self._places[marks[start : start + _MARK_CHARS]] = place
                place += 1
            place += 1  # the last of one list and the first of the next do not stand side by side

    def rows(self, lines: Iterable[object], *also: object) -> list[Row]:
        """List the rows of lines; those that the asker shows side by side already are one.

        Args:
            lines: the views of the rows, no two alike.
            also: what else the markup of each of them depends on.
        """
        rows: list[Row] = []
        before: int | None = None
        for line in lines:
            mark = self._mark(line, also)
            place = self._places.get(mark)
            if place is None:
                rows.append(Row(line, mark, mark))
            elif before is not None and place == before + 1:
                rows[-1] = rows[-1]._replace(last_mark=mark)
            else:
                rows.append(Row(None, mark, mark))
            before = place
        return rows

    def _mark(self, line: object, also: tuple[object, ...]) -> str:
        told = repr((self._edition, line, also)).encode("utf-8", "surrogatepass")
        return base64.urlsafe_b64encode(hashlib.blake2s(told, digest_size=_MARK_BYTES).digest()).decode()
