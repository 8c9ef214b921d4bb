"""Repeats: what is refused again and again is told a few times, and then counted.

The invariant: a flood of refusals writes no more lines a second than there are routes and statuses, times a few; and
every one of them is in a line or in a count.
"""

import asyncio

import structlog

from app.domain.limits import REPEATED_LINES

log = structlog.get_logger("app.access")

INTERVAL_SECONDS = 1.0


class Repeats:
    """Tells which lines to write. Bounded, as routes are templates."""

    def __init__(self, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self._interval_seconds = interval_seconds
        self._counts: dict[tuple[str, int], int] = {}

    def is_told(self, route: str, status: int) -> bool:
        """Count a refusal, and tell whether it gets a line of its own; the others get one together, a little later."""
        key = route, status
        count = self._counts.get(key, 0)
        if not count:
            asyncio.get_running_loop().call_later(self._interval_seconds, self._end, key)
        self._counts[key] = count + 1
        return count < REPEATED_LINES.value

    def _end(self, key: tuple[str, int]) -> None:
        more = self._counts.pop(key) - REPEATED_LINES.value
        if more > 0:
            log.info("repeated", route=key[0], status=key[1], count=more)
