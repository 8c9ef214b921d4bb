"""What a PostgreSQL URL says behind its question mark: the words of libpq, of providers and of other drivers.

The invariant: an option is followed, or is known to change nothing here, or is refused by its name; none is dropped.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from app.domain.faults import nearest


class UnusableOption(Exception):
    """An option that cannot be followed; the sentence names it, and of its value nothing but what is public."""


class PostgresOptions(NamedTuple):
    """How to connect, beyond where to and as whom."""

    tls: Mapping[str, str] = {}
    """libpq's ``sslmode`` and the files that go with it."""

    settings: Mapping[str, str] = {}
    """Settings of the session, as in ``search_path``."""

    application_name: str | None = None
    connect_timeout_seconds: float | None = None
    target_session_attrs: str | None = None
    is_pooled: bool = False
    """Whether the URL says that a pooler stands in between; that one does is found out without it too."""


def read_options(query: Mapping[str, str | Sequence[str]]) -> PostgresOptions:
    """Read the options of a URL; ``host``, ``port`` and who connects are no options and are left to the caller.

    Raises:
        UnusableOption: one is not known, or has a value that it cannot have.
    """
    given = {name: value if isinstance(value, str) else value[-1] for name, value in query.items()}
    for name in given:
        if name not in _KNOWN:
            raise UnusableOption(
                f"has the parameter {name!r}, which is not understood here: leave it away "
                f"(the nearest that is: {nearest(name, _KNOWN)})"
            )
    settings = _settings(given.get("options", ""))
    if "schema" in given:
        settings["search_path"] = given["schema"]
    attributes = given.get("target_session_attrs")
    return PostgresOptions(
        tls=_tls(given),
        settings=settings,
        application_name=given.get("application_name"),
        connect_timeout_seconds=_timeout(given.get("connect_timeout")),
        target_session_attrs=None if attributes is None else _one_of(_SESSIONS, "target_session_attrs", attributes),
        is_pooled=any(given.get(name, "").lower() in says for name, says in _POOLER_WORDS.items()),
    )


_PLACES = frozenset({"host", "port", "user", "password", "dbname"})  # the caller reads them
_TLS_FILES = ("sslrootcert", "sslcert", "sslkey", "sslpassword", "sslcrl")
_TLS_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_TLS_FLAGS = {"true": "require", "1": "require", "false": "disable", "0": "disable"}  # JDBC's and Node's ssl=true
_SESSIONS = ("any", "primary", "standby", "read-write", "read-only", "prefer-standby")
_POOLER_WORDS = {
    "pgbouncer": frozenset({"true", "1"}),  # Prisma's, as providers paste it
    "statement_cache_size": frozenset({"0"}),  # asyncpg's
    "prepared_statement_cache_size": frozenset({"0"}),  # SQLAlchemy's
}
# The driver binds no channel and sends no keep-alives of its own, and the size of the pool is ours.
_WITHOUT_EFFECT = frozenset(
    {
        "channel_binding", "gssencmode", "sslsni", "sslcompression", "keepalives", "keepalives_idle",
        "keepalives_interval", "keepalives_count", "tcp_user_timeout", "connection_limit", "pool_timeout",
    }
)  # fmt: skip
_KNOWN = frozenset(
    {
        "ssl", "sslmode", *_TLS_FILES, "options", "schema", "application_name", "connect_timeout",
        "target_session_attrs", *_POOLER_WORDS, *_WITHOUT_EFFECT, *_PLACES,
    }
)  # fmt: skip


def _tls(given: Mapping[str, str]) -> dict[str, str]:
    tls = {name: given[name] for name in _TLS_FILES if name in given}
    for name in ("ssl", "sslmode"):
        if name in given:
            tls["sslmode"] = _one_of(_TLS_MODES, name, _TLS_FLAGS.get(given[name], given[name]))
    return tls


def _timeout(given: str | None) -> float | None:
    """Read libpq's seconds; 0 waits as long as it takes there, which here is as if nothing were said."""
    if given is None:
        return None
    if not re.fullmatch(r"[0-9]{1,5}", given):
        raise UnusableOption(f"has connect_timeout={given!r}, which is no number of seconds")
    return float(given) or None


def _one_of(known: Sequence[str], name: str, given: str) -> str:
    if given not in known:
        raise UnusableOption(f"has {name}={given!r}; it is one of {', '.join(known)}")
    return given


def _settings(options: str) -> dict[str, str]:
    """Read ``-c name=value``, ``-cname=value`` and ``--name=value``; a backslash keeps a blank in a value."""
    settings: dict[str, str] = {}
    words = [re.sub(r"\\(.)", r"\1", word) for word in re.findall(r"(?:\\.|[^\s\\])+", options)]
    while words:
        word = words.pop(0)
        if word == "-c" and words:
            word += words.pop(0)
        setting = re.fullmatch(r"(?:-c|--)([A-Za-z_][\w.-]*)=(.*)", word, re.DOTALL)
        if setting is None:
            raise UnusableOption("has options that are not understood here: they are '-c name=value', percent-encoded")
        settings[setting[1].replace("-", "_")] = setting[2]
    return settings
