"""Intake: long bodies are counted, wait their turn, and are let go."""

import asyncio

import pytest

from app.domain.errors import Busy
from app.domain.limits import LONG_BODY_BYTES
from app.services.intake import Intake, Load

LONG = LONG_BODY_BYTES.value


def test_what_has_no_room_is_refused_until_some_is_let_go() -> None:
    """Bytes beyond the limit are refused, and taken once others were given back."""
    intake = Intake(held_bytes=3 * LONG)
    first, second = Load(intake), Load(intake)
    first.grow(LONG)
    first.grow(2 * LONG)
    with pytest.raises(Busy):
        second.grow(LONG + 1)
    second.grow(LONG)
    second.release()
    first.release()
    second.grow(3 * LONG)


def test_a_short_body_counts_nothing() -> None:
    """However many short bodies there are, none is refused for the others."""
    intake = Intake(held_bytes=0)
    for _ in range(10):
        Load(intake).grow(LONG - 1)


async def test_bodies_take_turns_in_the_order_they_came() -> None:
    """What there is no room to work on waits, and goes on in the order in which it came; a huge one goes alone."""
    intake, order = Intake(worked_bytes=2 * LONG), list[str]()

    async def work(name: str, size_bytes: int) -> Load:
        load = Load(intake)
        load.grow(size_bytes)
        await load.start()
        order.append(name)
        return load

    first, second = await work("a", LONG), await work("b", LONG)
    later = [asyncio.create_task(work(name, size)) for name, size in (("huge", 9 * LONG), ("c", LONG), ("d", LONG))]
    await asyncio.sleep(0)
    assert order == ["a", "b"]
    first.release()
    await asyncio.sleep(0)
    assert order == ["a", "b"]
    second.release()
    huge = await later[0]
    assert order == ["a", "b", "huge"]
    huge.release()
    await asyncio.gather(*later[1:])
    assert order == ["a", "b", "huge", "c", "d"]


async def test_who_gives_up_waiting_keeps_nobody_waiting() -> None:
    """A request that is cancelled before its turn, or as it comes, leaves its place to the next."""
    intake = Intake(worked_bytes=LONG)
    await intake.start(LONG)
    gone, late, waits = (asyncio.create_task(intake.start(LONG)) for _ in range(3))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    intake.end(LONG)
    late.cancel()  # its turn has come, and it has not seen that yet
    await asyncio.wait_for(waits, 5)
    assert gone.cancelled()
    assert late.cancelled()
