"""Laws of admissions and their keys."""

from __future__ import annotations

from typing import Final

from agentruns.operations.audit.law import FACTS, RowLaw

#: A row that is older than revision 0015 has no graph's digest, and no admission is asked of it.
ADMISSIONS_ARE_WHOLE: Final = RowLaw(
    label="SUB-13",
    sentence="a run has its admission, its arbiter, its first event and its first checkpoint, or it is not there",
    sql="""
SELECT r.tenant_id, r.run_id, c.name AS "table", NULL AS "column", c.key, 'no row' AS found, 'one' AS wanted
FROM $.runs AS r CROSS JOIN LATERAL (VALUES
  ('agent_admissions', '', EXISTS (SELECT FROM $.agent_admissions AS x
    WHERE x.tenant_id = r.tenant_id AND x.run_id = r.run_id)),
  ('agent_submission_keys', 'origin=admitted', EXISTS (SELECT FROM $.agent_submission_keys AS x
    WHERE x.tenant_id = r.tenant_id AND x.run_id = r.run_id AND x.origin = 'admitted')),
  ('run_events', 'sequence=1', EXISTS (SELECT FROM $.run_events AS x
    WHERE x.tenant_id = r.tenant_id AND x.run_id = r.run_id AND x.sequence = 1)),
  ('run_checkpoints', 'superstep=0', EXISTS (SELECT FROM $.run_checkpoints AS x
    WHERE x.tenant_id = r.tenant_id AND x.run_id = r.run_id AND x.superstep = 0))
) AS c (name, key, is_there)
WHERE @r AND r.graph_definition_digest IS NOT NULL AND NOT c.is_there
""",
)

ONE_KEY_ONE_SUBMISSION: Final = RowLaw(
    label="SUB-3",
    sentence="every key of a run stands for what its first event says was submitted",
    sql=FACTS
    + """
SELECT k.tenant_id, k.run_id, 'agent_submission_keys' AS "table", 'submission_digest' AS "column",
  'origin=' || k.origin AS key, 'sha256:' || encode(k.submission_digest, 'hex') AS found,
  first.data ->> 'submission_digest' AS wanted
FROM $.agent_submission_keys AS k JOIN fact AS first ON first.tenant_id = k.tenant_id AND first.run_id = k.run_id
  AND first.sequence = 1
WHERE @k AND 'sha256:' || encode(k.submission_digest, 'hex') IS DISTINCT FROM first.data ->> 'submission_digest'
""",
)

RUNS_PIN_WHAT_WAS_ADMITTED: Final = RowLaw(
    label="SCH-11",
    sentence="a run row names the graph that was admitted, which its tenant has",
    sql=FACTS
    + """
SELECT r.tenant_id, r.run_id, c.name AS "table", c.col AS "column", '' AS key, c.found, c.wanted
FROM $.runs AS r JOIN fact AS first ON first.tenant_id = r.tenant_id AND first.run_id = r.run_id
  AND first.sequence = 1
CROSS JOIN LATERAL (VALUES
  ('runs', 'graph_definition_digest', 'sha256:' || encode(r.graph_definition_digest, 'hex'),
    first.data ->> 'graph_digest',
    'sha256:' || encode(r.graph_definition_digest, 'hex') IS DISTINCT FROM first.data ->> 'graph_digest'),
  ('graph_definitions', NULL, 'no definition', 'sha256:' || encode(r.graph_definition_digest, 'hex'),
    'sha256:' || encode(r.graph_definition_digest, 'hex') = first.data ->> 'graph_digest' AND NOT EXISTS (
      SELECT FROM $.graph_definitions AS g WHERE g.tenant_id = r.tenant_id
        AND g.definition_digest = r.graph_definition_digest))
) AS c (name, col, found, wanted, is_broken) WHERE @r AND c.is_broken
""",
)
