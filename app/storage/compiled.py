"""Compiled statements: SQLAlchemy writes the SQL of a Core statement once, and stays out of the way after that.

The invariant: hot columns are in wire form (``app/storage/tables.py``), so no value needs converting either way.

Run by a raw driver a statement costs a tenth of what SQLAlchemy's own execution takes on SQLite, and half on
PostgreSQL.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from sqlalchemy import Dialect


class Sql(NamedTuple):
    """A statement as a driver takes it."""

    text: str
    names: tuple[str, ...]
    """The parameter that each placeholder stands for."""

    defaults: dict[str, Any]

    def bind(self, parameters: Mapping[str, Any]) -> list[Any]:
        """Put the parameters in the order of the placeholders."""
        given = {**self.defaults, **parameters} if self.defaults else parameters
        return [given[name] for name in self.names]


class CompiledStatements:
    """The statements of one dialect, whose placeholders are positional."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._known: WeakKeyDictionary[Any, dict[tuple[str, ...], Sql]] = WeakKeyDictionary()

    def of(self, statement: Any, parameters: Mapping[str, Any]) -> Sql:
        """Return a statement's SQL; an insert has the columns that it is given."""
        by_columns = self._known.get(statement)
        if by_columns is None:
            by_columns = self._known[statement] = {}
        columns = tuple(parameters)
        return by_columns.get(columns) or by_columns.setdefault(columns, self._compile(statement, columns))

    def _compile(self, statement: Any, columns: tuple[str, ...]) -> Sql:
        compiled = statement.compile(dialect=self._dialect, column_keys=columns or None)
        fixed = {name: bind for bind, name in compiled.bind_names.items() if not bind.required}
        defaults = {name: bind.effective_value for name, bind in fixed.items() if name not in columns}
        return Sql(str(compiled), tuple(compiled.positiontup or ()), defaults)
