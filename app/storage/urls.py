"""Database URLs: which are understood, and what each driver calls them.

The invariant: a password never appears in a sentence; :attr:`DatabaseUrl.safe` is what may be shown.
"""

from pathlib import Path
from typing import NamedTuple

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError


class UnusableDatabase(Exception):
    """The database cannot be used; the sentence says why and what to do."""


class DatabaseUrl(NamedTuple):
    """A database that can be opened."""

    url: URL

    @property
    def is_sqlite(self) -> bool:
        """Tell a file from a server."""
        return self.url.get_backend_name() == "sqlite"

    @property
    def path(self) -> Path:
        """The SQLite file."""
        return Path(self.url.database or "").expanduser().absolute()

    @property
    def async_url(self) -> URL:
        """The URL with the asynchronous driver of its kind."""
        if self.is_sqlite:
            return self.url.set(drivername="sqlite+aiosqlite", database=str(self.path))
        query = {("ssl" if name == "sslmode" else name): item for name, item in self.url.query.items()}
        return self.url.set(drivername="postgresql+asyncpg", query=query)  # asyncpg's word for libpq's sslmode is ssl

    @property
    def safe(self) -> str:
        """The URL without its password."""
        return self.url.render_as_string(hide_password=True)


def parse_database_url(text: str) -> DatabaseUrl:
    """Read a database URL.

    Raises:
        UnusableDatabase: it is no URL, or of a database that is not supported.
    """
    try:
        url = make_url(text.replace("postgres://", "postgresql://", 1) if text.startswith("postgres://") else text)
    except (ArgumentError, ValueError) as error:
        raise UnusableDatabase(f"STEPPLANE_DATABASE_URL is no database URL; one is {_EXAMPLES}") from error
    backend = url.get_backend_name()
    if backend == "sqlite" and (
        not url.database or url.database.startswith((":memory:", "file:")) or "\x00" in url.database
    ):
        raise UnusableDatabase(
            "STEPPLANE_DATABASE_URL names no SQLite file: an output that was acknowledged must outlive the process"
        )
    if backend not in {"sqlite", "postgresql"}:
        raise UnusableDatabase(f"STEPPLANE_DATABASE_URL names a {backend} database; supported are {_EXAMPLES}")
    for name in url.query:
        if name not in _PARAMETERS[backend]:
            raise UnusableDatabase(
                f"STEPPLANE_DATABASE_URL has the parameter {name!r}, which is not understood here: leave it away"
            )
    return DatabaseUrl(url)


_PARAMETERS = {"sqlite": frozenset[str](), "postgresql": frozenset({"host", "port", "ssl", "sslmode"})}
_EXAMPLES = "sqlite:///path/to/file.db and postgresql://user:password@host/name"
