"""Laws of when a run opens, and of the cycles that share turns."""

from __future__ import annotations

from typing import Final

from agentruns.operations.audit.law import RowLaw, WideLaw

GATES_STAND_BEFORE_CLAIMS: Final = RowLaw(
    label="SCH-10",
    sentence="a gate stands only before a claim: never beside a lease, never without or before readiness",
    sql="""
SELECT r.tenant_id, r.run_id, 'runs' AS "table", 'scheduler_not_before' AS "column", '' AS key,
  r.scheduler_not_before || CASE WHEN r.lease_attempt_id IS NULL THEN '' ELSE ' beside a lease' END AS found,
  'none beside a lease, and not before ' || coalesce(r.scheduler_ready_at::text, 'readiness, which there is not')
    AS wanted
FROM $.runs AS r WHERE @r AND r.scheduler_not_before IS NOT NULL
  AND (r.scheduler_not_before >= r.scheduler_ready_at AND r.lease_attempt_id IS NULL) IS NOT TRUE
""",
)

READINESS_IS_NOT_BEFORE_ADMISSION: Final = RowLaw(
    label="SCH-2",
    sentence="a run is ready when it was admitted, or later",
    sql="""
SELECT r.tenant_id, r.run_id, 'runs' AS "table", 'scheduler_ready_at' AS "column", '' AS key,
  r.scheduler_ready_at::text AS found, 'not before ' || e.recorded_at AS wanted
FROM $.runs AS r JOIN $.run_events AS e ON e.tenant_id = r.tenant_id AND e.run_id = r.run_id AND e.sequence = 1
WHERE @r AND r.scheduler_ready_at < e.recorded_at
""",
)

CYCLES_STAND_BEHIND_THEIR_LAST_TURN: Final = WideLaw(
    label="SCH-6",
    sentence="a cycle stands behind the last turn that was taken of it, inside its length",
    needs_everything=True,
    sql="""
SELECT NULL AS tenant_id, NULL AS run_id, 'scheduler_fairness_shards' AS "table", c.name AS "column",
  'shard_id=' || s.shard_id AS key, c.found, c.wanted
FROM $.scheduler_fairness_shards AS s
LEFT JOIN LATERAL (
  SELECT t.sequence, t.slot FROM $.scheduler_fairness_reservations AS t WHERE t.shard_id = s.shard_id
  ORDER BY t.sequence DESC LIMIT 1) AS last ON true
CROSS JOIN LATERAL (VALUES
  ('next_sequence', s.next_sequence::text, 'above ' || last.sequence, s.next_sequence <= last.sequence),
  ('next_slot', s.next_slot::text, ((last.slot + 1) % greatest(s.cycle_length, 1))::text,
    s.next_sequence = last.sequence + 1 AND s.next_slot <> (last.slot + 1) % greatest(s.cycle_length, 1)),
  ('next_slot', s.next_slot::text, '0 to ' || s.cycle_length - 1, s.next_slot NOT BETWEEN 0 AND s.cycle_length - 1)
) AS c (name, found, wanted, is_broken) WHERE c.is_broken
""",
)
