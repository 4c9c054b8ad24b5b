"""Create the definitions of graphs."""

from __future__ import annotations

from agentruns.migrations.frozen import Revision, append_only, comment, execute

revision = "agentruns_0013"
down_revision = "agentruns_0012"
branch_labels = None
depends_on = None

THIS = Revision(13, __file__)

GRAPH_DEFINITIONS = """
CREATE TABLE {schema}.graph_definitions (
    tenant_id text COLLATE "C" NOT NULL,
    graph_owner_issuer text COLLATE "C" NOT NULL,
    graph_owner_subject text COLLATE "C" NOT NULL,
    graph_name text COLLATE "C" NOT NULL,
    graph_version text COLLATE "C" NOT NULL,
    definition_digest bytea NOT NULL,
    definition bytea NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT pk_graph_definitions
        PRIMARY KEY (tenant_id, graph_owner_issuer, graph_owner_subject, graph_name, graph_version),
    CONSTRAINT ck_graph_definitions_tenant_id CHECK (
        octet_length(tenant_id) BETWEEN 1 AND 128 AND tenant_id !~ '[^A-Za-z0-9._:-]'
        AND tenant_id NOT IN ('.', '..')
    ),
    CONSTRAINT ck_graph_definitions_graph_owner_issuer
        CHECK (octet_length(graph_owner_issuer) BETWEEN 9 AND 512),
    CONSTRAINT ck_graph_definitions_graph_owner_subject
        CHECK (octet_length(graph_owner_subject) BETWEEN 1 AND 255),
    CONSTRAINT ck_graph_definitions_graph_name CHECK (octet_length(graph_name) BETWEEN 1 AND 128),
    CONSTRAINT ck_graph_definitions_graph_version CHECK (octet_length(graph_version) BETWEEN 5 AND 62),
    CONSTRAINT ck_graph_definitions_definition_digest CHECK (octet_length(definition_digest) = 32),
    CONSTRAINT ck_graph_definitions_definition CHECK (octet_length(definition) BETWEEN 1 AND 2097280),
    CONSTRAINT uq_graph_definitions_digest UNIQUE (tenant_id, definition_digest)
)
"""

GRAPH_DEFINITIONS_COLUMNS = {
    "tenant_id": "Key: the tenant that published the graph.",
    "graph_owner_issuer": "Key: the issuer of the graph's owner.",
    "graph_owner_subject": "Key: the subject of the graph's owner.",
    "graph_name": "Key: the name of the graph.",
    "graph_version": "Key: the version of the graph.",
    "definition_digest": "Digest of the definition, by which runs pin it.",
    "definition": "Body: canonical JSON bytes of the definition.",
    "created_at": "Instant of the insertion by the database's clock.",
}


def upgrade() -> None:
    """Create the family."""
    with THIS.applied():
        execute(GRAPH_DEFINITIONS)
        comment("graph_definitions", "Definitions of graphs: a version never changes.", GRAPH_DEFINITIONS_COLUMNS)
        append_only("graph_definitions")


def downgrade() -> None:
    """Drop the family while it is empty."""
    with THIS.removed("graph_definitions"):
        execute("DROP TABLE {schema}.graph_definitions")
