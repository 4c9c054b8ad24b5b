"""Create quarantines and their releases."""

from __future__ import annotations

from agentruns.migrations.frozen import Revision, append_only, comment, execute

revision = "agentruns_0010"
down_revision = "agentruns_0009"
branch_labels = None
depends_on = None

THIS = Revision(10, __file__)

RUN_QUARANTINES = """
CREATE TABLE {schema}.run_quarantines (
    tenant_id text COLLATE "C" NOT NULL,
    run_id uuid NOT NULL,
    quarantine_id uuid NOT NULL,
    quarantined_at timestamptz NOT NULL,
    cause_kind text COLLATE "C" NOT NULL,
    component text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    digest bytea NOT NULL,
    CONSTRAINT pk_run_quarantines PRIMARY KEY (tenant_id, run_id, quarantine_id),
    CONSTRAINT ck_run_quarantines_cause_kind CHECK (
        cause_kind IN ('integrity_failure', 'unsupported_schema', 'missing_artifact', 'cross_tenant_reference',
        'projection_mismatch', 'fencing_epoch_exhausted', 'operator_policy')
    ),
    CONSTRAINT ck_run_quarantines_component CHECK (octet_length(component) BETWEEN 1 AND 128),
    CONSTRAINT ck_run_quarantines_body CHECK (octet_length(body) BETWEEN 1 AND 65536),
    CONSTRAINT ck_run_quarantines_digest CHECK (octet_length(digest) = 32),
    CONSTRAINT fk_run_quarantines_run FOREIGN KEY (tenant_id, run_id)
        REFERENCES {schema}.runs (tenant_id, run_id)
)
"""

RUN_QUARANTINES_COLUMNS = {
    "tenant_id": "Key: the tenant that owns the run.",
    "run_id": "Key: the run.",
    "quarantine_id": "Key: the quarantine.",
    "quarantined_at": "Instant of the isolation by the database's clock.",
    "cause_kind": "Projection: the kind of the cause.",
    "component": "Projection: the rule or the column that does not verify.",
    "body": "Body: canonical JSON bytes of the record.",
    "digest": "Projection: the digest of the body.",
}

RUN_QUARANTINE_RELEASES = """
CREATE TABLE {schema}.run_quarantine_releases (
    tenant_id text COLLATE "C" NOT NULL,
    run_id uuid NOT NULL,
    quarantine_id uuid NOT NULL,
    released_at timestamptz NOT NULL,
    body bytea NOT NULL,
    digest bytea NOT NULL,
    CONSTRAINT pk_run_quarantine_releases PRIMARY KEY (tenant_id, run_id, quarantine_id),
    CONSTRAINT ck_run_quarantine_releases_body CHECK (octet_length(body) BETWEEN 1 AND 65536),
    CONSTRAINT ck_run_quarantine_releases_digest CHECK (octet_length(digest) = 32),
    CONSTRAINT fk_run_quarantine_releases_quarantine FOREIGN KEY (tenant_id, run_id, quarantine_id)
        REFERENCES {schema}.run_quarantines (tenant_id, run_id, quarantine_id)
)
"""

RUN_QUARANTINE_RELEASES_COLUMNS = {
    "tenant_id": "Key: the tenant that owns the run.",
    "run_id": "Key: the run.",
    "quarantine_id": "Key: the quarantine.",
    "released_at": "Instant of the release by the database's clock.",
    "body": "Body: canonical JSON bytes of the record.",
    "digest": "Projection: the digest of the body.",
}


def upgrade() -> None:
    """Create the family."""
    with THIS.applied():
        execute(RUN_QUARANTINES)
        comment(
            "run_quarantines",
            "Quarantines of runs, of which at most one per run is unreleased.",
            RUN_QUARANTINES_COLUMNS,
        )
        append_only("run_quarantines")
        execute(RUN_QUARANTINE_RELEASES)
        comment("run_quarantine_releases", "Releases from quarantine.", RUN_QUARANTINE_RELEASES_COLUMNS)
        append_only("run_quarantine_releases")


def downgrade() -> None:
    """Drop the family while it is empty."""
    with THIS.removed("run_quarantines", "run_quarantine_releases"):
        execute("DROP TABLE {schema}.run_quarantine_releases, {schema}.run_quarantines")
