"""Comparisons: what differs between two outputs of one name.

The invariant: equal digests are equal outputs, told without loading either; what is compared was loaded whole.
"""

from typing import NamedTuple

from app.domain.comparing import Changes, LineDiff, diff_lines, list_changes
from app.domain.rendering import Narrowing, render_json
from app.domain.values import JsonValue
from app.services.looks import Look
from app.services.query import McpQueryAdapter
from app.services.threads import run_apart

COMPARED_BYTES = 4 * 2**20
"""How large each of two outputs may be to be compared: both are held, parsed and as lines, until that is done."""


class Side(NamedTuple):
    """One of two outputs: of a run, the newest or the one that is numbered."""

    run_id: str
    occurrence: int | None = None
    attempt: int | None = None


class Comparison(NamedTuple):
    """What differs: nothing where the digests are equal, and no more than that where an output is too large."""

    is_identical: bool
    is_too_large: bool
    changes: Changes | None = None
    diff: LineDiff | None = None


class Comparisons:
    """Compares outputs.

    Args:
        query: finds and loads them.
    """

    def __init__(self, query: McpQueryAdapter) -> None:
        self._query = query

    async def compare(self, task_id: str, name: str, before: Side, after: Side) -> Comparison:
        """Compare two outputs of a name, in runs of one task.

        Raises:
            NotFound: one of them is not there.
        """
        old, new = await self._look(task_id, name, before), await self._look(task_id, name, after)
        if old.form.sha256 == new.form.sha256:
            return Comparison(is_identical=True, is_too_large=False)
        size_bytes = max(old.form.size_bytes, new.form.size_bytes)
        if size_bytes > COMPARED_BYTES:
            return Comparison(is_identical=False, is_too_large=True)
        values = await self._query.load_value(old), await self._query.load_value(new)
        changes, diff = await run_apart(size_bytes * _SLOWER, _compare, *values)
        return Comparison(is_identical=False, is_too_large=False, changes=changes, diff=diff)

    async def _look(self, task_id: str, name: str, side: Side) -> Look:
        narrowing = Narrowing(None, "json", side.attempt, side.occurrence)
        return await self._query.look(task_id, side.run_id, name, narrowing)


# Finding what lines share takes some ten times as long as parsing them.
_SLOWER = 10


def _compare(old: JsonValue, new: JsonValue) -> tuple[Changes, LineDiff]:
    return list_changes(old, new), diff_lines(_text(old), _text(new))


def _text(value: JsonValue) -> str:
    """Write a value in lines: a text has its own, anything else those of its JSON."""
    return value if isinstance(value, str) else render_json(value).decode()
