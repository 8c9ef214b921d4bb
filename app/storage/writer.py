"""The writer: what the writing stores know of a database.

The invariant: everything that one writer executes is in one transaction.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import Executable

from app.storage.reader import Row


class Rows(Protocol):
    """What a statement returned."""

    def first(self) -> Row | None:
        """Return the first row, if there is one."""
        ...

    def one(self) -> Row:
        """Return the one row."""
        ...

    def scalar_one(self) -> Any:
        """Return the one value of the one row."""
        ...

    def scalar_one_or_none(self) -> Any:
        """Return the one value of the one row, or None where there is none."""
        ...

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows in the statement's order."""
        ...


class Writer(Protocol):
    """Runs statements inside one transaction. A SQLAlchemy connection is one."""

    def execute(
        self, statement: Executable, parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None, /
    ) -> Rows:
        """Run a statement, for each of several sets of parameters in their order."""
        ...
