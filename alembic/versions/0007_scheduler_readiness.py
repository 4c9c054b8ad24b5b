"""Let runs say since when a worker may claim them."""

from __future__ import annotations

from agentruns.migrations.frozen import Revision, comment, execute

revision = "agentruns_0007"
down_revision = "agentruns_0006"
branch_labels = None
depends_on = None

THIS = Revision(7, __file__)

COLUMN = """
ALTER TABLE {schema}.runs ADD COLUMN scheduler_ready_at timestamptz
"""

CHECK = """
ALTER TABLE {schema}.runs
    ADD CONSTRAINT ck_runs_scheduler_ready CHECK (
        (scheduler_ready_at IS NOT NULL) = (status IN ('active', 'cancellation_requested')
        AND superstep IS NOT NULL)
    )
"""

RUNS_COLUMNS = {"scheduler_ready_at": "Instant since which a worker may claim."}

IX_RUNS_RUNNABLE = """
CREATE INDEX ix_runs_runnable ON {schema}.runs (tenant_id, scheduler_ready_at, run_id)
    WHERE scheduler_ready_at IS NOT NULL AND quarantined_at IS NULL
"""

READY = """
UPDATE {schema}.runs SET scheduler_ready_at = changed_at
    WHERE status IN ('active', 'cancellation_requested') AND superstep IS NOT NULL
"""


def upgrade() -> None:
    """Create the family."""
    with THIS.applied():
        execute(COLUMN, READY, CHECK, IX_RUNS_RUNNABLE)
        comment("runs", "", RUNS_COLUMNS)


def downgrade() -> None:
    """Drop the family while it is empty."""
    with THIS.removed("runs.scheduler_ready_at"):
        execute("DROP INDEX {schema}.ix_runs_runnable", "ALTER TABLE {schema}.runs DROP COLUMN scheduler_ready_at")
