"""The server that the demo runs against: one that answers already, or one that it starts.

The invariant: a server that was there before is left as it is; one that was started here is ended here.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from app.client import StepplaneClient, Unreachable
from app.demo.processes import DemoError, end, start

HOST = "127.0.0.1"
_PROBE_SECONDS = 2.0
_START_SECONDS = 20.0
_POLL_SECONDS = 0.05


class Server(NamedTuple):
    """A server that answers."""

    url: str
    process: asyncio.subprocess.Process | None = None
    """None where somebody else started it."""


@asynccontextmanager
async def running_server(url: str | None, port: int, log_path: Path) -> AsyncIterator[Server]:
    """Use the server that answers, or start one for as long as the block runs.

    Args:
        url: the server to use; None looks for one on this machine's ``port`` and starts it there if there is none.
        port: where to look and to start.
        log_path: takes what a started server says.

    Raises:
        Unreachable: ``url`` was given, and nothing answers there.
        DemoError: something else has the port, or the server did not start.
    """
    if url is not None:
        if not await _is_stepplane(url):
            raise DemoError(f"what answers at {url} is no stepplane server")
        yield Server(url)
        return
    url = f"http://{HOST}:{port}"
    if await _is_open(port):
        if not await _is_healthy(url):
            raise DemoError(
                f"port {port} is in use by something that is no stepplane server: "
                "choose another with --port or STEPPLANE_PORT"
            )
        yield Server(url)
        return
    process = await _start(port, log_path)
    try:
        await _until_healthy(url, process, log_path)
        yield Server(url, process)
    finally:
        await end(process)


async def _start(port: int, log_path: Path) -> asyncio.subprocess.Process:
    with log_path.open("ab") as log:
        return await start(["-m", "app", "serve", "--host", HOST, "--port", str(port)], os.environ, log.fileno())


async def _until_healthy(url: str, process: asyncio.subprocess.Process, log_path: Path) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _START_SECONDS
    while loop.time() < deadline:
        if process.returncode is not None:
            raise DemoError(f"the server did not start: {last_line(log_path)}")
        if await _is_healthy(url):
            return
        await asyncio.sleep(_POLL_SECONDS)
    raise DemoError(f"the server did not answer within {_START_SECONDS:.0f} seconds: see {log_path}")


def last_line(log_path: Path) -> str:
    """Return the last thing that a server said, without its own name before it."""
    lines = [line for line in log_path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].strip().removeprefix("stepplane: ") if lines else "it ended without a word"


async def _is_healthy(url: str) -> bool:
    try:
        return await _is_stepplane(url)
    except Unreachable:
        return False


async def _is_stepplane(url: str) -> bool:
    async with StepplaneClient(url, timeout_seconds=_PROBE_SECONDS) as client:
        return await client.is_stepplane()


async def _is_open(port: int) -> bool:
    """Tell whether anything at all listens on this machine's port."""
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    writer.close()
    return True
