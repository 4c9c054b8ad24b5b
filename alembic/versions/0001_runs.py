"""Create runs, their journal and their outcomes, and the record of applied revisions."""

from __future__ import annotations

from agentruns.migrations.frozen import Revision, append_only, comment, execute

revision = "agentruns_0001"
down_revision = None
branch_labels = ("agentruns",)
depends_on = None

THIS = Revision(1, __file__)

FORBID_CHANGE = """
CREATE FUNCTION {schema}.forbid_change() RETURNS trigger LANGUAGE plpgsql SET search_path = '' AS $$ BEGIN
  IF TG_OP = 'DELETE' AND current_setting('agentruns.retention', true) = TG_TABLE_SCHEMA THEN RETURN NULL; END IF;
  RAISE EXCEPTION '% of %.% is refused: append-only', TG_OP, TG_TABLE_SCHEMA, TG_TABLE_NAME
    USING ERRCODE = 'AR005', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
END $$
"""

COMMENT_ON_FORBID_CHANGE = """
COMMENT ON FUNCTION {schema}.forbid_change() IS
    'Refuse changes of append-only records; retention alone passes, with DELETE.'
"""

APPLIED_REVISIONS = """
CREATE TABLE {schema}.applied_revisions (
    number smallint NOT NULL,
    revision text COLLATE "C" NOT NULL,
    checksum bytea NOT NULL,
    oldest_code smallint NOT NULL,
    applied_at timestamptz NOT NULL,
    applied_by text COLLATE "C" NOT NULL,
    package_version text COLLATE "C" NOT NULL,
    CONSTRAINT pk_applied_revisions PRIMARY KEY (number),
    CONSTRAINT uq_applied_revisions_revision UNIQUE (revision),
    CONSTRAINT ck_applied_revisions_checksum CHECK (octet_length(checksum) = 32),
    CONSTRAINT ck_applied_revisions_oldest_code CHECK (oldest_code BETWEEN 1 AND number)
)
"""

APPLIED_REVISIONS_COLUMNS = {
    "number": "Key: the number of the revision, counted from 1.",
    "revision": "Id of the revision in the migration chain.",
    "checksum": "SHA-256 of the revision's file with LF line ends.",
    "oldest_code": "Lowest head whose release may still run against the schema after this revision.",
    "applied_at": "Instant of the application by the database's clock.",
    "applied_by": "Role that applied the revision.",
    "package_version": "Version of the package that applied the revision.",
}

