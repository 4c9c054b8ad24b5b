"""Create the transactional outbox."""

from __future__ import annotations

from agentruns.migrations.frozen import Revision, append_only, comment, execute

revision = "agentruns_0008"
down_revision = "agentruns_0007"
branch_labels = None
depends_on = None

THIS = Revision(8, __file__)

OUTBOX_DESTINATIONS = """
CREATE TABLE {schema}.outbox_destinations (
    tenant_id text COLLATE "C" NOT NULL,
    destination_id uuid NOT NULL,
    digest bytea NOT NULL,
    kind text COLLATE "C" NOT NULL,
    config bytea NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT pk_outbox_destinations PRIMARY KEY (tenant_id, destination_id, digest),
    CONSTRAINT ck_outbox_destinations_tenant_id CHECK (
        octet_length(tenant_id) BETWEEN 1 AND 128 AND tenant_id !~ '[^A-Za-z0-9._:-]'
        AND tenant_id NOT IN ('.', '..')
    ),
    CONSTRAINT ck_outbox_destinations_digest CHECK (octet_length(digest) = 32),
    CONSTRAINT ck_outbox_destinations_kind
        CHECK (octet_length(kind) BETWEEN 1 AND 96 AND kind ~ '^[a-z0-9]+(-[a-z0-9]+)*$'),
    CONSTRAINT ck_outbox_destinations_config CHECK (octet_length(config) BETWEEN 1 AND 2097152)
)
"""

OUTBOX_DESTINATIONS_COLUMNS = {
    "tenant_id": "Key: the tenant that owns the destination.",
    "destination_id": "Key: the destination.",
    "digest": "Key: the digest of the configuration.",
    "kind": "Kind of the destination.",
    "config": "Body: canonical JSON bytes of the configuration.",
    "created_at": "Instant of the insertion by the database's clock.",
}

OUTBOX_DELIVERIES = """
CREATE TABLE {schema}.outbox_deliveries (
    tenant_id text COLLATE "C" NOT NULL,
    run_id uuid NOT NULL,
    delivery_id uuid NOT NULL,
    destination_id uuid NOT NULL,
    destination_digest bytea NOT NULL,
    body bytea NOT NULL,
    digest bytea NOT NULL,
    expires_at timestamptz NOT NULL,
    status text COLLATE "C" NOT NULL,
    attempts smallint NOT NULL,
    attempt_expires_at timestamptz,
    next_attempt_at timestamptz,
    updated_at timestamptz NOT NULL,
    sequence bigint NOT NULL,
    CONSTRAINT pk_outbox_deliveries PRIMARY KEY (tenant_id, run_id, delivery_id),
    CONSTRAINT ck_outbox_deliveries_destination_digest CHECK (octet_length(destination_digest) = 32),
    CONSTRAINT ck_outbox_deliveries_body CHECK (octet_length(body) BETWEEN 1 AND 4194304),
    CONSTRAINT ck_outbox_deliveries_digest CHECK (octet_length(digest) = 32),
    CONSTRAINT ck_outbox_deliveries_sequence CHECK (sequence > 0),
    CONSTRAINT ck_outbox_deliveries_expires_at CHECK (expires_at BETWEEN '1970-01-01Z' AND '9999-12-31Z'),
    CONSTRAINT ck_outbox_deliveries_status
        CHECK (status IN ('pending', 'delivering', 'retry_scheduled', 'acknowledged', 'dead_letter', 'expired')),
    CONSTRAINT ck_outbox_deliveries_attempts CHECK (attempts BETWEEN 0 AND 64),
    CONSTRAINT ck_outbox_deliveries_attempt_expires_at
        CHECK ((attempt_expires_at IS NOT NULL) = (status = 'delivering')),
    CONSTRAINT ck_outbox_deliveries_next_attempt_at
        CHECK ((next_attempt_at IS NULL) = (status IN ('acknowledged', 'dead_letter', 'expired'))),
    CONSTRAINT fk_outbox_deliveries_run FOREIGN KEY (tenant_id, run_id)
        REFERENCES {schema}.runs (tenant_id, run_id)
) WITH (fillfactor = 70)
"""

IX_OUTBOX_DELIVERIES_READY = """
CREATE INDEX ix_outbox_deliveries_ready
    ON {schema}.outbox_deliveries (tenant_id, next_attempt_at, run_id, delivery_id)
    WHERE next_attempt_at IS NOT NULL
"""

OUTBOX_DELIVERIES_COLUMNS = {
    "tenant_id": "Key: the tenant that owns the run.",
    "run_id": "Key: the run.",
    "delivery_id": "Key: the delivery.",
    "destination_id": "Destination of the delivery.",
    "destination_digest": "Digest of the destination's configuration.",
    "body": "Body: canonical JSON bytes of the payload.",
    "digest": "Projection: the digest of the body.",
    "expires_at": "Instant after which nothing is delivered any more.",
    "status": "Current status of the delivery.",
    "attempts": "Number of attempts that were started.",
    "attempt_expires_at": "Instant at which the open attempt ends.",
    "next_attempt_at": "Instant from which the next attempt may start.",
    "updated_at": "Instant of the last change by the database's clock.",
    "sequence": "Projection: the event that the row was committed with.",
}

