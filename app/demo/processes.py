"""The processes that the demo starts: each in a group of its own, none left behind.

The invariant: whoever starts a process here ends its whole group, however the caller leaves.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import app
from app.client import ClientError

_GRACE_SECONDS = 5.0
_ROOT = Path(app.__file__).resolve().parent.parent


class DemoError(ClientError):
    """The demo cannot go on; its text is one sentence for people."""


async def start(arguments: list[str], environment: Mapping[str, str], stderr: int) -> asyncio.subprocess.Process:
    """Start a Python program of this installation.

    ``-P`` and the path keep a folder named ``app`` in the user's own directory from being taken for this package. A new
    session keeps the terminal's Ctrl-C from reaching it before its parent decides.

    Args:
        arguments: what follows ``python``.
        environment: all of it.
        stderr: a file descriptor that takes both outputs, or ``asyncio.subprocess.PIPE`` for errors alone.
    """
    search_path = os.pathsep.join(filter(None, [str(_ROOT), environment.get("PYTHONPATH", "")]))
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        *arguments,
        env={**environment, "PYTHONPATH": search_path},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL if stderr == asyncio.subprocess.PIPE else stderr,
        stderr=stderr,
        start_new_session=True,
    )


async def end(process: asyncio.subprocess.Process) -> None:
    """End a process and its group: asked to stop, then made to."""
    if process.returncode is not None:
        return
    try:
        _signal(process, signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _GRACE_SECONDS)
    finally:  # also when a second Ctrl-C cancels the waiting
        if process.returncode is None:
            _signal(process, signal.SIGKILL)
            await process.wait()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it ended by itself in between
        os.killpg(process.pid, number)  # its pid is its group's: start_new_session
