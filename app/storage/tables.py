"""The tables, once, for SQLite and PostgreSQL alike.

The invariant: columns hold wire forms (times as RFC 3339 text, flags as 0 and 1, JSON as text), so that a
row needs no conversion on its way out. Names go in through :func:`stored` and come out through :func:`shown`.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    func,
)

# AUTOINCREMENT: without it SQLite gives the number of a deleted newest row away again, and a number that a reader
# still holds would lead to what belongs to another run.
metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def stored(text: str) -> str:
    """Write a text so that every database keeps it: PostgreSQL's text has no U+0000.

    U+0000 becomes U+0001 U+0001, and U+0001 becomes U+0001 U+0002: no two texts meet, and the order stays bytewise.
    """
    if "\x00" in text or "\x01" in text:
        return text.replace("\x01", "\x01\x02").replace("\x00", "\x01\x01")
    return text


def shown(text: str) -> str:
    """Read back what :func:`stored` wrote."""
    return text.replace("\x01\x01", "\x00").replace("\x01\x02", "\x01") if "\x01" in text else text


def beginning(column: Column[Any], most_chars: int) -> ColumnElement[Any]:
    """Select the beginning of a stored text: at least one character more than ``most_chars``, if it has them.

    A list then never loads what it cuts; a character may be stored as two.
    """
    return func.substr(column, 1, 2 * (most_chars + 1))


# Ordered and compared bytewise on both: SQLite's default collation is so, PostgreSQL's "C" is.
_NAME = Text().with_variant(Text(collation="C"), "postgresql")


def _seq() -> Column[int]:
    # SQLite numbers only a column of the type INTEGER by itself.
    return Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)


def _answer_columns() -> list[Column[object]]:
    """What an answer needs of one output, except its body; the same in the record and in the projection."""
    return [
        Column("ok", SmallInteger),
        Column("step_id", String(67)),
        Column("step_ref", _NAME),
        Column("step_name", _NAME),
        Column("attempt", Integer),
        Column("occurrence", Integer),
        Column("created_at", String(24)),
        Column("body_id", BigInteger),
        Column("encoding", String(4)),
        Column("json_size", BigInteger),
        Column("json_sha256", String(64)),
        Column("raw_size", BigInteger),
        Column("raw_sha256", String(64)),
        Column("preview", Text),
        Column("truncated", SmallInteger),
        Column("file_path", Text),
        Column("file_sha256", String(64)),
    ]


tasks = Table(
    "tasks",
    metadata,
    _seq(),
    Column("id", String(66), nullable=False, unique=True),
    Column("goal", Text),
    Column("project_root", Text),
    Column("work_dir", Text),
    Column("created_at", String(24), nullable=False),
    Column("task_metadata", Text),
    Column("init_ctx", Text),
    Column("blueprint", Text),
    Column("naming", Text),
    sqlite_autoincrement=True,
)

names = Table(
    "names",
    metadata,
    Column("task_id", String(66), ForeignKey("tasks.id"), primary_key=True),
    Column("name", _NAME, primary_key=True),
    Column("canonical", _NAME, nullable=False),
)
"""Every name and owned alias of a task's Blueprint, and the canonical name it leads to."""

runs = Table(
    "runs",
    metadata,
    _seq(),
    Column("id", String(66), nullable=False, unique=True),
    Column("task_id", String(66), ForeignKey("tasks.id"), nullable=False),
    Column("status", String(11), nullable=False),
    Column("error", Text),
    Column("created_at", String(24), nullable=False),
    Column("updated_at", String(24), nullable=False),
    Column("outcome_sha256", String(64)),
    Column("result_body_id", BigInteger),
    Column("degradation_count", Integer, nullable=False, server_default="0"),
    Index(None, "task_id", "seq"),
    Index(None, "status", "seq"),
    sqlite_autoincrement=True,
)

dispatches = Table(
    "dispatches",
    metadata,
    _seq(),
    Column("run_id", String(66), ForeignKey("runs.id"), nullable=False),
    Column("step_id", String(67), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("step_ref", _NAME, nullable=False),
    Column("name", _NAME, nullable=False),
    Column("occurrence", Integer, nullable=False),
    Column("status", String(10), nullable=False),
    Column("handle_sha256", String(64), nullable=False, unique=True),
    Column("expires_at", String(24), nullable=False),
    Column("started_at", String(24), nullable=False),
    Column("completed_at", String(24)),
    Column("worker_kind", Text),
    Column("model", Text),
    Column("usage", Text),
    Column("num_turns", Integer),
    Column("projection_root", Text),
    Column("dir_template", Text),
    Column("policy", Text, nullable=False),
    Column("view", Text, nullable=False),
    Column("directive", Text, nullable=False),
    Column("system", Text),
    Column("progress", Text),
    Column("adapter_data", Text),
    UniqueConstraint("step_id", "attempt"),
    Index(None, "run_id", "seq"),
    Index(None, "run_id", "name", "occurrence", "attempt"),
)
"""One row an attempt of a step, with what was snapshotted for it. Wide columns stand last: no list reads them."""

bodies = Table(
    "bodies",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("run_id", String(66), ForeignKey("runs.id"), nullable=False, index=True),
    Column("data", LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)
"""Rendered bodies, apart from all else so that the pages of summaries stay dense."""

outputs = Table(
    "outputs",
    metadata,
    _seq(),
    Column("id", String(68), nullable=False, unique=True),
    Column("run_id", String(66), ForeignKey("runs.id"), nullable=False),
    Column("type", String(8), nullable=False),
    Column("name", _NAME, nullable=False),
    Column("producer", _NAME, nullable=False),
    *_answer_columns(),
    Column("traceparent", String(55)),
    Column("parent_refs", Text, nullable=False),
    Column("event", Text, nullable=False),
    Index(None, "run_id", "name", "type", "occurrence", "attempt", "seq"),
    Index(None, "step_id", "attempt", "seq"),
    Index(None, "producer", "seq"),
    sqlite_autoincrement=True,
)
"""The append-only record of every event; ``event`` is the event without its content, which is the body."""

projections = Table(
    "projections",
    metadata,
    _seq(),
    Column("run_id", String(66), ForeignKey("runs.id"), nullable=False),
    Column("name", _NAME, nullable=False),
    Column("kind", String(8), nullable=False),
    Column("visibility", SmallInteger, nullable=False),
    Column("source", String(10), nullable=False),
    Column("output_seq", BigInteger),
    Column("attempts", Integer),
    Column("occurrences", Integer),
    *_answer_columns(),
    Column("summary_head", LargeBinary, nullable=False),
    Column("summary_tail", LargeBinary, nullable=False),
    UniqueConstraint("run_id", "name", "kind"),
    Index(None, "run_id", "step_name"),
)
"""What answers now for each name of a run, with its finished summary; rewritten in the transaction that changes it."""

degradations = Table(
    "degradations",
    metadata,
    _seq(),
    Column("run_id", String(66), ForeignKey("runs.id"), nullable=False, index=True),
    Column("record", Text, nullable=False),
)
"""What workers reported as done in a lesser way: of a run with very many, the first and the last."""

REMOVING = "removing"
"""The status of a run that is being removed, slice by slice: no read and no write finds such a run any more."""

LISTED, UNLISTED, SHADOWED = 0, 1, 2
"""Visibility of a projection: listed; reachable by name only (``_ctx``); hidden behind a step of the same name."""
