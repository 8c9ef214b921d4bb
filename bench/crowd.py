"""The crowd: a SQLite database of very many runs, each a copy of one that the product's services wrote.

The invariant: every copy has ids, a handle and a ``content_url`` of its own, and can be read like any other run.
"""

import contextlib
import random
import sqlite3
from pathlib import Path
from typing import NamedTuple

from bench.documents import document
from bench.seed import NewRun, SeededRun, seed

STEPS_PER_RUN = 10
BYTES_PER_RUN = 27_000
"""What one run takes on disk, indexes included: measured, rounded up."""

_BODY_BYTES = 128
_READ_ADDRESSES = 1_000


class Crowd(NamedTuple):
    """A seeded database, and some of its runs to read."""

    database_url: str
    runs: int
    read: list[SeededRun]


def seed_crowd(path: Path, runs: int) -> Crowd:
    """Write a database of this many runs of ten outputs each."""
    database_url = f"sqlite:///{path}"
    values = {name: document(name, _BODY_BYTES) for name in (f"step-{number}" for number in range(STEPS_PER_RUN))}
    original = seed(database_url, {"original": NewRun(values)})["original"]
    _copy(path, original, runs - 1)
    numbers = random.Random(runs).sample(range(runs), min(runs, _READ_ADDRESSES // STEPS_PER_RUN))  # noqa: S311 - the same in each run
    return Crowd(database_url, runs, [_copied(original, number) for number in numbers])


def _copy(path: Path, original: SeededRun, copies: int) -> None:
    """Copy the rows of the one run of a database, in one statement a table."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "cache_size=-1000000", "temp_store=MEMORY"):
            connection.execute(f"PRAGMA {pragma}")
        indexes = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")
        dropped = indexes.fetchall()
        for name, _ in dropped:
            connection.execute(f'DROP INDEX "{name}"')
        connection.execute("BEGIN")
        connection.execute("CREATE TEMP TABLE copies (number INTEGER PRIMARY KEY, mark TEXT NOT NULL)")
        marks = ((number, _mark(number)) for number in range(1, copies + 1))
        connection.executemany("INSERT INTO copies VALUES (?, ?)", marks)
        connection.execute("CREATE TEMP TABLE original (task_id TEXT, run_id TEXT)")
        connection.execute("INSERT INTO original VALUES (?, ?)", (original.task_id, original.run_id))
        for table in ("tasks", "runs", "dispatches", "bodies", "outputs", "projections"):
            _copy_table(connection, table)
        connection.execute("COMMIT")
        for _, sql in dropped:
            connection.execute(sql)
        connection.execute("PRAGMA journal_mode=WAL")


def _copy_table(connection: sqlite3.Connection, table: str) -> None:
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    rows = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - a name from above
    written = ", ".join(_COPIED.get((table, column)) or _COPIED.get(column, f"o.{column}") for column in columns)
    connection.execute(
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {written} "  # noqa: S608 - names of our own schema
        f"FROM copies CROSS JOIN (SELECT * FROM {table}) AS o CROSS JOIN original ORDER BY number",
        {"rows": rows},
    )


def _mark(number: int) -> str:
    """Write the eight digits that make the ids of one copy its own; in no order, as random ids are."""
    return f"{number * 2_654_435_761 % 2**32:08x}"


def _own(column: str, prefix: str) -> str:
    """Write the SQL of an id: its prefix, the mark of the copy, and the other half of the original's digits."""
    return f"'{prefix}' || mark || substr(o.{column}, {len(prefix) + 9})"


_TASK, _RUN = _own("task_id", "T-"), _own("run_id", "R-")
_PLACED = "o.summary_tail"
for _column, _prefix in (("task_id", "T-"), ("run_id", "R-")):
    _PLACED = (
        f"replace({_PLACED}, original.{_column}, '{_prefix}' || mark || substr(original.{_column}, {len(_prefix) + 9}))"
    )
_PLACED = f"replace({_PLACED}, o.step_id, {_own('step_id', 'ST-')})"
_NUMBERED = "number * :rows + o.{}"
_COPIED: dict[str | tuple[str, str], str] = {
    "seq": _NUMBERED.format("seq"),
    ("bodies", "id"): _NUMBERED.format("id"),
    "body_id": _NUMBERED.format("body_id"),
    "output_seq": _NUMBERED.format("output_seq"),
    ("tasks", "id"): _own("id", "T-"),
    ("runs", "id"): _own("id", "R-"),
    ("outputs", "id"): _own("id", "out-"),
    "task_id": _TASK,
    "run_id": _RUN,
    "step_id": _own("step_id", "ST-"),
    "handle_sha256": _own("handle_sha256", ""),
    "summary_tail": f"CAST({_PLACED} AS BLOB)",
}


def _copied(original: SeededRun, number: int) -> SeededRun:
    if number == 0:
        return original
    return SeededRun(
        f"T-{_mark(number)}{original.task_id[10:]}", f"R-{_mark(number)}{original.run_id[10:]}", original.bodies, {}
    )