RUNS = """
CREATE TABLE {schema}.runs (
    tenant_id text COLLATE "C" NOT NULL,
    run_id uuid NOT NULL,
    thread_id uuid NOT NULL,
    invocation_id uuid NOT NULL,
    status text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    changed_at timestamptz NOT NULL,
    lifecycle_sequence bigint NOT NULL,
    head_sequence bigint NOT NULL,
    head_digest bytea NOT NULL,
    head_recorded_at timestamptz NOT NULL,
    fencing_epoch bigint NOT NULL,
    lease_attempt_id uuid,
    lease_acquired_at timestamptz,
    lease_renewed_at timestamptz,
    lease_expires_at timestamptz,
    quarantined_at timestamptz,
    trace_context text COLLATE "C",
    CONSTRAINT pk_runs PRIMARY KEY (tenant_id, run_id),
    CONSTRAINT ck_runs_tenant_id CHECK (
        octet_length(tenant_id) BETWEEN 1 AND 128 AND tenant_id !~ '[^A-Za-z0-9._:-]'
        AND tenant_id NOT IN ('.', '..')
    ),
    CONSTRAINT ck_runs_run_id
        CHECK (get_byte(uuid_send(run_id), 6) >> 4 = 7 AND get_byte(uuid_send(run_id), 8) >> 6 = 2),
    CONSTRAINT ck_runs_thread_id
        CHECK (get_byte(uuid_send(thread_id), 6) >> 4 = 7 AND get_byte(uuid_send(thread_id), 8) >> 6 = 2),
    CONSTRAINT ck_runs_invocation_id CHECK (
        get_byte(uuid_send(invocation_id), 6) >> 4 = 7 AND get_byte(uuid_send(invocation_id), 8) >> 6 = 2
    ),
    CONSTRAINT ck_runs_status
        CHECK (status IN ('active', 'waiting', 'cancellation_requested', 'succeeded', 'failed', 'cancelled')),
    CONSTRAINT ck_runs_revision CHECK (revision >= 1),
    CONSTRAINT ck_runs_lifecycle_sequence CHECK (lifecycle_sequence BETWEEN 1 AND head_sequence),
    CONSTRAINT ck_runs_head_digest CHECK (octet_length(head_digest) = 32),
    CONSTRAINT ck_runs_head_recorded_at CHECK (head_recorded_at >= changed_at),
    CONSTRAINT ck_runs_fencing_epoch CHECK (fencing_epoch >= 0),
    CONSTRAINT ck_runs_lease_together
        CHECK (num_nonnulls(lease_attempt_id, lease_acquired_at, lease_renewed_at, lease_expires_at) IN (0, 4)),
    CONSTRAINT ck_runs_lease_shape CHECK (
        lease_attempt_id IS NULL OR fencing_epoch > 0 AND lease_renewed_at >= lease_acquired_at
        AND lease_expires_at > lease_renewed_at AND status IN ('active', 'cancellation_requested')
        AND quarantined_at IS NULL
    ),
    CONSTRAINT ck_runs_trace_context CHECK (octet_length(trace_context) = 55)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 500,
    autovacuum_analyze_scale_factor = 0.02
)
"""

IX_RUNS_TERMINAL = """
CREATE INDEX ix_runs_terminal ON {schema}.runs (tenant_id, changed_at, run_id)
    WHERE status IN ('succeeded', 'failed', 'cancelled')
"""

IX_RUNS_QUARANTINED = """
CREATE INDEX ix_runs_quarantined ON {schema}.runs (tenant_id, quarantined_at, run_id)
    WHERE quarantined_at IS NOT NULL
"""

RUNS_COLUMNS = {
    "tenant_id": "Key: the tenant that owns the run.",
    "run_id": "Key: the run.",
    "thread_id": "Id of the conversation that the run belongs to.",
    "invocation_id": "Id of the agent's invocation.",
    "status": "Projection: the status of the run.",
    "revision": "Projection: the number of the status, raised by each change.",
    "changed_at": "Projection: the instant of the event that set the status.",
    "lifecycle_sequence": "Projection: the event that set the status.",
    "head_sequence": "Projection: the last event of the journal.",
    "head_digest": "Projection: the digest of the last event.",
    "head_recorded_at": "Projection: the instant of the last event.",
    "fencing_epoch": "Fence of the last claim; each claim raises it by one.",
    "lease_attempt_id": "Attempt that holds the lease.",
    "lease_acquired_at": "Instant at which the lease was taken.",
    "lease_renewed_at": "Instant of the lease's last renewal.",
    "lease_expires_at": "Instant at which the lease ends by itself.",
    "quarantined_at": "Projection: the instant of the one unreleased quarantine.",
    "trace_context": "W3C traceparent of the submitter; no evidence.",
}

RUNS_FROZEN = (
    "tenant_id",
    "run_id",
    "thread_id",
    "invocation_id",
    "trace_context",
)

RUN_EVENTS = """
CREATE TABLE {schema}.run_events (
    tenant_id text COLLATE "C" NOT NULL,
    run_id uuid NOT NULL,
    sequence bigint NOT NULL,
    event_id uuid NOT NULL,
    recorded_at timestamptz NOT NULL,
    epoch bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    schema_digest bytea NOT NULL,
    data bytea NOT NULL,
    digest bytea NOT NULL,
    CONSTRAINT pk_run_events PRIMARY KEY (tenant_id, run_id, sequence),
    CONSTRAINT ck_run_events_sequence CHECK (sequence > 0),
    CONSTRAINT ck_run_events_epoch CHECK (epoch >= 0),
    CONSTRAINT ck_run_events_kind CHECK (octet_length(kind) BETWEEN 1 AND 64),
    CONSTRAINT ck_run_events_schema_digest CHECK (octet_length(schema_digest) = 32),
    CONSTRAINT ck_run_events_data CHECK (octet_length(data) BETWEEN 1 AND 16384),
    CONSTRAINT ck_run_events_digest CHECK (octet_length(digest) = 32)
)
"""

