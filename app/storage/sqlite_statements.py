"""Core statements on a raw SQLite cursor: SQLAlchemy writes the SQL, once, and stays out of the way after that.

The invariant: hot columns are in wire form (``app/storage/tables.py``), so no value needs converting either way.

A statement costs some 10 µs so; through SQLAlchemy's own execution it costs 100, and a submit has nine.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from sqlalchemy import Executable
from sqlalchemy.dialects import sqlite as sqlite_dialect

from app.storage.reader import Row


class _Sql(NamedTuple):
    text: str
    names: tuple[str, ...]
    """The parameter that each question mark stands for."""
    defaults: dict[str, Any]

    def bind(self, parameters: Mapping[str, Any]) -> list[Any]:
        given = {**self.defaults, **parameters} if self.defaults else parameters
        return [given[name] for name in self.names]


def execute(connection: sqlite3.Connection, statement: Executable, parameters: Mapping[str, Any]) -> sqlite3.Cursor:
    """Run a statement on a raw connection."""
    sql = _compiled(statement, parameters)
    return connection.execute(sql.text, sql.bind(parameters))


def _compiled(statement: Any, parameters: Mapping[str, Any]) -> _Sql:
    by_columns = _known.get(statement)
    if by_columns is None:
        by_columns = _known[statement] = {}
    columns = tuple(parameters)  # an insert has the columns that it is given
    sql = by_columns.get(columns)
    if sql is None:
        compiled = statement.compile(dialect=_dialect, column_keys=columns or None)
        names = tuple(compiled.positiontup or ())
        fixed = {name: bind for bind, name in compiled.bind_names.items() if not bind.required}
        defaults = {name: bind.effective_value for name, bind in fixed.items() if name not in parameters}
        sql = by_columns[columns] = _Sql(str(compiled), names, defaults)
    return sql


_known: WeakKeyDictionary[Any, dict[tuple[str, ...], _Sql]] = WeakKeyDictionary()
_dialect = sqlite_dialect.dialect(paramstyle="qmark")


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
        each = [parameters or {}] if parameters is None or isinstance(parameters, Mapping) else parameters
        rows: list[Row] = []
        for given in each:
            rows += execute(self._connection, statement, given).fetchall()
        return SqliteRows(rows)
