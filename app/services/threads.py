"""Threads: what takes long runs beside the event loop, which would hold up everybody else meanwhile.

The invariant: what is short runs at once, since the hop to a thread costs more than it; what is long has threads of its
own, few enough that the loop comes by among them.
"""

import asyncio
import contextvars
import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from app.domain.limits import LONG_BODY_BYTES, WORKERS_PER_CORE

LONG_BYTES = LONG_BODY_BYTES.value
"""From this size on, parsing or rendering a body takes longer than a hop to a thread and back by far."""

P = ParamSpec("P")
T = TypeVar("T")


async def run_beside(size_bytes: int, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Do work over a body of this size: a long one's in a thread."""
    if size_bytes < LONG_BYTES:
        return work(*given, **named)
    return await asyncio.get_running_loop().run_in_executor(_HEAVY, functools.partial(work, *given, **named))


async def run_apart(size_bytes: int, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Do work for a person's page as :meth:`run_beside`, in one thread that all pages share.

    It can take seconds where somebody wants it to, and must not take the threads that submits and reads need.
    """
    if size_bytes < LONG_BYTES:
        return work(*given, **named)
    return await asyncio.get_running_loop().run_in_executor(
        _PAGES, functools.partial(contextvars.copy_context().run, work, *given, **named)
    )


_HEAVY = ThreadPoolExecutor(max_workers=WORKERS_PER_CORE.value * (os.cpu_count() or 1), thread_name_prefix="heavy")
_PAGES = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pages")
