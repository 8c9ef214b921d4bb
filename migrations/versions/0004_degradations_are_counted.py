"""A run counts its degradations: of many, only the first and the last are kept."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_COUNT = "UPDATE runs SET degradation_count = (SELECT count(*) FROM degradations WHERE degradations.run_id = runs.id)"


def upgrade() -> None:
    op.add_column("runs", sa.Column("degradation_count", sa.Integer(), server_default="0", nullable=False))
    op.execute(_COUNT)


def downgrade() -> None:
    op.drop_column("runs", "degradation_count")
