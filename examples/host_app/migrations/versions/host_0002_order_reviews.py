"""Reviews of orders, each with its run: so this revision waits for all of the other branch's."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "host_0002"
down_revision = "host_0001"
branch_labels = None
depends_on = "agentruns_0016"


def upgrade() -> None:
    op.create_table(
        "order_reviews",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("order_reference", sa.Text(), nullable=False),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("withdrawn_by", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("tenant_id", "run_id"),
        sa.UniqueConstraint("tenant_id", "order_reference", name="order_reviews_once_per_order"),
        sa.ForeignKeyConstraint(
            ["tenant_id", "order_reference"], ["orders.tenant_id", "orders.reference"], name="order_reviews_order"
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "run_id"],
            ["agentruns.runs.tenant_id", "agentruns.runs.run_id"],
            name="order_reviews_run",
        ),
    )


def downgrade() -> None:
    op.drop_table("order_reviews")
