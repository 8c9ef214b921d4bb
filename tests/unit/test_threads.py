"""Threads: what takes long runs beside the event loop, what is short on it."""

import asyncio
import threading

import pytest

from app.services.threads import LONG_BYTES, run_apart, run_beside


@pytest.mark.parametrize(("size_bytes", "is_beside"), [(0, False), (LONG_BYTES - 1, False), (LONG_BYTES, True)])
async def test_a_long_body_is_worked_on_in_a_thread(size_bytes: int, is_beside: bool) -> None:
    """Work over a long body leaves the event loop's thread, and its result comes back all the same."""
    thread, given = await run_beside(
        size_bytes, lambda *words, **named: (threading.get_ident(), (words, named)), 1, a=2
    )
    assert (thread != threading.get_ident()) is is_beside
    assert given == ((1,), {"a": 2})


@pytest.mark.parametrize("size_bytes", [0, LONG_BYTES])
async def test_what_goes_wrong_is_told(size_bytes: int) -> None:
    """What the work raises is raised to whoever waits for it, from a thread as well."""
    with pytest.raises(ValueError, match="x"):
        await run_beside(size_bytes, int, "x")


async def test_pages_take_no_thread_that_others_need() -> None:
    """Long work for pages, however much at once, has one thread, and it is none of those that submits and reads use."""
    work = [run_apart(LONG_BYTES, threading.get_ident) for _ in range(20)]
    pages, beside = set(await asyncio.gather(*work)), await run_beside(LONG_BYTES, threading.get_ident)
    assert len(pages) == 1
    assert not pages & {beside, threading.get_ident()}
    assert await run_apart(0, threading.get_ident) == threading.get_ident()
