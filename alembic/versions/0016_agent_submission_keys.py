"""Create submission keys, receipts of retention, and the views."""

from __future__ import annotations

from agentruns.migrations.frozen import Revision, append_only, comment, execute
from agentruns.migrations.frozen_views import create_views, drop_views

revision = "agentruns_0016"
down_revision = "agentruns_0015"
branch_labels = None
depends_on = None

THIS = Revision(16, __file__, oldest_code=15)

AGENT_SUBMISSION_KEYS = """
CREATE TABLE {schema}.agent_submission_keys (
    tenant_id text COLLATE "C" NOT NULL,
    key_digest bytea NOT NULL,
    run_id uuid NOT NULL,
    origin text COLLATE "C" NOT NULL,
    submission_digest bytea NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT pk_agent_submission_keys PRIMARY KEY (tenant_id, key_digest),
    CONSTRAINT ck_agent_submission_keys_key_digest CHECK (octet_length(key_digest) = 32),
    CONSTRAINT ck_agent_submission_keys_run_id
        CHECK (get_byte(uuid_send(run_id), 6) >> 4 = 7 AND get_byte(uuid_send(run_id), 8) >> 6 = 2),
    CONSTRAINT ck_agent_submission_keys_origin CHECK (origin IN ('admitted', 'attached')),
    CONSTRAINT ck_agent_submission_keys_submission_digest CHECK (octet_length(submission_digest) = 32),
    CONSTRAINT uq_agent_submission_keys_origin UNIQUE (tenant_id, run_id, origin),
    CONSTRAINT fk_agent_submission_keys_admission FOREIGN KEY (tenant_id, run_id)
        REFERENCES {schema}.agent_admissions (tenant_id, run_id)
)
"""

AGENT_SUBMISSION_KEYS_COLUMNS = {
    "tenant_id": "Key: the tenant that submitted.",
    "key_digest": "Key: the digest of the submission key, or of the run where there is no key.",
    "run_id": "Run that the key stands for.",
    "origin": "Whether the row came with the admission or was attached later.",
    "submission_digest": "Digest of what was submitted.",
    "created_at": "Instant of the admission, or of the attachment.",
}

RETENTION_RECEIPTS = """
CREATE TABLE {schema}.retention_receipts (
    tenant_id text COLLATE "C" NOT NULL,
    receipt_id uuid NOT NULL,
    removed_at timestamptz NOT NULL,
    cutoff_at timestamptz NOT NULL,
    run_count integer NOT NULL,
    row_count bigint NOT NULL,
    byte_count bigint NOT NULL,
    runs_digest bytea NOT NULL,
    policy bytea NOT NULL,
    CONSTRAINT pk_retention_receipts PRIMARY KEY (tenant_id, receipt_id),
    CONSTRAINT ck_retention_receipts_runs_digest CHECK (octet_length(runs_digest) = 32),
    CONSTRAINT ck_retention_receipts_policy CHECK (octet_length(policy) BETWEEN 1 AND 16384)
)
"""

RETENTION_RECEIPTS_COLUMNS = {
    "tenant_id": "Key: the tenant.",
    "receipt_id": "Key: the receipt.",
    "removed_at": "Instant of the removal by the database's clock.",
    "cutoff_at": "Instant before which the removed runs had ended.",
    "run_count": "Number of runs that were removed.",
    "row_count": "Number of rows that were removed.",
    "byte_count": "Number of bytes of bodies that were removed.",
    "runs_digest": "Digest of the sorted list of runs and admissions.",
    "policy": "Body: canonical JSON bytes of the policy.",
}

ADMITTED = """
DO $admitted$ DECLARE
  stray record;
BEGIN
  SELECT a.tenant_id, a.run_id INTO stray
  FROM {schema}.agent_admissions AS a
  LEFT JOIN {schema}.run_events AS e ON e.tenant_id = a.tenant_id AND e.run_id = a.run_id AND e.sequence = 1
  WHERE e.kind IS DISTINCT FROM 'agent-admitted'
  ORDER BY a.tenant_id, a.run_id
  LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'the journal of run % of tenant % does not begin with its admission', stray.run_id, stray.tenant_id
      USING ERRCODE = 'data_corrupted', DETAIL = stray.run_id::text, SCHEMA = '{name}', TABLE = 'run_events';
  END IF;
END $admitted$
"""

KEYLESS = """
INSERT INTO {schema}.agent_submission_keys
    (tenant_id, key_digest, run_id, origin, submission_digest, created_at)
SELECT
    a.tenant_id,
    sha256(
        convert_to('agentruns/keyless-admission/v1', 'UTF8') || decode('00', 'hex')
        || convert_to('{"run_id":"' || a.run_id || '","tenant_id":"' || a.tenant_id || '"}', 'UTF8')
    ) AS key_digest,
    a.run_id,
    'admitted',
    decode(substr(convert_from(e.data, 'UTF8')::json ->> 'submission_digest', 8), 'hex'),
    e.recorded_at
FROM {schema}.agent_admissions AS a
JOIN {schema}.run_events AS e ON e.tenant_id = a.tenant_id AND e.run_id = a.run_id AND e.sequence = 1
ORDER BY a.tenant_id, key_digest
"""


def upgrade() -> None:
    """Create the family."""
    with THIS.applied():
        execute(AGENT_SUBMISSION_KEYS)
        comment(
            "agent_submission_keys",
            "Submission keys of runs, by digest: the arbiter of admissions.",
            AGENT_SUBMISSION_KEYS_COLUMNS,
        )
        append_only("agent_submission_keys")
        execute(RETENTION_RECEIPTS)
        comment(
            "retention_receipts",
            "Receipts of removals by retention, without any id, key or content of a run.",
            RETENTION_RECEIPTS_COLUMNS,
        )
        append_only("retention_receipts")
        execute(ADMITTED, KEYLESS)
        create_views()


def downgrade() -> None:
    """Drop the family while it is empty."""
    with THIS.removed("agent_submission_keys", "retention_receipts"):
        drop_views()
        execute("DROP TABLE {schema}.retention_receipts, {schema}.agent_submission_keys")
