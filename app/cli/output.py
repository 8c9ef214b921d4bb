"""What the commands print: tables for people, JSON for machines, one line for what went wrong.

The invariant: text from elsewhere never reaches a terminal as a control sequence, and an id is never cut.
"""

import sys
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.domain.rendering import compact_json
from app.domain.values import JsonValue
from app.domain.visible import visible


def say(text: str) -> None:
    """Print lines at once, as they are but for control characters."""
    sys.stdout.write("\n".join(printable(line) for line in text.split("\n")) + "\n")
    sys.stdout.flush()


def complain(sentence: str) -> None:
    """Print one line to standard error."""
    sys.stderr.write(f"stepplane: {printable(' '.join(sentence.split()))}\n")


def show_json(value: JsonValue) -> None:
    """Print a value as one line of JSON."""
    sys.stdout.buffer.write(compact_json(value) + b"\n")
    sys.stdout.flush()


def show_table(columns: Sequence[str], rows: Iterable[Sequence[JsonValue]], *, empty: str) -> None:
    """Print a table: with rules on a terminal, plain aligned columns anywhere else.

    Args:
        columns: the heads.
        rows: the cells; None shows as ``-``.
        empty: what to say in place of a table without rows.
    """
    cells = [[_cell(item) for item in row] for row in rows]
    if not cells:
        say(empty)
    elif sys.stdout.isatty():
        _show_rich(columns, cells)
    else:
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        for row in (columns, *cells):
            say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def show_fields(fields: Iterable[tuple[str, JsonValue]]) -> None:
    """Print fields one a line."""
    pairs = [(name, _cell(item)) for name, item in fields]
    width = max((len(name) for name, _ in pairs), default=0)
    for name, cell in pairs:
        say(f"{name.ljust(width)}  {cell}")


def printable(text: str) -> str:
    """Write each character that a terminal would obey, or not show, as its escape."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in visible(text))


def _cell(item: JsonValue) -> str:
    if item is None:
        return "-"
    if isinstance(item, str):
        return printable(item)
    return compact_json(item).decode()


def _show_rich(columns: Sequence[str], cells: list[list[str]]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")  # a narrow terminal breaks an id; it never cuts one
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table)
