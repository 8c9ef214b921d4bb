"""Repeats: a flood of refusals is told in a few lines and a count."""

import asyncio

import structlog

from app.api.repeats import Repeats
from app.domain.limits import REPEATED_LINES

TOLD = REPEATED_LINES.value


async def test_the_first_are_told_and_the_rest_is_counted() -> None:
    """No refusal is lost: those without a line are in the count."""
    repeats = Repeats(interval_seconds=0.01)
    with structlog.testing.capture_logs() as lines:
        told = [repeats.is_told("/v1/tasks", 401) for _ in range(1_000)]
        await asyncio.sleep(0.05)
    assert told == [True] * TOLD + [False] * (1_000 - TOLD)
    assert lines == [
        {"event": "repeated", "log_level": "info", "route": "/v1/tasks", "status": 401, "count": 1_000 - TOLD}
    ]


async def test_other_routes_and_statuses_are_told_apart() -> None:
    """A flood hides nothing but itself."""
    repeats = Repeats()
    for _ in range(100):
        repeats.is_told("/v1/tasks", 401)
    assert repeats.is_told("/v1/tasks", 404)
    assert repeats.is_told("/v1/runs", 401)


async def test_a_few_get_no_count() -> None:
    """Where each had a line, there is nothing to add; and after an interval all starts anew."""
    repeats = Repeats(interval_seconds=0.01)
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            assert [repeats.is_told("/v1/tasks", 401) for _ in range(TOLD)] == [True] * TOLD
            await asyncio.sleep(0.05)
    assert lines == []
