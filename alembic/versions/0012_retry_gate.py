"""Let runs name the instant before which no worker may claim them."""

from __future__ import annotations

from agentruns.migrations.frozen import Revision, comment, execute

revision = "agentruns_0012"
down_revision = "agentruns_0011"
branch_labels = None
depends_on = None

THIS = Revision(12, __file__)

COLUMNS = """
ALTER TABLE {schema}.runs
    ADD COLUMN scheduler_not_before timestamptz,
    ADD CONSTRAINT ck_runs_scheduler_gate CHECK (
        scheduler_not_before IS NULL OR scheduler_ready_at IS NOT NULL
        AND scheduler_not_before >= scheduler_ready_at AND lease_attempt_id IS NULL
    )
"""

RUNS_COLUMNS = {
    "scheduler_not_before": "Gate before which no worker may claim.",
}

IX_RUNS_RUNNABLE = """
CREATE INDEX ix_runs_runnable
    ON {schema}.runs (tenant_id, greatest(scheduler_ready_at, scheduler_not_before), run_id)
    WHERE scheduler_ready_at IS NOT NULL AND quarantined_at IS NULL
"""

IX_RUNS_RUNNABLE_BEFORE = """
CREATE INDEX ix_runs_runnable ON {schema}.runs (tenant_id, scheduler_ready_at, run_id)
    WHERE scheduler_ready_at IS NOT NULL AND quarantined_at IS NULL
"""


def upgrade() -> None:
    """Create the family."""
    with THIS.applied():
        execute("DROP INDEX {schema}.ix_runs_runnable", COLUMNS, IX_RUNS_RUNNABLE)
        comment("runs", "", RUNS_COLUMNS)


def downgrade() -> None:
    """Drop the family while it is empty."""
    with THIS.removed("runs.scheduler_not_before"):
        execute(
            "DROP INDEX {schema}.ix_runs_runnable",
            "ALTER TABLE {schema}.runs DROP COLUMN scheduler_not_before",
            IX_RUNS_RUNNABLE_BEFORE,
        )
