"""Running it: the server as a process, and what is done to its database from the command line.

The invariant: whatever stands against a start is a :class:`StartupError` of one sentence, before anything is served.
"""

import asyncio
import functools
import gc
import resource
import shlex
import signal
import socket
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import uvicorn

from app import __version__
from app.api.connections import BoundedProtocol, Bounds, Crowd
from app.config import Settings
from app.domain.errors import StorageFull
from app.domain.limits import SPARE_DESCRIPTORS
from app.main import StartupError, create_app, now
from app.observability import set_up_logs
from app.services.leftovers import Leftovers
from app.services.retention import Pruned, Retention
from app.services.stale_runs import StaleRuns
from app.storage import migrations
from app.storage.opening import open_database
from app.storage.sqlite.copies import back_up, rewrite
from app.storage.urls import DatabaseUrl, UnusableDatabase, parse_database_url


class Ended(StartupError):
    """The server could not go on; the sentence says why."""


def migrate(settings: Settings) -> str:
    """Bring the database to the schema of this program, and say what was done.

    Raises:
        StartupError: it cannot be opened, or a newer program has migrated it.
    """
    try:
        url = parse_database_url(settings.database_url)
        before, after = migrations.migrate(url)
    except UnusableDatabase as error:
        raise StartupError(str(error)) from error
    if before == after:
        return f"{url.safe} is up to date (revision {after})"
    return f"{url.safe} was migrated from {before or 'nothing'} to revision {after}"


def prune(settings: Settings, older_than: timedelta, *, keep_last: int = 0, dry_run: bool = False) -> str:
    """End stale runs and remove runs that ended long ago, and say what was done; see :meth:`Retention.prune`.

    Raises:
        StartupError: the database cannot be used, or is a file that is not there.
    """

    async def run(url: DatabaseUrl) -> tuple[int, Pruned]:
        database = open_database(url)
        try:
            after = timedelta(seconds=settings.stale_run_after_seconds)
            if not dry_run:
                await Leftovers(database, settings.allowed_roots).sweep()  # before what names their directories goes
            pruned = await Retention(database, clock=now).prune(older_than, keep_last=keep_last, dry_run=dry_run)
            ended = 0
            with suppress(StorageFull):  # the room that was made goes first; the server ends them too
                ended = await StaleRuns(database, clock=now).end(after, dry_run=dry_run) if after else 0
            return ended, pruned
        finally:
            await database.close()

    url = _existing(settings)
    migrate(settings)
    ended, pruned = asyncio.run(run(url))
    did = "would " if dry_run else ""
    removed = f"{did}remove{'' if dry_run else 'd'} {_runs(pruned.runs)}, {pruned.size_bytes} bytes of outputs"
    stale = f"; {did}end{'' if dry_run else 'ed'} {_runs(ended)} that nothing was written to" if ended else ""
    return f"{removed}, from {url.safe}{stale}"


def backup(settings: Settings, target: Path) -> str:
    """Copy a SQLite database to a file, while it may be in use, and say what was copied.

    Raises:
        StartupError: it is none, cannot be read or is damaged, or the copy cannot be written.
    """
    url = _existing(settings)
    if not url.is_sqlite:
        command = f"pg_dump --format=custom --file={shlex.quote(str(target))} {shlex.quote(url.libpq_url)}"
        raise StartupError(f"PostgreSQL's own program saves this one (the password in PGPASSWORD): {command}")
    try:
        size_bytes = back_up(url.path, target.absolute())
    except UnusableDatabase as error:
        raise StartupError(str(error)) from error
    return f"saved {url.safe} to {target}: {size_bytes} bytes, checked"


def vacuum(settings: Settings) -> str:
    """Write a SQLite file anew without the room that it does not use, and say how much that was.

    Raises:
        StartupError: it is none, a server has it open, or there is no room for a second one.
    """
    url = _existing(settings)
    if not url.is_sqlite:
        raise StartupError("PostgreSQL uses the room of what was removed again by itself: there is nothing to do")
    try:
        before, after = rewrite(url.path)
    except UnusableDatabase as error:
        raise StartupError(str(error)) from error
    return f"wrote {url.safe} anew: {before} bytes before, {after} bytes now"


