"""Let quarantines name the fence that made them."""

from __future__ import annotations

from agentruns.migrations.frozen import Revision, comment, execute

revision = "agentruns_0011"
down_revision = "agentruns_0010"
branch_labels = None
depends_on = None

THIS = Revision(11, __file__)

COLUMNS = """
ALTER TABLE {schema}.run_quarantines
    ADD COLUMN epoch bigint,
    ADD CONSTRAINT ck_run_quarantines_epoch CHECK (epoch > 0)
"""

RUN_QUARANTINES_COLUMNS = {"epoch": "Fence that quarantined, absent for the control plane."}


def upgrade() -> None:
    """Create the family."""
    with THIS.applied():
        execute(COLUMNS)
        comment("run_quarantines", "", RUN_QUARANTINES_COLUMNS)


def downgrade() -> None:
    """Drop the family while it is empty."""
    with THIS.removed("run_quarantines.epoch"):
        execute("ALTER TABLE {schema}.run_quarantines DROP COLUMN epoch")
