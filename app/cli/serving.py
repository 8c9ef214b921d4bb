"""The commands that run something, or do something to a database: serve, migrate, prune, backup, vacuum, demo."""

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from app.cli import output
from app.cli.options import DEFAULT_PORT, TokenFileOption
from app.cli.session import operator_token

_DatabaseOption = Annotated[
    str | None,
    typer.Option(metavar="URL", help="sqlite:///file or postgresql://…; a password is safer in the environment."),
]


def _shown_database() -> str | None:
    """Name the database that a server of this shell would keep all in; None where the name may hold a password."""
    from app.config import default_database_url  # noqa: PLC0415  # as in serve

    url = os.environ.get("STEPPLANE_DATABASE_URL") or default_database_url()
    return url if url.startswith("sqlite") else None


_AGE = re.compile(r"([0-9]{1,6})([dhm])")
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}


def _parse_age(text: str) -> timedelta:
    age = _AGE.fullmatch(text)
    if age is None:
        raise typer.BadParameter(f"{text!r} is no age: one is a number and d, h or m, like 30d")
    return timedelta(**{_UNITS[age[2]]: int(age[1])})


def add_to(program: typer.Typer) -> None:
    """Give a program these commands."""
    for command in (serve, demo, migrate, prune, backup, vacuum):
        program.command()(command)


def serve(
    *,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    base_url: Annotated[str | None, typer.Option(metavar="URL", help="The server's public URL.")] = None,
    insecure: Annotated[
        bool | None, typer.Option("--insecure", help="Listen beyond loopback without an operator token.")
    ] = None,
    database_url: _DatabaseOption = None,
    worker_token_ttl_seconds: Annotated[int | None, typer.Option(help="How long a worker handle is good for.")] = None,
    max_output_bytes: Annotated[int | None, typer.Option(help="The largest body that a worker may submit.")] = None,
    projection_root: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="Files may be written and read under it; repeatable.")
    ] = None,
    log_format: Annotated[str | None, typer.Option(metavar="console|json", help="The form of the log.")] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="debug|info|warning|error", help="The least level that is logged.")
    ] = None,
) -> None:
    """Serve the debug plane until SIGTERM or Ctrl-C; what is not given comes from STEPPLANE_* variables."""
    from app.cli import startup  # noqa: PLC0415  # brings the whole server: a second that other commands need not wait

    startup.serve(
        host=host,
        port=port,
        base_url=base_url,
        insecure=insecure,
        database_url=database_url,
        worker_token_ttl_seconds=worker_token_ttl_seconds,
        max_output_bytes=max_output_bytes,
        projection_roots=projection_root or None,
        log_format=log_format,
        log_level=log_level,
    )


def migrate(*, database_url: _DatabaseOption = None) -> None:
    """Bring the database to this program's schema."""
    from app.cli import startup  # noqa: PLC0415  # as in serve

    output.say(startup.migrate(database_url=database_url))


def prune(
    *,
    older_than: Annotated[
        timedelta,
        typer.Option(parser=_parse_age, metavar="AGE", help="How long ago a run must have ended: 30d, 12h, 90m."),
    ],
    keep_last: Annotated[
        int, typer.Option(metavar="N", min=0, max=2**31 - 1, help="The newest runs of each task that stay.")
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    database_url: _DatabaseOption = None,
) -> None:
    """Remove runs that ended long ago, and their outputs; never one that has not ended."""
    from app.cli import startup  # noqa: PLC0415  # as in serve

    output.say(startup.prune(older_than, keep_last=keep_last, dry_run=dry_run, database_url=database_url))


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to; it is replaced if it is there.")],
    *,
    database_url: _DatabaseOption = None,
) -> None:
    """Save a SQLite database to a file, whole and checked, while a server writes to it."""
    from app.cli import startup  # noqa: PLC0415  # as in serve

    output.say(startup.backup(file, database_url=database_url))


def vacuum(*, database_url: _DatabaseOption = None) -> None:
    """Write a SQLite database anew, so that the room of what was removed goes back; no server may have it open."""
    from app.cli import startup  # noqa: PLC0415  # as in serve

    output.say(startup.vacuum(database_url=database_url))


def demo(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="FOLDER", exists=True, file_okay=False, help="What to work on; default: this project."),
    ] = None,
    *,
    then_exit: Annotated[
        bool, typer.Option("--exit", help="End the server that was started for it, and exit.")
    ] = False,
    port: Annotated[
        int,
        typer.Option(envvar="STEPPLANE_PORT", min=1, max=65535, help="Where to look for a server, and to start one."),
    ] = DEFAULT_PORT,
    server: Annotated[
        str | None,
        typer.Option("--server", envvar="STEPPLANE_SERVER", metavar="URL", help="Use this server; start none."),
    ] = None,
    token_file: TokenFileOption = None,
    pace: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="A pause after each step, to watch it.")] = 0.1,
) -> None:
    """Run a real pipeline on a folder, and show how to look at what it put out."""
    from app.demo.program import DemoOptions, run_demo  # noqa: PLC0415  # as in serve, though less

    token = operator_token(token_file)
    options = DemoOptions(
        folder, server, port, token, leave_up=not then_exit, pace_seconds=pace, database_url=_shown_database()
    )
    raise typer.Exit(run_demo(options, output.say))
