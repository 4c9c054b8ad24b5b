"""Create the results of nodes."""

from __future__ import annotations

from agentruns.migrations.frozen import Revision, append_only, comment, execute

revision = "agentruns_0005"
down_revision = "agentruns_0004"
branch_labels = None
depends_on = None

THIS = Revision(5, __file__)

NODE_RESULTS = """
CREATE TABLE {schema}.node_results (
    tenant_id text COLLATE "C" NOT NULL,
    run_id uuid NOT NULL,
    superstep bigint NOT NULL,
    node_id text COLLATE "C" NOT NULL,
    attempt smallint NOT NULL,
    status text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    digest bytea NOT NULL,
    retry_not_before timestamptz,
    sequence bigint NOT NULL,
    CONSTRAINT pk_node_results PRIMARY KEY (tenant_id, run_id, superstep, node_id, attempt),
    CONSTRAINT ck_node_results_superstep CHECK (superstep >= 0),
    CONSTRAINT ck_node_results_node_id CHECK (octet_length(node_id) BETWEEN 1 AND 128),
    CONSTRAINT ck_node_results_attempt CHECK (attempt BETWEEN 1 AND 64),
    CONSTRAINT ck_node_results_status CHECK (status IN ('succeeded', 'failed')),
    CONSTRAINT ck_node_results_body CHECK (octet_length(body) BETWEEN 1 AND 16777216),
    CONSTRAINT ck_node_results_digest CHECK (octet_length(digest) = 32),
    CONSTRAINT ck_node_results_retry_not_before CHECK (retry_not_before BETWEEN '1970-01-01Z' AND '9999-12-31Z'),
    CONSTRAINT ck_node_results_retry_status CHECK (retry_not_before IS NULL OR status = 'failed'),
    CONSTRAINT ck_node_results_sequence CHECK (sequence > 0)
)
"""

NODE_RESULTS_COLUMNS = {
    "tenant_id": "Key: the tenant that owns the run.",
    "run_id": "Key: the run.",
    "superstep": "Key: the superstep of the activation.",
    "node_id": "Key: the node of the activation.",
    "attempt": "Key: the number of the attempt, counted from 1.",
    "status": "Projection: whether the attempt succeeded or failed.",
    "body": "Body: canonical JSON bytes of the result, or of the failure and usage.",
    "digest": "Projection: the digest of the body.",
    "retry_not_before": "Projection: the instant before which no retry starts.",
    "sequence": "Projection: the event that the row was committed with.",
}


def upgrade() -> None:
    """Create the family."""
    with THIS.applied():
        execute(NODE_RESULTS)
        comment("node_results", "Outcomes of attempts of nodes.", NODE_RESULTS_COLUMNS)
        append_only("node_results")


def downgrade() -> None:
    """Drop the family while it is empty."""
    with THIS.removed("node_results"):
        execute("DROP TABLE {schema}.node_results")
