"""Create what runs wait for."""

from __future__ import annotations

from agentruns.migrations.frozen import Revision, append_only, comment, execute

revision = "agentruns_0009"
down_revision = "agentruns_0008"
branch_labels = None
depends_on = None

THIS = Revision(9, __file__)

RUN_WAITS = """
CREATE TABLE {schema}.run_waits (
    tenant_id text COLLATE "C" NOT NULL,
    run_id uuid NOT NULL,
    wait_id uuid NOT NULL,
    kind text COLLATE "C" NOT NULL,
    registration bytea NOT NULL,
    digest bytea NOT NULL,
    due_at timestamptz,
    expires_at timestamptz,
    status text COLLATE "C" NOT NULL,
    settled_sequence bigint,
    resolution bytea,
    resolution_digest bytea,
    sequence bigint NOT NULL,
    CONSTRAINT pk_run_waits PRIMARY KEY (tenant_id, run_id, wait_id),
    CONSTRAINT ck_run_waits_kind CHECK (
        kind IN ('approval', 'input', 'authentication', 'external_signal', 'reconciliation', 'sleep',
        'retry_backoff')
    ),
    CONSTRAINT ck_run_waits_registration CHECK (octet_length(registration) BETWEEN 1 AND 4194304),
    CONSTRAINT ck_run_waits_digest CHECK (octet_length(digest) = 32),
    CONSTRAINT ck_run_waits_sequence CHECK (sequence > 0),
    CONSTRAINT ck_run_waits_due_at CHECK (due_at BETWEEN '1970-01-01Z' AND '9999-12-31Z'),
    CONSTRAINT ck_run_waits_due_kind CHECK ((due_at IS NOT NULL) = (kind IN ('sleep', 'retry_backoff'))),
    CONSTRAINT ck_run_waits_expires_at CHECK (expires_at BETWEEN '1970-01-01Z' AND '9999-12-31Z'),
    CONSTRAINT ck_run_waits_expires_kind CHECK (
        expires_at IS NULL
        OR kind IN ('approval', 'input', 'authentication', 'external_signal', 'reconciliation')
    ),
    CONSTRAINT ck_run_waits_status CHECK (status IN ('outstanding', 'resolved', 'fired', 'abandoned')),
    CONSTRAINT ck_run_waits_settled_status CHECK ((settled_sequence IS NULL) = (status = 'outstanding')),
    CONSTRAINT ck_run_waits_settled_sequence CHECK (settled_sequence > sequence),
    CONSTRAINT ck_run_waits_resolution CHECK (octet_length(resolution) BETWEEN 1 AND 4194304),
    CONSTRAINT ck_run_waits_resolution_digest CHECK (octet_length(resolution_digest) = 32),
    CONSTRAINT ck_run_waits_resolution_together CHECK (num_nonnulls(resolution, resolution_digest) IN (0, 2)),
    CONSTRAINT ck_run_waits_resolution_status CHECK ((resolution IS NOT NULL) = (status = 'resolved')),
    CONSTRAINT fk_run_waits_run FOREIGN KEY (tenant_id, run_id) REFERENCES {schema}.runs (tenant_id, run_id)
) WITH (fillfactor = 80)
"""

IX_RUN_WAITS_DUE = """
CREATE INDEX ix_run_waits_due ON {schema}.run_waits (tenant_id, due_at, run_id, wait_id)
    WHERE due_at IS NOT NULL AND status = 'outstanding'
"""

IX_RUN_WAITS_EXPIRY = """
CREATE INDEX ix_run_waits_expiry ON {schema}.run_waits (tenant_id, expires_at, run_id, wait_id)
    WHERE expires_at IS NOT NULL AND status = 'outstanding'
"""

RUN_WAITS_COLUMNS = {
    "tenant_id": "Key: the tenant that owns the run.",
    "run_id": "Key: the run.",
    "wait_id": "Key: the wait.",
    "kind": "Projection: the kind of the interrupt or the timer.",
    "registration": "Body: canonical JSON bytes of what is waited for.",
    "digest": "Projection: the digest of the registration.",
    "due_at": "Projection: the instant at which the timer fires.",
    "expires_at": "Projection: the instant at which the interrupt expires.",
    "status": "Projection: whether and how the wait was settled.",
    "settled_sequence": "Projection: the event that settled the wait.",
    "resolution": "Body: canonical JSON bytes of the resolution.",
    "resolution_digest": "Projection: the digest of the resolution.",
    "sequence": "Projection: the event that the row was committed with.",
}

RUN_WAITS_FROZEN = (
    "tenant_id",
    "run_id",
    "wait_id",
    "kind",
    "registration",
    "digest",
    "due_at",
    "expires_at",
    "sequence",
)


def upgrade() -> None:
    """Create the family."""
    with THIS.applied():
        execute(RUN_WAITS, IX_RUN_WAITS_DUE, IX_RUN_WAITS_EXPIRY)
        comment("run_waits", "What runs wait for, each with its settlement.", RUN_WAITS_COLUMNS)
        append_only("run_waits", *RUN_WAITS_FROZEN)


def downgrade() -> None:
    """Drop the family while it is empty."""
    with THIS.removed("run_waits"):
        execute("DROP TABLE {schema}.run_waits")
