"""Orders."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "host_0001"
down_revision = None
branch_labels = ("host",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "orders",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("reference", sa.Text(), nullable=False),
        sa.Column("amount_cents", sa.BigInteger(), nullable=False),
        sa.Column("lines", postgresql.JSON(), nullable=False),
        sa.Column("placed_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "reference"),
    )


def downgrade() -> None:
    op.drop_table("orders")
