"""The reader: what the reading stores know of a database.

The invariant: a statement is a constant of its module, compiled once; what varies is bound.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from sqlalchemy import Select

Row = Sequence[Any]


class Reader(Protocol):
    """Runs statements against the committed state."""

    async def all(self, statement: Select[Any], /, **parameters: Any) -> Sequence[Row]:
        """Run a statement and return its rows, in its order."""
        ...

    async def first(self, statement: Select[Any], /, **parameters: Any) -> Row | None:
        """Run a statement and return its first row, if it has one."""
        ...
