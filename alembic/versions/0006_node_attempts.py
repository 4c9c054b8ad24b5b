"""Create the attempts of nodes."""

from __future__ import annotations

from agentruns.migrations.frozen import Revision, append_only, comment, execute

revision = "agentruns_0006"
down_revision = "agentruns_0005"
branch_labels = None
depends_on = None

THIS = Revision(6, __file__)

NODE_ATTEMPTS = """
CREATE TABLE {schema}.node_attempts (
    tenant_id text COLLATE "C" NOT NULL,
    run_id uuid NOT NULL,
    superstep bigint NOT NULL,
    node_id text COLLATE "C" NOT NULL,
    attempt smallint NOT NULL,
    attempt_id uuid NOT NULL,
    sequence bigint NOT NULL,
    CONSTRAINT pk_node_attempts PRIMARY KEY (tenant_id, run_id, superstep, node_id, attempt),
    CONSTRAINT ck_node_attempts_superstep CHECK (superstep >= 0),
    CONSTRAINT ck_node_attempts_node_id CHECK (octet_length(node_id) BETWEEN 1 AND 128),
    CONSTRAINT ck_node_attempts_attempt CHECK (attempt BETWEEN 1 AND 64),
    CONSTRAINT ck_node_attempts_sequence CHECK (sequence > 0)
)
"""

NODE_ATTEMPTS_COLUMNS = {
    "tenant_id": "Key: the tenant that owns the run.",
    "run_id": "Key: the run.",
    "superstep": "Key: the superstep of the activation.",
    "node_id": "Key: the node of the activation.",
    "attempt": "Key: the number of the attempt, counted from 1.",
    "attempt_id": "Id of the attempt.",
    "sequence": "Projection: the event that the row was committed with.",
}


def upgrade() -> None:
    """Create the family."""
    with THIS.applied():
        execute(NODE_ATTEMPTS)
        comment(
            "node_attempts",
            "Starts of attempts of nodes, each committed before the node's code ran.",
            NODE_ATTEMPTS_COLUMNS,
        )
        append_only("node_attempts")


def downgrade() -> None:
    """Drop the family while it is empty."""
    with THIS.removed("node_attempts"):
        execute("DROP TABLE {schema}.node_attempts")