RUN_EVENTS_COLUMNS = {
    "tenant_id": "Key: the tenant that owns the run.",
    "run_id": "Key: the run.",
    "sequence": "Key: the place in the journal, counted from 1.",
    "event_id": "Id of the event, chosen by whoever asked for the change.",
    "recorded_at": "Instant of the event by the database's clock.",
    "epoch": "Fence of the worker that wrote the event, 0 for the control plane.",
    "kind": "Kind of the fact.",
    "schema_digest": "Digest of the document that describes the data.",
    "data": "Canonical JSON bytes of the fact: identities, numbers and digests.",
    "digest": "Digest of the event chained to that of its predecessor.",
}

RUN_OUTCOMES = """
CREATE TABLE {schema}.run_outcomes (
    tenant_id text COLLATE "C" NOT NULL,
    run_id uuid NOT NULL,
    kind text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    digest bytea NOT NULL,
    sequence bigint NOT NULL,
    CONSTRAINT pk_run_outcomes PRIMARY KEY (tenant_id, run_id, kind),
    CONSTRAINT ck_run_outcomes_kind CHECK (kind IN ('cancellation', 'outcome')),
    CONSTRAINT ck_run_outcomes_body CHECK (octet_length(body) BETWEEN 1 AND 2097152),
    CONSTRAINT ck_run_outcomes_digest CHECK (octet_length(digest) = 32),
    CONSTRAINT ck_run_outcomes_sequence CHECK (sequence > 0),
    CONSTRAINT fk_run_outcomes_run FOREIGN KEY (tenant_id, run_id) REFERENCES {schema}.runs (tenant_id, run_id)
)
"""

RUN_OUTCOMES_COLUMNS = {
    "tenant_id": "Key: the tenant that owns the run.",
    "run_id": "Key: the run.",
    "kind": "Key: the request to cancel, or the outcome.",
    "body": "Body: canonical JSON bytes of the request or the outcome.",
    "digest": "Projection: the digest of the body.",
    "sequence": "Projection: the event that the row was committed with.",
}


def upgrade() -> None:
    """Create the family."""
    with THIS.applied():
        execute(FORBID_CHANGE, COMMENT_ON_FORBID_CHANGE)
        execute(APPLIED_REVISIONS)
        comment(
            "applied_revisions",
            "Revisions applied to this schema, each written in the transaction that applied it.",
            APPLIED_REVISIONS_COLUMNS,
        )
        execute(RUNS, IX_RUNS_TERMINAL, IX_RUNS_QUARANTINED)
        comment("runs", "Runs: the one row of a run that moves, recomputed by the fold of its journal.", RUNS_COLUMNS)
        append_only("runs", *RUNS_FROZEN)
        execute(RUN_EVENTS)
        comment(
            "run_events",
            "Journals of runs, hash-chained: the evidence that everything else is recomputed from.",
            RUN_EVENTS_COLUMNS,
        )
        append_only("run_events")
        execute(RUN_OUTCOMES)
        comment(
            "run_outcomes",
            "Ends of runs and requests to cancel them, at most one of each per run.",
            RUN_OUTCOMES_COLUMNS,
        )
        append_only("run_outcomes")


def downgrade() -> None:
    """Drop the family while it is empty."""
    with THIS.removed("runs", "run_events", "run_outcomes"):
        execute(
            "DROP TABLE {schema}.run_outcomes, {schema}.run_events, {schema}.runs, {schema}.applied_revisions",
            "DROP FUNCTION {schema}.forbid_change()",
        )
