"""Database URLs: which are understood, and what each driver calls them.

The invariant: a password never appears in a sentence; :attr:`DatabaseUrl.safe` is what may be shown.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from app.storage.postgres.options import PostgresOptions, UnusableOption, read_options


class UnusableDatabase(Exception):
    """The database cannot be used; the sentence says why and what to do."""


class DatabaseUrl(NamedTuple):
    """A database that can be opened."""

    url: URL
    """Where it is and who connects; of its query, no more than the hosts of a server."""

    options: PostgresOptions = PostgresOptions()

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
        return self.url.set(drivername="postgresql+asyncpg")

    @property
    def safe(self) -> str:
        """The URL without its password."""
        return self.url.render_as_string(hide_password=True)

    @property
    def libpq_url(self) -> str:
        """A server's URL as its own programs take it, without the password, and without how to connect."""
        at = self.url
        bare = URL.create("postgresql", at.username, host=at.host, port=at.port, database=at.database, query=at.query)
        return bare.render_as_string()

    def without_password(self, sentence: str) -> str:
        """Take the password out of what a driver says."""
        password = str(self.url.password or "")
        for spelling in {password, quote(password), quote(password, safe=""), repr(password)[1:-1]} - {""}:
            sentence = sentence.replace(spelling, "***")
        return sentence


def parse_database_url(text: str) -> DatabaseUrl:
    """Read a database URL.

    Raises:
        UnusableDatabase: it is no URL, or of a database that is not supported.
    """
    try:
        url = make_url(_encoded(text))
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
    if backend == "postgresql":
        return _server(url)
    for name in url.query:
        raise UnusableDatabase(
            f"STEPPLANE_DATABASE_URL has the parameter {name!r}, which is not understood here: leave it away"
        )
    return DatabaseUrl(url)


def _server(url: URL) -> DatabaseUrl:
    """Part a server's URL into where it is, who connects, and how."""
    try:
        options = read_options(url.query)
    except UnusableOption as error:
        raise UnusableDatabase(f"STEPPLANE_DATABASE_URL {error}") from error
    hosts = {name: value for name, value in url.query.items() if name in {"host", "port"}}
    url, who = url.set(query=hosts), url.query
    return DatabaseUrl(
        url.set(
            username=_last(who.get("user", url.username)),
            password=_last(who.get("password", url.password)),
            database=_last(who.get("dbname", url.database)),
        ),
        options,
    )


def _last(given: str | Sequence[str] | None) -> str | None:
    return given if given is None or isinstance(given, str) else given[-1]


def _encoded(text: str) -> str:
    """Bring a server's URL to one spelling: ``postgres://`` to its long name, who connects to percent-encoding.

    The last ``@`` ahead of the path ends the password, so that it may hold more of them. One behind that would be of a
    password with a ``/`` or ``?``, or of an option, and no rule can tell: half a password would read as a host.
    """
    parts = re.fullmatch(r"(?P<scheme>postgres[^:/]*)://(?P<authority>[^/?]*)(?P<rest>.*)", text, re.DOTALL)
    if parts is None:
        return text
    if "@" in parts["rest"]:
        raise UnusableDatabase(
            "STEPPLANE_DATABASE_URL has an @ where none can be: in a user, a password or a parameter write "
            "@ as %40, : as %3A, / as %2F, ? as %3F, # as %23 and % as %25"
        )
    scheme = re.sub(r"^postgres(?=\+|$)", "postgresql", parts["scheme"])
    who, at, where = parts["authority"].rpartition("@")
    user, colon, password = who.partition(":")
    return f"{scheme}://{_again(user)}{colon}{_again(password)}{at}{where}{parts['rest']}"


def _again(text: str) -> str:
    return quote(unquote(text), safe="")


_EXAMPLES = "sqlite:///path/to/file.db and postgresql://user:password@host/name"
