"""Laws of a journal's columns and of what else stands at its events, each in one statement."""

from __future__ import annotations

from typing import Final

from agentruns.operations.audit.law import FACTS, RowLaw
from agentruns.orm.base import Base

#: Kinds of events that are transitions: each adds one to the revision.
TRANSITIONS: Final = """(
  'agent-admitted', 'graph-barrier-waiting', 'graph-interrupt-resolved', 'graph-timer-fired',
  'agent-cancellation-requested', 'agent-deadline-cancellation-requested', 'agent-cancellation-confirmed',
  'graph-barrier-succeeded', 'graph-run-failed')"""

_OF_RUN: Final = sorted(
    table.name for table in Base.metadata.tables.values() if {"tenant_id", "run_id"} <= set(table.c.keys())
)
_COUNTED: Final = "SELECT tenant_id, run_id, '{0}' AS name, count(*) AS n FROM $.{0} AS x WHERE @x GROUP BY 1, 2"

#: Rows of runs are removed together, and none is ever without its run. A slot names a claim that may be long gone.
NO_STRAYS: Final = RowLaw(
    label="OPS-9",
    sentence="every row of a run belongs to a run that is there",
    sql='SELECT x.tenant_id, x.run_id, min(x.name) AS "table", NULL AS "column", \'\' AS key,'
    " string_agg(x.n || ' in ' || x.name, ', ' ORDER BY x.name) AS found, 'a run row' AS wanted FROM ("
    + " UNION ALL ".join(_COUNTED.format(name) for name in _OF_RUN if name not in ("runs", "tenant_slots"))
    + ") AS x LEFT JOIN $.runs AS r ON r.tenant_id = x.tenant_id AND r.run_id = x.run_id"
    " WHERE r.run_id IS NULL GROUP BY x.tenant_id, x.run_id",
)

_BEFORE: Final = """
SELECT x.tenant_id, x.run_id, 'run_events' AS "table", '{column}' AS "column", 'sequence=' || x.sequence AS key,
  x.found, x.wanted FROM ({rows}) AS x WHERE {broken}
"""

SEQUENCES_ARE_CONTIGUOUS: Final = RowLaw(
    label="LED-16",
    sentence="sequences of a journal are contiguous from 1",
    sql=_BEFORE.format(
        column="sequence",
        rows="""
SELECT e.tenant_id, e.run_id, e.sequence, e.sequence::text AS found,
  (1 + coalesce(lag(e.sequence) OVER run, 0))::text AS wanted
FROM $.run_events AS e WHERE @e WINDOW run AS (PARTITION BY e.tenant_id, e.run_id ORDER BY e.sequence)""",
        broken="x.found <> x.wanted",
    ),
)

TIME_NEVER_FALLS: Final = RowLaw(
    label="LED-16",
    sentence="the instants of a journal never fall",
    sql=_BEFORE.format(
        column="recorded_at",
        rows="""
SELECT e.tenant_id, e.run_id, e.sequence, e.recorded_at AS at, lag(e.recorded_at) OVER run AS before,
  e.recorded_at::text AS found, 'not before ' || lag(e.recorded_at) OVER run AS wanted
FROM $.run_events AS e WHERE @e WINDOW run AS (PARTITION BY e.tenant_id, e.run_id ORDER BY e.sequence)""",
        broken="x.at < x.before",
    ),
)

#: Events of the control plane carry epoch 0 and stand between those of workers.
EPOCHS_NEVER_FALL: Final = RowLaw(
    label="LEA-20",
    sentence="the epochs of worker events never fall",
    sql=_BEFORE.format(
        column="epoch",
        rows="""
SELECT e.tenant_id, e.run_id, e.sequence, e.epoch, lag(e.epoch) OVER run AS before,
  e.epoch::text AS found, 'at least ' || lag(e.epoch) OVER run AS wanted
FROM $.run_events AS e WHERE @e AND e.epoch > 0
WINDOW run AS (PARTITION BY e.tenant_id, e.run_id ORDER BY e.sequence)""",
        broken="x.epoch < x.before",
    ),
)

REVISIONS_COUNT_TRANSITIONS: Final = RowLaw(
    label="LIF-2",
    sentence="the revision is the number of transitions, in the run row and in each event that states one",
    sql=FACTS
    + f"""
, moved AS (
  SELECT tenant_id, run_id, sequence, kind, data ->> 'revision' AS found,
    row_number() OVER (PARTITION BY tenant_id, run_id ORDER BY sequence) AS wanted
  FROM fact WHERE kind IN {TRANSITIONS})
SELECT tenant_id, run_id, 'run_events' AS "table", 'data' AS "column", 'sequence=' || sequence AS key,
  'revision ' || found AS found, wanted::text AS wanted
FROM moved WHERE kind <> 'agent-admitted' AND found IS DISTINCT FROM wanted::text
UNION ALL
SELECT r.tenant_id, r.run_id, 'runs', 'revision', '', r.revision::text, coalesce(max(moved.wanted), 0)::text
FROM $.runs AS r LEFT JOIN moved ON moved.tenant_id = r.tenant_id AND moved.run_id = r.run_id WHERE @r
GROUP BY r.tenant_id, r.run_id, r.revision HAVING r.revision <> coalesce(max(moved.wanted), 0)
""",
)

