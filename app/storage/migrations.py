"""Migrations: bring a database to the schema that this program knows.

The invariant: a database is changed in one transaction that no other process can be in at the same time.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from app.storage.postgres.connecting import Connector
from app.storage.sqlite.room import Room, is_about_room
from app.storage.urls import DatabaseUrl, UnusableDatabase

T = TypeVar("T")

_LOCK_KEY = 7_777_001  # any constant that no other program is likely to take for its advisory lock


def migrate(url: DatabaseUrl, revision: str = "head") -> tuple[str | None, str | None]:
    """Bring a database up (or, in tests, down) to a revision; a SQLite file is made when it is not there.

    Returns:
        The revision before and after; None is an empty database.

    Raises:
        UnusableDatabase: it cannot be opened, is no database, or was migrated by a newer program.
    """
    if url.is_sqlite:
        _make_file(url.path)
    try:
        return _migrate_in_transaction(url, revision)
    except (DBAPIError, OSError) as error:
        reason = " ".join(str(getattr(error, "orig", None) or error).split())
        raise UnusableDatabase(f"the database {url.safe} cannot be used: {url.without_password(reason)}") from error


def _migrate_in_transaction(url: DatabaseUrl, revision: str) -> tuple[str | None, str | None]:
    def run() -> tuple[str | None, str | None]:
        return asyncio.run(_in_transaction(url, lambda connection: _migrate(connection, revision)))

    if not url.is_sqlite:
        return run()
    room = Room(url.path)
    try:
        done = run()
    except DBAPIError as error:
        if not is_about_room(error.orig) or not room.give_up_for_start():
            raise
        done = run()
    room.keep()
    return done


def _migrate(connection: Connection, revision: str) -> tuple[str | None, str | None]:
    config = config_for(connection)
    before = MigrationContext.configure(connection).get_current_revision()
    script = ScriptDirectory.from_config(config)
    if before is not None:
        try:
            script.get_revision(before)
        except CommandError as error:
            raise UnusableDatabase(
                f"the database is at revision {before}, which this program does not know: "
                "a newer stepplane has migrated it; use that one"
            ) from error
    target = script.get_current_head() if revision == "head" else revision
    if before == target:
        return before, before
    (command.upgrade if revision == "head" else command.downgrade)(config, revision)
    return before, MigrationContext.configure(connection).get_current_revision()


def config_for(connection: Connection) -> Config:
    """Return Alembic's configuration for our scripts, on a connection that is open already."""
    config = Config()
    config.set_main_option("script_location", str(scripts_dir()))
    config.attributes["connection"] = connection
    return config


def scripts_dir() -> Path:
    """Find the migration scripts: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parent.parent
    installed = package / "_migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


async def _in_transaction(url: DatabaseUrl, work: Callable[[Connection], T]) -> T:
    engine = _engine(url)
    try:
        if url.is_sqlite:
            # The driver would commit before each CREATE TABLE: the transaction is ours, and so is its lock.
            engine = engine.execution_options(isolation_level="AUTOCOMMIT")
            event.listen(engine.sync_engine, "connect", _set_up_file)
            async with engine.connect() as connection:
                await connection.exec_driver_sql("BEGIN EXCLUSIVE")
                result = await connection.run_sync(work)
                await connection.exec_driver_sql("COMMIT")
                return result
        async with engine.begin() as connection:
            await connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK_KEY})")
            return await connection.run_sync(work)
    finally:
        await engine.dispose()


def _engine(url: DatabaseUrl) -> AsyncEngine:
    if url.is_sqlite:
        return create_async_engine(url.async_url, poolclass=NullPool)
    return Connector(url).engine(poolclass=NullPool)


def _set_up_file(raw: Any, _record: Any) -> None:
    cursor = raw.cursor()
    cursor.execute("PRAGMA busy_timeout=30000")
    cursor.execute("PRAGMA auto_vacuum=INCREMENTAL")  # of a new file: what is removed can go back to the file system
    cursor.execute("PRAGMA journal_mode=WAL")  # kept in the file: readers never wait for the writer
    cursor.close()


def _make_file(path: Path) -> None:
    """Make the file readable by its owner alone: outputs may hold anything."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise UnusableDatabase(f"the database file {path} cannot be opened: {error.strerror}") from error
