"""Copies: a database file saved while it is written to, and one written anew without the room that it does not use.

The invariant: a copy stands under its name whole and checked, or what stood there before does.
"""

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from app.storage.sqlite.room import is_about_room
from app.storage.urls import UnusableDatabase


def back_up(source: Path, target: Path) -> int:
    """Copy a database file as it is at one moment, and return the size of the copy in bytes.

    Others read and write meanwhile; what they commit after that moment is not in the copy. It is one file, readable
    by its owner alone, and replaces what stood under its name.

    Raises:
        UnusableDatabase: it cannot be read, the copy cannot be written, or is found not to be whole.
    """
    if target.is_dir():
        raise UnusableDatabase(f"{target} is a directory: name a file")
    own = [source, *(source.with_name(source.name + suffix) for suffix in ("-wal", "-shm", ".reserve"))]
    if any(path.exists() and target.exists() and target.samefile(path) for path in own):
        raise UnusableDatabase(f"{target} belongs to the database itself: name another file")
    with _told(f"{source} cannot be copied to {target}", target.parent), _temporary_beside(target) as temporary:
        with closing(_opened(source)) as original, closing(sqlite3.connect(temporary, isolation_level=None)) as copy:
            copy.execute("PRAGMA synchronous=OFF")  # it is synchronised once, when it is whole
            original.backup(copy)  # in one step: one state, and no writer can make it begin again
            copy.execute("PRAGMA journal_mode=DELETE")  # a WAL would be a second file
            found = copy.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise UnusableDatabase(f"{source} is damaged, and was not saved: {found}")
        _synchronise(temporary)
        temporary.replace(target)
        _synchronise(target.parent)
    return target.stat().st_size


def rewrite(path: Path) -> tuple[int, int]:
    """Write a database file anew, so that what is removed from now on goes back to the file system.

    Returns:
        Its size before and after, in bytes.

    Raises:
        UnusableDatabase: another process has it open, or the disk has no room for a second one.
    """
    before = path.stat().st_size
    with _told(f"{path} cannot be written anew", path.parent), closing(_opened(path)) as connection:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            raise UnusableDatabase(f"another process has {path} open: stop the server first") from error
        connection.execute("COMMIT")  # the lock stays until the connection is closed
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return before, path.stat().st_size


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None)
    connection.execute("PRAGMA busy_timeout=0")
    return connection


@contextmanager
def _told(what: str, directory: Path) -> Iterator[None]:
    """Tell what the disk or SQLite says against it in one sentence."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        if is_about_room(error):
            raise UnusableDatabase(f"{what}: no room is left on the disk of {directory}") from error
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UnusableDatabase(f"{what}: {reason}") from error


@contextmanager
def _temporary_beside(target: Path) -> Iterator[Path]:
    """Give a new file in the directory of another, and remove it unless it was moved away."""
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)  # 0600
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            with suppress(OSError):
                temporary.with_name(temporary.name + suffix).unlink()


def _synchronise(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