_HASHED: Final = """
SELECT x.tenant_id, x.run_id, '{table}' AS "table", '{body}' AS "column", {key} AS key,
  'sha256:' || encode(
    sha256(convert_to('agentruns/' || {purpose} || '/v1', 'UTF8') || '\\x00'::bytea || x.{body}), 'hex') AS found,
  'sha256:' || encode(x.{digest}, 'hex') AS wanted
FROM $.{table} AS x WHERE @x AND x.{body} IS NOT NULL"""


def _hashed(table: str, key: str, purpose: str, *, body: str = "body", digest: str = "digest") -> str:
    return _HASHED.format(table=table, key=key, purpose=purpose, body=body, digest=digest)


_ATTEMPT: Final = "'superstep=' || x.superstep || ' node_id=' || x.node_id || ' attempt=' || x.attempt"
_CALL: Final = "'invocation_id=' || x.invocation_id || ' number=' || x.number"

#: Only what is longer than a digest of the fold: states are hashed into those of their checkpoints.
BODIES_HASH_TO_THEIR_DIGESTS: Final = RowLaw(
    label="LED-2",
    sentence="the bytes of a body hash to the digest that stands beside them",
    sql="SELECT * FROM ("
    + " UNION ALL ".join(
        (
            _hashed("agent_admissions", "''", "'admission'", digest="admission_digest"),
            _hashed(
                "node_results", _ATTEMPT, "CASE x.status WHEN 'succeeded' THEN 'node-result' ELSE 'node-failure' END"
            ),
            _hashed(
                "run_outcomes",
                "'kind=' || x.kind",
                "CASE x.kind WHEN 'cancellation' THEN 'cancellation-request' ELSE 'outcome' END",
            ),
            _hashed("run_waits", "'wait_id=' || x.wait_id", "'wait'", body="registration"),
            _hashed(
                "run_waits",
                "'wait_id=' || x.wait_id",
                "'wait-resolution'",
                body="resolution",
                digest="resolution_digest",
            ),
            _hashed("run_quarantines", "'quarantine_id=' || x.quarantine_id", "'quarantine'"),
            _hashed("run_quarantine_releases", "'quarantine_id=' || x.quarantine_id", "'quarantine-release'"),
            _hashed(
                "model_invocation_revisions",
                _CALL,
                "CASE x.status WHEN 'committed' THEN 'model-response' ELSE 'model-error' END",
            ),
            _hashed(
                "tool_invocation_revisions",
                _CALL,
                "CASE x.status WHEN 'committed' THEN 'tool-result' ELSE 'tool-error' END",
            ),
        )
    )
    + ") AS hashed WHERE found IS DISTINCT FROM wanted",
)

_LAST: Final = """LEFT JOIN LATERAL (
  SELECT * FROM $.{table} AS x WHERE x.tenant_id = r.tenant_id AND x.run_id = r.run_id {where}
  ORDER BY x.{order} DESC LIMIT 1) AS {name} ON true"""

RUN_ROWS_STAND_AT_THEIR_HEADS: Final = RowLaw(
    label="LED-1",
    sentence="the run row says what its last event, its last transition and its last checkpoint say",
    sql=f"""
SELECT r.tenant_id, r.run_id, 'runs' AS "table", c.name AS "column", '' AS key, c.found, c.wanted
FROM $.runs AS r
{_LAST.format(table="run_events", where="", order="sequence", name="head")}
{_LAST.format(table="run_events", where=f"AND x.kind IN {TRANSITIONS}", order="sequence", name="moved")}
{_LAST.format(table="run_checkpoints", where="", order="superstep", name="stood")}
CROSS JOIN LATERAL (VALUES
  ('head_sequence', r.head_sequence::text, head.sequence::text),
  ('head_digest', 'sha256:' || encode(r.head_digest, 'hex'), 'sha256:' || encode(head.digest, 'hex')),
  ('head_recorded_at', r.head_recorded_at::text, head.recorded_at::text),
  ('lifecycle_sequence', r.lifecycle_sequence::text, moved.sequence::text),
  ('changed_at', r.changed_at::text, moved.recorded_at::text),
  ('superstep', r.superstep::text, stood.superstep::text),
  ('checkpoint_digest', 'sha256:' || encode(r.checkpoint_digest, 'hex'), 'sha256:' || encode(stood.digest, 'hex'))
) AS c (name, found, wanted)
WHERE @r AND c.found IS DISTINCT FROM c.wanted
""",
)