def _existing(settings: Settings) -> DatabaseUrl:
    """Read the URL of a database that something is to be done to; a SQLite file is not made for that.

    Raises:
        StartupError: it is no URL, or of a file that is not there.
    """
    try:
        url = parse_database_url(settings.database_url)
    except UnusableDatabase as error:
        raise StartupError(str(error)) from error
    if url.is_sqlite and not url.path.exists():
        hint = "name yours with STEPPLANE_DATABASE_URL"
        if _OF_MAKE_RUN.exists():
            hint += f"; that of `make run` is STEPPLANE_DATABASE_URL=sqlite:///{_OF_MAKE_RUN}"
        raise StartupError(f"there is no database at {url.path}: {hint}")
    return url


_OF_MAKE_RUN = Path(".data/stepplane.db")
"""Where the Makefile keeps the database of `make run`."""


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or Ctrl-C; migrates the database first.

    Raises:
        StartupError: the database cannot be used, the port is taken, or the address is open without a token.
        Ended: its database was deleted under it.
    """
    if not settings.listens_on_loopback and settings.operator_token is None and not settings.insecure:
        raise StartupError(
            f"{settings.host} can be reached from other machines: set STEPPLANE_OPERATOR_TOKEN, "
            "or pass --insecure to let everybody read and write everything"
        )
    set_up_logs(settings.log_format, settings.log_level)
    migrate(settings)
    app = create_app(settings)
    with _bound(settings.host, settings.port) as listener:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        url = f"http://{host}:{listener.getsockname()[1]}"
        where = parse_database_url(settings.database_url).safe
        sys.stderr.write(f"stepplane {__version__} listens on {url} (to look around: {url}/ui), keeps all in {where}\n")
        sys.stderr.flush()
        server = server_of(app, keep_alive_seconds=settings.keep_alive_seconds, max_connections=raise_descriptors())
        ended = _run(app, server, listener)
    if ended:
        raise Ended(ended[0])


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise StartupError(f"cannot listen on {host}:{port}: {error.strerror}; another --port may be free") from error
    return listener


_GC_THRESHOLD = 50_000
"""New containers between two collections. A list of 1,000 steps makes some 5,000, all gone with its answer."""


def _run(app: Any, server: uvicorn.Server, listener: socket.socket) -> list[str]:
    """Serve until a signal; return why it ended where the application itself asked for that."""
    ended: list[str] = []

    def end(sentence: str) -> None:
        ended.append(sentence)
        server.should_exit = True

    app.state.end = end
    # What is loaded now stays: the collector need not look through it again and again, nor after every list.
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    # uvicorn raises the signal again once it has stopped; that the user asked it to stop is no failure.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    server.run(sockets=[listener])
    return ended


def server_of(
    app: Any, *, keep_alive_seconds: float, max_connections: int, bounds: Bounds | None = None, stops_within: int = 10
) -> uvicorn.Server:
    """Make the HTTP server of an application, with its bounds on connections."""
    protocol: Any = functools.partial(BoundedProtocol, bounds=bounds or Bounds(), crowd=Crowd(max_connections))
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            lifespan="on",
            log_config=None,  # the log is set up already
            access_log=False,  # the envelope's line says more, and costs less
            server_header=False,
            proxy_headers=False,  # nothing here asks where a request came from: URLs have the configured base
            timeout_keep_alive=keep_alive_seconds,  # type: ignore[arg-type]  # a timer takes fractions as well
            timeout_graceful_shutdown=stops_within,
        )
    )


def raise_descriptors() -> int:
    """Take as many descriptors as this process may have, and tell how many connections they are good for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    held = _MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else min(soft, _MAX_DESCRIPTORS)
    return max(held - SPARE_DESCRIPTORS.value, held // 2)


_MAX_DESCRIPTORS = 65_536
