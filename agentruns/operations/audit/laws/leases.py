"""Laws of leases, fences and quarantines on the run row."""

from __future__ import annotations

from typing import Final

from agentruns.operations.audit.law import RowLaw, WideLaw

_CLAIMABLE: Final = "('active', 'cancellation_requested')"

EVENTS_STAY_BELOW_THE_FENCE: Final = RowLaw(
    label="LEA-2",
    sentence="no event has an epoch above that of its run",
    sql="""
SELECT r.tenant_id, r.run_id, 'runs' AS "table", 'fencing_epoch' AS "column", '' AS key,
  r.fencing_epoch::text AS found, 'at least ' || max(e.epoch) AS wanted
FROM $.runs AS r JOIN $.run_events AS e ON e.tenant_id = r.tenant_id AND e.run_id = r.run_id
WHERE @r AND @e GROUP BY r.tenant_id, r.run_id, r.fencing_epoch HAVING max(e.epoch) > r.fencing_epoch
""",
)

LEASES_ARE_WHOLE: Final = RowLaw(
    label="LEA-7",
    sentence="a lease has an owner, an epoch, and instants in their order",
    sql="""
SELECT r.tenant_id, r.run_id, 'runs' AS "table", 'lease_expires_at' AS "column", '' AS key,
  'epoch ' || r.fencing_epoch || ', owner ' || coalesce(r.lease_attempt_id::text, 'none') || ', acquired '
    || coalesce(r.lease_acquired_at::text, 'never') || ', renewed ' || coalesce(r.lease_renewed_at::text, 'never')
    || ', expires ' || coalesce(r.lease_expires_at::text, 'never') AS found,
  'all or none, acquired <= renewed < expires' AS wanted
FROM $.runs AS r WHERE @r
  AND num_nonnulls(r.lease_attempt_id, r.lease_acquired_at, r.lease_renewed_at, r.lease_expires_at) > 0
  AND (r.fencing_epoch > 0 AND r.lease_attempt_id IS NOT NULL AND r.lease_acquired_at <= r.lease_renewed_at
    AND r.lease_renewed_at < r.lease_expires_at) IS NOT TRUE
""",
)

ONLY_CLAIMABLE_RUNS_ARE_LEASED: Final = RowLaw(
    label="LEA-1",
    sentence="only a run whose status permits a claim has a lease",
    sql=f"""
SELECT r.tenant_id, r.run_id, 'runs' AS "table", 'lease_attempt_id' AS "column", '' AS key,
  'a lease in status ' || r.status AS found, 'none' AS wanted
FROM $.runs AS r WHERE @r AND r.lease_attempt_id IS NOT NULL AND r.status NOT IN {_CLAIMABLE}
""",
)

QUARANTINED_RUNS_STAND_STILL: Final = RowLaw(
    label="LEA-24",
    sentence="a quarantined run has no lease, and its head does not move",
    sql="""
SELECT r.tenant_id, r.run_id, 'runs' AS "table", c.name AS "column", '' AS key, c.found, c.wanted
FROM $.runs AS r CROSS JOIN LATERAL (VALUES
  ('lease_attempt_id', 'a lease', 'none', r.lease_attempt_id IS NOT NULL),
  ('head_recorded_at', r.head_recorded_at::text, 'not after ' || r.quarantined_at,
    r.head_recorded_at > r.quarantined_at)
) AS c (name, found, wanted, is_broken)
WHERE @r AND r.quarantined_at IS NOT NULL AND c.is_broken
""",
)

THE_MARK_IS_THAT_OF_THE_QUARANTINE: Final = RowLaw(
    label="OPS-13",
    sentence="a run is marked exactly while one quarantine of it is not released, with the instant of that one",
    sql="""
SELECT r.tenant_id, r.run_id, 'runs' AS "table", 'quarantined_at' AS "column", '' AS key,
  coalesce(r.quarantined_at::text, 'no mark') AS found,
  CASE q.n WHEN 0 THEN 'none' WHEN 1 THEN q.at::text ELSE 'one quarantine, not ' || q.n END AS wanted
FROM $.runs AS r CROSS JOIN LATERAL (
  SELECT count(*) AS n, max(q.quarantined_at) AS at FROM $.run_quarantines AS q
  WHERE q.tenant_id = r.tenant_id AND q.run_id = r.run_id AND NOT EXISTS (
    SELECT FROM $.run_quarantine_releases AS f WHERE f.tenant_id = q.tenant_id AND f.run_id = q.run_id
      AND f.quarantine_id = q.quarantine_id)) AS q
WHERE @r AND (q.n > 1 OR r.quarantined_at IS DISTINCT FROM q.at)
""",
)

#: A claim that was under way when the limit was lowered may hold a place above it, for as long as a statement takes.
LIVE_LEASES_KEEP_TO_THE_LIMIT: Final = WideLaw(
    label="LEA-13",
    sentence="no place of a tenant is taken above a limit that was there when it was claimed, and no claim takes two",
    sql="""
SELECT s.tenant_id, s.run_id, 'tenant_slots' AS "table", 'slot' AS "column", 'slot=' || s.slot AS key,
  CASE WHEN s.slot >= l.maximum_live THEN 'a live lease in place ' || s.slot ELSE 'a claim that has another place' END
    AS found,
  CASE WHEN s.slot >= l.maximum_live THEN 'places 0 to ' || l.maximum_live - 1 ELSE 'one place' END AS wanted
FROM (
  SELECT x.*, row_number() OVER (PARTITION BY x.tenant_id, x.run_id, x.fencing_epoch ORDER BY x.slot) AS n
  FROM $.tenant_slots AS x
  WHERE x.tenant_id BETWEEN :first_tenant AND :last_tenant AND x.run_id IS NOT NULL) AS s
JOIN $.runs AS r ON r.tenant_id = s.tenant_id AND r.run_id = s.run_id AND r.fencing_epoch = s.fencing_epoch
LEFT JOIN $.tenant_limits AS l ON l.tenant_id = s.tenant_id
  AND r.lease_acquired_at > l.updated_at + interval '1 minute'
WHERE r.lease_expires_at > clock_timestamp() AND (s.slot >= l.maximum_live OR s.n > 1)
""",
)
