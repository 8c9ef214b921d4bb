"""The cluster: a PostgreSQL database to measure on, ours alone.

The invariant: a server that was there before is left as it was, but for one database that is dropped at the end.
"""

import asyncio
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from sqlalchemy import URL, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from bench.servers import Stage, StartError, end_process, free_port

URL_VARIABLE = "BENCH_DATABASE_URL"

_STARTS_WITHIN_SECONDS = 30
_USER = "stepplane"


def find_postgres(stage: Stage) -> str | None:
    """Return the URL of an empty database: on the server of BENCH_DATABASE_URL, or else on a cluster of our own.

    Returns None where there is neither that nor an installed PostgreSQL.
    """
    given = os.environ.get(URL_VARIABLE)
    if given:
        return _create_database(stage, given)
    programs = _find_programs()
    if programs is None:
        return None
    return _create_database(stage, _start_cluster(stage, programs))


def _create_database(stage: Stage, url: str) -> str:
    server, name = make_url(url).set(drivername="postgresql+asyncpg"), f"stepplane_bench_{secrets.token_hex(6)}"
    asyncio.run(_administer(server, f'CREATE DATABASE "{name}"'))
    stage.at_end(lambda: asyncio.run(_administer(server, f'DROP DATABASE "{name}" WITH (FORCE)')))
    return server.set(drivername="postgresql", database=name).render_as_string(hide_password=False)


async def _administer(server: URL, statement: str) -> None:
    engine = create_async_engine(server, isolation_level="AUTOCOMMIT")  # no database is made in a transaction
    try:
        async with engine.connect() as connection:
            await connection.exec_driver_sql(statement)
    finally:
        await engine.dispose()


def _find_programs() -> Path | None:
    """Return the folder of the newest installed server's programs, where we may run them."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_version)
    elsewhere = shutil.which("initdb")
    initdb = debian[-1] if debian else None if elsewhere is None else Path(elsewhere).resolve()
    return None if initdb is None else initdb.parent


def _version(initdb: Path) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", initdb.parts[-3])]


def _start_cluster(stage: Stage, programs: Path) -> str:
    """Make a cluster in the stage's folder and start it on a free loopback port."""
    home = Path(tempfile.mkdtemp(prefix="postgres.", dir=stage.folder))
    data, log, port = home / "data", home / "log", free_port()
    options: dict[str, Any] = {"cwd": home}
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        stage.folder.chmod(0o711)
        shutil.chown(home, "postgres")
        options |= {"user": "postgres", "group": "postgres", "extra_groups": []}
    initdb = [str(programs / "initdb"), "--pgdata", str(data), "--username", _USER, "--auth", "trust"]
    made = subprocess.run(
        [*initdb, "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync"],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
    if made.returncode != 0:
        raise StartError(f"initdb: {made.stderr.strip()}")
    # Only reads are measured, so nothing has to outlive the machine.
    settings = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "", "fsync": "off"}
    argv = [str(programs / "postgres"), "-D", str(data)]
    process = stage.launch([*argv, *(f"--{name}={value}" for name, value in settings.items())], log, **options)
    stage.at_end(lambda: end_process(process, signal.SIGINT))  # its fast shutdown: it waits for nobody
    url = f"postgresql+asyncpg://{_USER}@127.0.0.1:{port}/postgres"
    until = time.monotonic() + _STARTS_WITHIN_SECONDS
    while not asyncio.run(_answers(url)):
        if process.poll() is not None or time.monotonic() > until:
            raise StartError(f"PostgreSQL did not start: {log.read_text().strip()}")
        time.sleep(0.1)
    return url


async def _answers(url: str) -> bool:
    try:
        await _administer(make_url(url), "SELECT 1")
    except (OSError, DBAPIError):
        return False
    return True
