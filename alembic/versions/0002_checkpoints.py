"""Create checkpoints, and let runs point at the last one."""

from __future__ import annotations

from agentruns.migrations.frozen import Revision, append_only, comment, execute

revision = "agentruns_0002"
down_revision = "agentruns_0001"
branch_labels = None
depends_on = None

THIS = Revision(2, __file__)

RUN_CHECKPOINTS = """
CREATE TABLE {schema}.run_checkpoints (
    tenant_id text COLLATE "C" NOT NULL,
    run_id uuid NOT NULL,
    superstep bigint NOT NULL,
    checkpoint_id uuid NOT NULL,
    ready bytea NOT NULL,
    state bytea NOT NULL,
    digest bytea NOT NULL,
    sequence bigint NOT NULL,
    CONSTRAINT pk_run_checkpoints PRIMARY KEY (tenant_id, run_id, superstep),
    CONSTRAINT ck_run_checkpoints_superstep CHECK (superstep >= 0),
    CONSTRAINT ck_run_checkpoints_ready CHECK (octet_length(ready) BETWEEN 1 AND 163840),
    CONSTRAINT ck_run_checkpoints_state CHECK (octet_length(state) BETWEEN 1 AND 2097152),
    CONSTRAINT ck_run_checkpoints_digest CHECK (octet_length(digest) = 32),
    CONSTRAINT ck_run_checkpoints_sequence CHECK (sequence > 0)
)
"""

RUN_CHECKPOINTS_COLUMNS = {
    "tenant_id": "Key: the tenant that owns the run.",
    "run_id": "Key: the run.",
    "superstep": "Key: the superstep that starts from the checkpoint.",
    "checkpoint_id": "Id of the checkpoint.",
    "ready": "Body: canonical JSON array of the nodes that run next.",
    "state": "Body: canonical JSON bytes of the graph's state.",
    "digest": "Projection: the digest of the checkpoint.",
    "sequence": "Projection: the event that the row was committed with.",
}

COLUMNS = """
ALTER TABLE {schema}.runs
    ADD COLUMN superstep bigint,
    ADD COLUMN checkpoint_digest bytea,
    ADD CONSTRAINT ck_runs_checkpoint_together CHECK (num_nonnulls(superstep, checkpoint_digest) IN (0, 2)),
    ADD CONSTRAINT ck_runs_superstep CHECK (superstep >= 0),
    ADD CONSTRAINT ck_runs_checkpoint_digest CHECK (octet_length(checkpoint_digest) = 32)
"""

RUNS_COLUMNS = {
    "superstep": "Projection: the superstep of the last checkpoint.",
    "checkpoint_digest": "Projection: the digest of the last checkpoint.",
}


def upgrade() -> None:
    """Create the family."""
    with THIS.applied():
        execute(RUN_CHECKPOINTS)
        comment("run_checkpoints", "Checkpoints of runs, exactly one for each superstep.", RUN_CHECKPOINTS_COLUMNS)
        append_only("run_checkpoints")
        execute(COLUMNS)
        comment("runs", "", RUNS_COLUMNS)


def downgrade() -> None:
    """Drop the family while it is empty."""
    with THIS.removed("run_checkpoints"):
        execute(
            "ALTER TABLE {schema}.runs DROP COLUMN superstep, DROP COLUMN checkpoint_digest",
            "DROP TABLE {schema}.run_checkpoints",
        )
