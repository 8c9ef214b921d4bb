"""Core statements on a raw SQLite cursor.

The invariant: a statement that returned has no row left to fetch, and so holds no state of the database.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Executable
from sqlalchemy.dialects import sqlite as sqlite_dialect

from app.storage.compiled import CompiledStatements
from app.storage.reader import Row


def execute(connection: sqlite3.Connection, statement: Executable, parameters: Mapping[str, Any]) -> sqlite3.Cursor:
    """Run a statement on a raw connection."""
    sql = _statements.of(statement, parameters)
    return connection.execute(sql.text, sql.bind(parameters))


_statements = CompiledStatements(sqlite_dialect.dialect(paramstyle="qmark"))


class SqliteRows:
    """What a statement returned, already fetched; see :class:`app.storage.writer.Rows`."""

    __slots__ = ("_rows",)

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    def first(self) -> Row | None:
        """Return the first row, if there is one."""
        return self._rows[0] if self._rows else None

    def one(self) -> Row:
        """Return the one row."""
        (row,) = self._rows
        return row

    def scalar_one(self) -> Any:
        """Return the one value of the one row."""
        return self.one()[0]

    def scalar_one_or_none(self) -> Any:
        """Return the one value of the one row, or None where there is none."""
        return self.scalar_one() if self._rows else None

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows in the statement's order."""
        return iter(self._rows)


class SqliteStatements:
    """Writes to SQLite; see :class:`app.storage.writer.Writer`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(
        self, statement: Executable, parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None, /
    ) -> SqliteRows:
        """Run a statement, for each of several sets of parameters in their order."""
        if parameters is None or isinstance(parameters, Mapping):
            return SqliteRows(execute(self._connection, statement, parameters or {}).fetchall())
        rows: list[Row] = []
        for given in parameters:
            rows += execute(self._connection, statement, given).fetchall()
        return SqliteRows(rows)