OUTBOX_DELIVERIES_FROZEN = (
    "tenant_id",
    "run_id",
    "delivery_id",
    "destination_id",
    "destination_digest",
    "body",
    "digest",
    "expires_at",
    "sequence",
)

OUTBOX_ATTEMPTS = """
CREATE TABLE {schema}.outbox_attempts (
    tenant_id text COLLATE "C" NOT NULL,
    run_id uuid NOT NULL,
    delivery_id uuid NOT NULL,
    attempt smallint NOT NULL,
    attempt_id uuid NOT NULL,
    started_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    CONSTRAINT pk_outbox_attempts PRIMARY KEY (tenant_id, run_id, delivery_id, attempt),
    CONSTRAINT ck_outbox_attempts_attempt CHECK (attempt BETWEEN 1 AND 64),
    CONSTRAINT ck_outbox_attempts_expires_at
        CHECK (expires_at > started_at AND expires_at <= started_at + interval '5 minutes'),
    CONSTRAINT fk_outbox_attempts_delivery FOREIGN KEY (tenant_id, run_id, delivery_id)
        REFERENCES {schema}.outbox_deliveries (tenant_id, run_id, delivery_id)
)
"""

OUTBOX_ATTEMPTS_COLUMNS = {
    "tenant_id": "Key: the tenant that owns the run.",
    "run_id": "Key: the run.",
    "delivery_id": "Key: the delivery.",
    "attempt": "Key: the number of the attempt, counted from 1.",
    "attempt_id": "Id of the attempt.",
    "started_at": "Instant of the start by the database's clock.",
    "expires_at": "Instant at which the attempt counts as lost.",
}

OUTBOX_RESULTS = """
CREATE TABLE {schema}.outbox_results (
    tenant_id text COLLATE "C" NOT NULL,
    run_id uuid NOT NULL,
    delivery_id uuid NOT NULL,
    attempt smallint NOT NULL,
    status text COLLATE "C" NOT NULL,
    completed_at timestamptz NOT NULL,
    retry_not_before timestamptz,
    body bytea NOT NULL,
    digest bytea NOT NULL,
    CONSTRAINT pk_outbox_results PRIMARY KEY (tenant_id, run_id, delivery_id, attempt),
    CONSTRAINT ck_outbox_results_status CHECK (status IN ('acknowledged', 'failed')),
    CONSTRAINT ck_outbox_results_retry_not_before
        CHECK (retry_not_before BETWEEN '1970-01-01Z' AND '9999-12-31Z'),
    CONSTRAINT ck_outbox_results_retry_status CHECK (retry_not_before IS NULL OR status = 'failed'),
    CONSTRAINT ck_outbox_results_body CHECK (octet_length(body) BETWEEN 1 AND 1048576),
    CONSTRAINT ck_outbox_results_digest CHECK (octet_length(digest) = 32),
    CONSTRAINT fk_outbox_results_attempt FOREIGN KEY (tenant_id, run_id, delivery_id, attempt)
        REFERENCES {schema}.outbox_attempts (tenant_id, run_id, delivery_id, attempt)
)
"""

OUTBOX_RESULTS_COLUMNS = {
    "tenant_id": "Key: the tenant that owns the run.",
    "run_id": "Key: the run.",
    "delivery_id": "Key: the delivery.",
    "attempt": "Key: the number of the attempt.",
    "status": "Whether the destination acknowledged or the attempt failed.",
    "completed_at": "Instant of the end by the database's clock.",
    "retry_not_before": "Instant before which no retry starts.",
    "body": "Body: canonical JSON bytes of the acknowledgement or the failure.",
    "digest": "Projection: the digest of the body.",
}


def upgrade() -> None:
    """Create the family."""
    with THIS.applied():
        execute(OUTBOX_DESTINATIONS)
        comment(
            "outbox_destinations",
            "Destinations of deliveries: immutable configuration without credentials.",
            OUTBOX_DESTINATIONS_COLUMNS,
        )
        append_only("outbox_destinations")
        execute(OUTBOX_DELIVERIES, IX_OUTBOX_DELIVERIES_READY)
        comment(
            "outbox_deliveries", "Deliveries of the outbox, each with its current place.", OUTBOX_DELIVERIES_COLUMNS
        )
        append_only("outbox_deliveries", *OUTBOX_DELIVERIES_FROZEN)
        execute(OUTBOX_ATTEMPTS)
        comment("outbox_attempts", "Starts of attempts to deliver.", OUTBOX_ATTEMPTS_COLUMNS)
        append_only("outbox_attempts")
        execute(OUTBOX_RESULTS)
        comment("outbox_results", "Ends of attempts to deliver.", OUTBOX_RESULTS_COLUMNS)
        append_only("outbox_results")


def downgrade() -> None:
    """Drop the family while it is empty."""
    with THIS.removed("outbox_destinations", "outbox_deliveries", "outbox_attempts", "outbox_results"):
        execute(
            "DROP TABLE {schema}.outbox_results, {schema}.outbox_attempts, {schema}.outbox_deliveries",
            "DROP TABLE {schema}.outbox_destinations",
        )
