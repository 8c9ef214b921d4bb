"""Summaries are stored whole: how often a step was dispatched stands in their second piece, and no longer beside it."""

import json
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_projections = sa.table(
    "projections",
    sa.column("seq", sa.BigInteger),
    sa.column("attempts", sa.Integer),
    sa.column("occurrence", sa.Integer),
    sa.column("occurrences", sa.Integer),
    sa.column("created_at", sa.String),
    sa.column("summary_tail", sa.LargeBinary),
)
_p = _projections.c
_COUNTS = ("attempts", "occurrence", "occurrences", "submitted_at")
_PAGE_ROWS = 1_000


def upgrade() -> None:
    def with_counts(row: sa.Row[Any]) -> bytes:
        counts = dict(zip(_COUNTS, (row.attempts, row.occurrence, row.occurrences, row.created_at), strict=True))
        # The old tail ends with the first key.
        return bytes(row.summary_tail) + json.dumps(counts, separators=(",", ":")).encode().partition(b":")[2]

    _rewrite(with_counts)


def downgrade() -> None:
    def without_counts(row: sa.Row[Any]) -> bytes:
        key = b'"attempts":'
        tail = bytes(row.summary_tail)
        return tail[: tail.rindex(key) + len(key)]

    _rewrite(without_counts)


def _rewrite(tail_of: Callable[[sa.Row[Any]], bytes]) -> None:
    """Rewrite the second piece of every summary, a page at a time."""
    connection = op.get_bind()
    page = sa.select(*_p).where(_p.seq > sa.bindparam("after")).order_by(_p.seq).limit(_PAGE_ROWS)
    change = sa.update(_projections).where(_p.seq == sa.bindparam("of")).values(summary_tail=sa.bindparam("tail"))
    after = 0
    while rows := connection.execute(page, {"after": after}).fetchall():
        connection.execute(change, [{"of": row.seq, "tail": tail_of(row)} for row in rows])
        after = rows[-1].seq
