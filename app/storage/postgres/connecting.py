"""Connecting: the one way to a PostgreSQL server, be a pooler in between or not.

The invariant: through a pooler nothing outlives its transaction: no prepared statement, no setting, no lock. A pooler
in transaction mode gives each transaction another connection to the server, and none of what stood on the last one.

That one is there is found out on each connection: a pooler tells its clients a process id that it made up, for them to
cancel with, and the server itself knows its own.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import urlencode

import asyncpg
from asyncpg.transaction import Transaction
from sqlalchemy import Dialect, event
from sqlalchemy.dialects.postgresql import asyncpg as asyncpg_dialect
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.util import await_only

from app.storage.urls import DatabaseUrl

T = TypeVar("T")

CONNECT_TIMEOUT_SECONDS = 10.0
"""How long connecting may take, where the URL does not say."""

_dialect: Dialect = asyncpg_dialect.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped


class Connector:
    """Makes connections to one database."""

    def __init__(self, url: DatabaseUrl) -> None:
        self._arguments = _arguments(url)
        self._settings = dict(url.options.settings)
        self._is_told = url.options.is_pooled
        self.is_pooled = True
        """Whether the newest connection goes through a pooler; supposed at first, as that way is right with both."""

    async def connect(self) -> "asyncpg.Connection[Any]":
        """Connect, in the way that suits what answers."""
        for supposed in (self.is_pooled, not self.is_pooled):
            connection = await self._open(pooled=supposed)
            try:
                self.is_pooled = self._is_told or await _goes_through_a_pooler(connection)
                if self.is_pooled == supposed:
                    return await self._set_up(connection)
                await connection.close()
            except BaseException:
                connection.terminate()
                raise
        return await self._set_up(await self._open(pooled=True))  # one address, and not always the same behind it

    async def _set_up(self, connection: "asyncpg.Connection[Any]") -> "asyncpg.Connection[Any]":
        if is_pooled(connection):
            connection.settings = self._settings
        elif self._settings:
            await connection.execute(_setting(self._settings, local=False))
        return connection

    async def _open(self, *, pooled: bool) -> "asyncpg.Connection[Any]":
        ways = {"connection_class": PooledConnection, "statement_cache_size": 0} if pooled else {}
        return await asyncpg.connect(**self._arguments, **ways)

    def engine(self, **options: Any) -> AsyncEngine:
        """Make a SQLAlchemy engine whose connections are made here."""
        engine = create_async_engine("postgresql+asyncpg://", **options)
        event.listen(engine.sync_engine, "do_connect", self._connect_for_sqlalchemy)
        return engine

    def _connect_for_sqlalchemy(self, dialect: Any, _record: Any, _arguments: Any, _parameters: Any) -> Any:
        try:
            connection = await_only(self.connect())
        except Exception as error:  # noqa: BLE001 - handed over to be translated as SQLAlchemy translates what it meets
            return dialect.loaded_dbapi.connect(async_creator_fn=_raising(error))
        pooled = is_pooled(connection)
        # A statement without a name lasts until the next one, which inside one transaction is long enough.
        ways = {"prepared_statement_cache_size": 0, "prepared_statement_name_func": str} if pooled else {}
        return dialect.loaded_dbapi.connect(async_creator_fn=_returning(connection), **ways)


def is_pooled(connection: "asyncpg.Connection[Any]") -> bool:
    """Tell whether a connection was made for a pooler."""
    return type(connection) is PooledConnection  # to isinstance() every asyncpg connection is one of each class


class PooledConnection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """A connection through a pooler: a statement runs in a transaction, and each transaction is set up anew."""

    __slots__ = ("settings",)
    settings: dict[str, str]

    def transaction(self, *, isolation: Any = None, readonly: bool = False, deferrable: bool = False) -> Transaction:
        """Make a transaction that begins with the settings of the URL."""
        return _SetUp(self, isolation, readonly, deferrable)

    async def fetchval(self, query: str, *values: Any, column: int = 0, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - the signature is asyncpg's
        """Fetch one value; asyncpg asks so whether a server is the one that ``target_session_attrs`` wants."""
        async with super().transaction():
            return await super().fetchval(query, *values, column=column, timeout=timeout)

    async def set_type_codec(self, typename: str, **codec: Any) -> None:
        """Learn how to read a type, for which the server is asked; SQLAlchemy does this on each connection."""
        async with super().transaction():
            await super().set_type_codec(typename, **codec)


class _SetUp(Transaction):  # type: ignore[misc]  # asyncpg has no types
    async def start(self) -> None:
        # A pooler answers when it has a connection to the server for us, which may be never.
        await _in_time(self._connection, super().start())
        settings = getattr(self._connection, "settings", None)
        if settings:
            try:
                await self._connection.execute(_setting(settings, local=True))
            except BaseException:
                await self.rollback()
                raise


async def _goes_through_a_pooler(connection: "asyncpg.Connection[Any]") -> bool:
    # As a simple query, which leaves no statement behind and needs no transaction; its tag counts the rows.
    own = connection.get_server_pid()
    query = f"SELECT FROM pg_catalog.pg_backend_pid() AS pid WHERE pid = {own}"
    tag = await _in_time(connection, connection.execute(query))
    return str(tag) != "SELECT 1"


async def _in_time(connection: "asyncpg.Connection[Any]", answer: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
            return await answer
    except TimeoutError as error:
        connection.terminate()
        raise asyncpg.ConnectionFailureError("the database did not answer in time") from error


def _setting(settings: dict[str, str], *, local: bool) -> str:
    """Write the query that sets what the URL asks for: for one transaction, or for the session."""
    calls = (
        f"pg_catalog.set_config({_quoted(name)}, {_quoted(value)}, {str(local).lower()})"
        for name, value in settings.items()
    )
    return f"SELECT {', '.join(calls)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"  # standard_conforming_strings is on since PostgreSQL 9.1


def _arguments(url: DatabaseUrl) -> dict[str, Any]:
    options = url.options
    _, arguments = _dialect.create_connect_args(url.url)
    given: dict[str, Any] = {
        **arguments,
        "timeout": options.connect_timeout_seconds or CONNECT_TIMEOUT_SECONDS,
        "target_session_attrs": options.target_session_attrs,
    }
    if options.tls:
        given["dsn"] = "postgresql://?" + urlencode(options.tls)  # asyncpg takes the files of TLS in no other way
    if options.application_name is not None:
        given["server_settings"] = {"application_name": options.application_name}
    return given


def _returning(connection: Any) -> Callable[[], Awaitable[Any]]:
    async def create() -> Any:
        return connection

    return create


def _raising(error: Exception) -> Callable[[], Awaitable[Any]]:
    async def create() -> Any:
        raise error

    return create
