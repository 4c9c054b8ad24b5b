"""Create agent admissions, and let runs carry what a claim and a deadline need of them."""

from __future__ import annotations

from agentruns.migrations.frozen import Revision, append_only, comment, execute

revision = "agentruns_0015"
down_revision = "agentruns_0014"
branch_labels = None
depends_on = None

THIS = Revision(15, __file__)

AGENT_ADMISSIONS = """
CREATE TABLE {schema}.agent_admissions (
    tenant_id text COLLATE "C" NOT NULL,
    run_id uuid NOT NULL,
    agent_name text COLLATE "C" NOT NULL,
    agent_version text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    admission_digest bytea NOT NULL,
    sequence bigint NOT NULL,
    CONSTRAINT pk_agent_admissions PRIMARY KEY (tenant_id, run_id),
    CONSTRAINT ck_agent_admissions_body CHECK (octet_length(body) BETWEEN 1 AND 16777216),
    CONSTRAINT ck_agent_admissions_admission_digest CHECK (octet_length(admission_digest) = 32),
    CONSTRAINT ck_agent_admissions_sequence CHECK (sequence = 1),
    CONSTRAINT fk_agent_admissions_run FOREIGN KEY (tenant_id, run_id)
        REFERENCES {schema}.runs (tenant_id, run_id)
)
"""

AGENT_ADMISSIONS_COLUMNS = {
    "tenant_id": "Key: the tenant that owns the run.",
    "run_id": "Key: the run.",
    "agent_name": "Projection: the name of the agent.",
    "agent_version": "Projection: the version of the agent.",
    "body": "Body: canonical JSON bytes of the admission's intent.",
    "admission_digest": "Projection: the digest of the admission.",
    "sequence": "Projection: the event that the row was committed with.",
}

COLUMNS = """
ALTER TABLE {schema}.runs
    ADD COLUMN graph_definition_digest bytea,
    ADD COLUMN agent_deadline_at timestamptz,
    ADD CONSTRAINT ck_runs_graph_definition_digest CHECK (octet_length(graph_definition_digest) = 32),
    ADD CONSTRAINT ck_runs_agent_deadline_at CHECK (agent_deadline_at BETWEEN '1970-01-01Z' AND '9999-12-31Z')
"""

RUNS_COLUMNS = {
    "graph_definition_digest": "Projection: the digest of the graph that the admission pins.",
    "agent_deadline_at": "Projection: the deadline of the admission.",
}

IX_RUNS_LIVE = """
CREATE INDEX ix_runs_live ON {schema}.runs (tenant_id, graph_definition_digest, run_id)
    WHERE status IN ('active', 'waiting', 'cancellation_requested')
"""

IX_RUNS_DEADLINE = """
CREATE INDEX ix_runs_deadline ON {schema}.runs (tenant_id, agent_deadline_at, run_id)
    WHERE agent_deadline_at IS NOT NULL AND status IN ('active', 'waiting') AND quarantined_at IS NULL
"""

APPEND_ONLY = """
CREATE TRIGGER append_only_0015 BEFORE UPDATE OF graph_definition_digest, agent_deadline_at ON {schema}.runs
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.forbid_change()
"""


def upgrade() -> None:
    """Create the family."""
    with THIS.applied():
        execute(AGENT_ADMISSIONS)
        comment("agent_admissions", "Admissions of agent runs.", AGENT_ADMISSIONS_COLUMNS)
        append_only("agent_admissions")
        execute(COLUMNS, IX_RUNS_LIVE, IX_RUNS_DEADLINE, APPEND_ONLY)
        comment("runs", "", RUNS_COLUMNS)


def downgrade() -> None:
    """Drop the family while it is empty."""
    with THIS.removed("agent_admissions"):
        execute(
            "DROP TRIGGER append_only_0015 ON {schema}.runs",
            "DROP INDEX {schema}.ix_runs_live, {schema}.ix_runs_deadline",
            "ALTER TABLE {schema}.runs DROP COLUMN graph_definition_digest, DROP COLUMN agent_deadline_at",
            "DROP TABLE {schema}.agent_admissions",
        )
