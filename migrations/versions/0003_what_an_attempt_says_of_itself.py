"""A dispatch keeps what its worker said last that it is doing, and what else the worker's adapter wants kept."""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_outputs = sa.table(
    "outputs",
    sa.column("seq", sa.BigInteger),
    sa.column("step_id", sa.String),
    sa.column("attempt", sa.Integer),
    sa.column("type", sa.String),
    sa.column("event", sa.Text),
    sa.column("created_at", sa.String),
)
_dispatches = sa.table(
    "dispatches",
    sa.column("step_id", sa.String),
    sa.column("attempt", sa.Integer),
    sa.column("progress", sa.Text),
)
_o, _d = _outputs.c, _dispatches.c
_PAGE_ROWS = 1_000
_SHOWN_CHARS = 300


def upgrade() -> None:
    op.add_column("dispatches", sa.Column("progress", sa.Text(), nullable=True))
    op.add_column("dispatches", sa.Column("adapter_data", sa.Text(), nullable=True))
    connection = op.get_bind()
    page: sa.Select[Any] = (
        sa.select(_o.seq, _o.step_id, _o.attempt, _o.event, _o.created_at)
        .where(_o.type == "progress", _o.seq > sa.bindparam("after"))
        .order_by(_o.seq)
        .limit(_PAGE_ROWS)
    )
    change = (
        sa.update(_dispatches)
        .where(_d.step_id == sa.bindparam("of_step"), _d.attempt == sa.bindparam("of_attempt"))
        .values(progress=sa.bindparam("note"))
    )
    after = 0
    while rows := connection.execute(page, {"after": after}).fetchall():
        newest = {(row.step_id, row.attempt): _note(row) for row in rows}  # the order is that of the events
        connection.execute(
            change, [{"of_step": step, "of_attempt": attempt, "note": note} for (step, attempt), note in newest.items()]
        )
        after = rows[-1].seq


def downgrade() -> None:
    op.drop_column("dispatches", "adapter_data")
    op.drop_column("dispatches", "progress")


def _note(row: sa.Row[Any]) -> str:
    event = json.loads(row.event)
    note = {"stage": _cut(event["stage"]), "note": _cut(event.get("note")), "at": row.created_at}
    told = {key: item for key, item in note.items() if item is not None}
    return json.dumps(told, separators=(",", ":"))


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
