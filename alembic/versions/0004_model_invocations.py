"""Create model invocations and their revisions."""

from __future__ import annotations

from agentruns.migrations.frozen import Revision, append_only, comment, execute

revision = "agentruns_0004"
down_revision = "agentruns_0003"
branch_labels = None
depends_on = None

THIS = Revision(4, __file__)

MODEL_INVOCATIONS = """
CREATE TABLE {schema}.model_invocations (
    tenant_id text COLLATE "C" NOT NULL,
    run_id uuid NOT NULL,
    invocation_id uuid NOT NULL,
    superstep bigint NOT NULL,
    node_id text COLLATE "C" NOT NULL,
    model_name text COLLATE "C" NOT NULL,
    model_version text COLLATE "C" NOT NULL,
    intent bytea NOT NULL,
    status text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    CONSTRAINT pk_model_invocations PRIMARY KEY (tenant_id, run_id, invocation_id),
    CONSTRAINT ck_model_invocations_superstep CHECK (superstep >= 0),
    CONSTRAINT ck_model_invocations_node_id CHECK (octet_length(node_id) BETWEEN 1 AND 128),
    CONSTRAINT ck_model_invocations_intent CHECK (octet_length(intent) BETWEEN 1 AND 134217728),
    CONSTRAINT ck_model_invocations_status CHECK (status IN ('prepared', 'executing', 'committed', 'failed')),
    CONSTRAINT ck_model_invocations_number CHECK (number >= 0),
    CONSTRAINT ck_model_invocations_prepared CHECK ((number = 0) = (status = 'prepared')),
    CONSTRAINT fk_model_invocations_run FOREIGN KEY (tenant_id, run_id)
        REFERENCES {schema}.runs (tenant_id, run_id)
) WITH (fillfactor = 80)
"""

IX_MODEL_INVOCATIONS_OPEN = """
CREATE INDEX ix_model_invocations_open ON {schema}.model_invocations (tenant_id, run_id, invocation_id)
    WHERE status IN ('prepared', 'executing')
"""

MODEL_INVOCATIONS_COLUMNS = {
    "tenant_id": "Key: the tenant that owns the run.",
    "run_id": "Key: the run.",
    "invocation_id": "Key: the call.",
    "superstep": "Superstep of the activation that made the call.",
    "node_id": "Node of the activation that made the call.",
    "model_name": "Projection: the name of the model.",
    "model_version": "Projection: the version of the model.",
    "intent": "Body: canonical JSON bytes of what is to be called.",
    "status": "Projection: the status that the last event of the call set.",
    "number": "Projection: the number of the last event of the call.",
}

MODEL_INVOCATIONS_FROZEN = (
    "tenant_id",
    "run_id",
    "invocation_id",
    "superstep",
    "node_id",
    "model_name",
    "model_version",
    "intent",
)

MODEL_INVOCATION_REVISIONS = """
CREATE TABLE {schema}.model_invocation_revisions (
    tenant_id text COLLATE "C" NOT NULL,
    run_id uuid NOT NULL,
    invocation_id uuid NOT NULL,
    number bigint NOT NULL,
    status text COLLATE "C" NOT NULL,
    attempt_id uuid,
    body bytea,
    digest bytea,
    sequence bigint NOT NULL,
    CONSTRAINT pk_model_invocation_revisions PRIMARY KEY (tenant_id, run_id, invocation_id, number),
    CONSTRAINT ck_model_invocation_revisions_number CHECK (number >= 0),
    CONSTRAINT ck_model_invocation_revisions_status
        CHECK (status IN ('prepared', 'executing', 'committed', 'failed')),
    CONSTRAINT ck_model_invocation_revisions_attempt_id CHECK ((attempt_id IS NULL) = (number = 0)),
    CONSTRAINT ck_model_invocation_revisions_body CHECK (octet_length(body) BETWEEN 1 AND 134217728),
    CONSTRAINT ck_model_invocation_revisions_body_status
        CHECK ((body IS NOT NULL) = (status IN ('committed', 'failed'))),
    CONSTRAINT ck_model_invocation_revisions_digest CHECK (octet_length(digest) = 32),
    CONSTRAINT ck_model_invocation_revisions_body_together CHECK (num_nonnulls(body, digest) IN (0, 2)),
    CONSTRAINT ck_model_invocation_revisions_sequence CHECK (sequence > 0),
    CONSTRAINT fk_model_invocation_revisions_invocation FOREIGN KEY (tenant_id, run_id, invocation_id)
        REFERENCES {schema}.model_invocations (tenant_id, run_id, invocation_id)
)
"""

MODEL_INVOCATION_REVISIONS_COLUMNS = {
    "tenant_id": "Key: the tenant that owns the run.",
    "run_id": "Key: the run.",
    "invocation_id": "Key: the call.",
    "number": "Key: the number of the change, 0 for the preparation.",
    "status": "Projection: the status that the change set.",
    "attempt_id": "Attempt of the call, absent in its preparation.",
    "body": "Body: canonical JSON bytes of the response or the error.",
    "digest": "Projection: the digest of the body.",
    "sequence": "Projection: the event that the row was committed with.",
}


def upgrade() -> None:
    """Create the family."""
    with THIS.applied():
        execute(MODEL_INVOCATIONS, IX_MODEL_INVOCATIONS_OPEN)
        comment("model_invocations", "Calls of models, each with its current place.", MODEL_INVOCATIONS_COLUMNS)
        append_only("model_invocations", *MODEL_INVOCATIONS_FROZEN)
        execute(MODEL_INVOCATION_REVISIONS)
        comment(
            "model_invocation_revisions",
            "Changes of model calls, numbered within each call.",
            MODEL_INVOCATION_REVISIONS_COLUMNS,
        )
        append_only("model_invocation_revisions")


def downgrade() -> None:
    """Drop the family while it is empty."""
    with THIS.removed("model_invocations", "model_invocation_revisions"):
        execute("DROP TABLE {schema}.model_invocation_revisions, {schema}.model_invocations")
