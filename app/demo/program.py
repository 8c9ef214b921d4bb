"""The demo as a program: find or start a server, run the pipeline, show the tour, wait for Ctrl-C.

The invariant: whatever it started has ended when it returns, however it is left.
"""

import asyncio
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_data_path

import app
from app.client import StepplaneClient
from app.demo.pipeline import FinishedRun, Plan, run_pipeline
from app.demo.processes import DemoError
from app.demo.server import HOST, Server, last_line, running_server
from app.demo.tour import keeping, tour_of

DEFAULT_PORT = 7777
_SIGTERM_STATUS = 128 + signal.SIGTERM


class DemoOptions(NamedTuple):
    """What the command line gives the demo."""

    folder: Path | None = None
    """None is this project's own source."""
    server_url: str | None = None
    """None looks on this machine's ``port`` and starts a server there if there is none."""
    port: int = DEFAULT_PORT
    token: str | None = None
    leave_up: bool = True
    pace_seconds: float = 0.1
    database_url: str | None = None
    """What a server that is started for the demo keeps all in; None where it is not to be shown."""


def run_demo(options: DemoOptions, show: Callable[[str], None]) -> int:
    """Run the demo and return its exit status.

    Raises:
        ClientError: something stands against it; the text says what.
        KeyboardInterrupt: Ctrl-C before the pipeline was through; everything that was started has ended.
    """
    try:
        return asyncio.run(_demo(options, show))
    except asyncio.CancelledError:  # SIGTERM or SIGHUP; Ctrl-C is a KeyboardInterrupt here
        return _SIGTERM_STATUS


async def _demo(options: DemoOptions, show: Callable[[str], None]) -> int:
    _cancel_on_signals()
    folder = (options.folder or _own_source()).resolve()
    work_dir = _new_work_dir()
    try:
        return await _demo_in(work_dir, folder, options, show)
    finally:
        with suppress(OSError):
            work_dir.rmdir()  # only where nothing was written: a server elsewhere, or one that did not start


async def _demo_in(work_dir: Path, folder: Path, options: DemoOptions, show: Callable[[str], None]) -> int:
    log_path = work_dir / "server.log"
    show(f"stepplane demo: a pipeline over {folder}")  # before the server, which takes its second to start
    async with running_server(options.server_url, options.port, log_path) as server:
        show(
            f"  server   {server.url}"
            + (f"   (started for the demo; its log: {log_path})" if server.process else "   (already running)")
        )
        async with StepplaneClient(server.url, options.token) as client:
            run = await run_pipeline(client, Plan(folder, work_dir, options.pace_seconds, show))
            show("\n" + await _tour(client, run, options))
        if server.process is not None:
            show("\n" + keeping(options.database_url))
            if options.leave_up:
                show(f"\nThe server stays up at {server.url}. Ctrl-C ends it; what was put out stays in the database.")
                await _until_stopped(server, log_path)
    return 0


async def _tour(client: StepplaneClient, run: FinishedRun, options: DemoOptions) -> str:
    is_default = client.base_url == f"http://{HOST}:{DEFAULT_PORT}"
    server_option = "" if is_default else f" --server {client.base_url}"
    return await tour_of(client, run, with_token=options.token is not None, server_option=server_option)


async def _until_stopped(server: Server, log_path: Path) -> None:
    """Wait for Ctrl-C or SIGTERM, which is the good end here; for the server's own end too, which is not.

    Raises:
        DemoError: the server ended by itself.
    """
    if server.process is None:
        return
    try:
        await server.process.wait()
    except asyncio.CancelledError:
        return
    raise DemoError(f"the server ended: {last_line(log_path)}")


def _cancel_on_signals() -> None:
    """Let SIGTERM and SIGHUP end the demo as Ctrl-C does, so that nothing it started is left behind."""
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if task is not None:
            loop.add_signal_handler(number, task.cancel)


def _own_source() -> Path:
    """Name the project's repository where the package lies in one, else the package."""
    package = Path(app.__file__).parent
    return package.parent if (package.parent / "pyproject.toml").is_file() else package


def _new_work_dir() -> Path:
    """Make the directory of this run's files; beside the database, since they should live as long."""
    parent = user_data_path("stepplane", appauthor=False) / "demo"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="run-", dir=parent))
    except OSError as error:
        raise DemoError(f"no directory for the demo's files can be made under {parent}: {error.strerror}") from error
