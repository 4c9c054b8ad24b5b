"""Laws of a run's life: its status, its waits, and how it ends."""

from __future__ import annotations

from typing import Final

from agentruns.operations.audit.law import FACTS, RowLaw
from agentruns.operations.audit.laws.ledger import TRANSITIONS

_TERMINAL_KINDS: Final = "('graph-barrier-succeeded', 'graph-run-failed', 'agent-cancellation-confirmed')"
_REQUEST_KINDS: Final = "('agent-cancellation-requested', 'agent-deadline-cancellation-requested')"
_TERMINAL: Final = "('succeeded', 'failed', 'cancelled')"
_EVENT: Final = """
SELECT x.tenant_id, x.run_id, 'run_events' AS "table", '{column}' AS "column", 'sequence=' || x.sequence AS key,
  x.found, x.wanted FROM ({rows}) AS x"""

NOTHING_FOLLOWS_AN_END: Final = RowLaw(
    label="LIF-1",
    sentence="a terminal event is the last of its run",
    sql=_EVENT.format(
        column="kind",
        rows=f"""
SELECT e.tenant_id, e.run_id, min(e.sequence) AS sequence, min(e.kind) AS found,
  'nothing after the end at ' || ended.sequence AS wanted
FROM $.run_events AS e JOIN (
  SELECT f.tenant_id, f.run_id, min(f.sequence) AS sequence FROM $.run_events AS f
  WHERE @f AND f.kind IN {_TERMINAL_KINDS} GROUP BY 1, 2) AS ended
  ON ended.tenant_id = e.tenant_id AND ended.run_id = e.run_id AND e.sequence > ended.sequence
WHERE @e GROUP BY e.tenant_id, e.run_id, ended.sequence""",
    ),
)

A_REQUEST_IS_NOT_OVERTAKEN: Final = RowLaw(
    label="LIF-6",
    sentence="after a request to cancel a run neither succeeds nor fails",
    sql=_EVENT.format(
        column="kind",
        rows=f"""
SELECT e.tenant_id, e.run_id, e.sequence, e.kind AS found, 'agent-cancellation-confirmed' AS wanted
FROM $.run_events AS e WHERE @e AND e.kind IN ('graph-barrier-succeeded', 'graph-run-failed')
  AND EXISTS (SELECT FROM $.run_events AS asked WHERE asked.tenant_id = e.tenant_id AND asked.run_id = e.run_id
    AND asked.sequence < e.sequence AND asked.kind IN {_REQUEST_KINDS})""",
    ),
)

ONE_REQUEST_TO_CANCEL: Final = RowLaw(
    label="LIF-15",
    sentence="a run is asked to end once at most, and by its deadline not before it",
    sql=_EVENT.format(
        column="kind",
        rows=f"""
SELECT asked.tenant_id, asked.run_id, asked.sequence,
  CASE WHEN n > 1 THEN 'request ' || n ELSE 'a request at ' || recorded_at END AS found,
  CASE WHEN n > 1 THEN 'one' ELSE 'not before ' || r.agent_deadline_at END AS wanted
FROM (SELECT e.*, row_number() OVER (PARTITION BY e.tenant_id, e.run_id ORDER BY e.sequence) AS n
  FROM $.run_events AS e WHERE @e AND e.kind IN {_REQUEST_KINDS}) AS asked
JOIN $.runs AS r ON r.tenant_id = asked.tenant_id AND r.run_id = asked.run_id
WHERE n > 1 OR (kind = 'agent-deadline-cancellation-requested' AND recorded_at < r.agent_deadline_at)""",
    ),
)

STATUS_FOLLOWS_FROM_THE_LAST_TRANSITION: Final = RowLaw(
    label="SUB-25",
    sentence="the status of a run is the one that its last transition leads to",
    sql=f"""
SELECT x.tenant_id, x.run_id, 'runs' AS "table", 'status' AS "column", '' AS key, x.found, x.wanted FROM (
  SELECT r.tenant_id, r.run_id, r.status AS found, CASE
    WHEN moved.kind = 'agent-admitted' THEN 'active'
    WHEN moved.kind = 'graph-barrier-waiting' THEN 'waiting'
    WHEN moved.kind IN {_REQUEST_KINDS} THEN 'cancellation_requested'
    WHEN moved.kind = 'agent-cancellation-confirmed' THEN 'cancelled'
    WHEN moved.kind = 'graph-barrier-succeeded' THEN 'succeeded'
    WHEN moved.kind = 'graph-run-failed' THEN 'failed'
    WHEN EXISTS (SELECT FROM $.run_waits AS w WHERE w.tenant_id = r.tenant_id AND w.run_id = r.run_id
      AND w.status = 'outstanding') THEN 'waiting'
    ELSE 'active' END AS wanted
  FROM $.runs AS r JOIN LATERAL (
    SELECT e.kind FROM $.run_events AS e WHERE e.tenant_id = r.tenant_id AND e.run_id = r.run_id
      AND e.kind IN {TRANSITIONS} ORDER BY e.sequence DESC LIMIT 1) AS moved ON true
  WHERE @r) AS x WHERE x.found <> x.wanted
""",
)

WAITING_RUNS_HAVE_WAITS: Final = RowLaw(
    label="LIF-7",
    sentence="a run is waiting exactly while a wait of it is outstanding",
    sql="""
SELECT x.tenant_id, x.run_id, 'run_waits' AS "table", 'status' AS "column", '' AS key,
  x.n || ' outstanding in status ' || x.status AS found,
  CASE x.status WHEN 'waiting' THEN 'at least one' ELSE 'none' END AS wanted
FROM (
  SELECT r.tenant_id, r.run_id, r.status, (SELECT count(*) FROM $.run_waits AS w
    WHERE w.tenant_id = r.tenant_id AND w.run_id = r.run_id AND w.status = 'outstanding') AS n
  FROM $.runs AS r WHERE @r) AS x WHERE (x.status = 'waiting') <> (x.n > 0)
""",
)

_SETTLED_BY: Final = """CASE
  WHEN f.kind = 'graph-interrupt-resolved' AND f.data ->> 'wait_id' = w.wait_id::text THEN 'resolved'
  WHEN f.kind = 'graph-timer-fired' AND f.data ->> 'wait_id' = w.wait_id::text THEN 'fired'
  WHEN f.data -> 'abandoned' @> to_jsonb(w.wait_id::text) THEN 'abandoned'
  WHEN w.settled_sequence IS NULL THEN 'outstanding'
  ELSE 'an event that settles it' END"""

WAITS_ARE_SETTLED_BY_THEIR_EVENTS: Final = RowLaw(
    label="LIF-8",
    sentence="a wait is settled by exactly one event, as that event says",
    sql=FACTS
    + f"""
SELECT x.tenant_id, x.run_id, 'run_waits' AS "table", x.name AS "column", 'wait_id=' || x.wait_id AS key,
  x.found, x.wanted
FROM (
  SELECT w.tenant_id, w.run_id, w.wait_id, 'status' AS name,
    w.status || ' at ' || coalesce(w.settled_sequence::text, 'no event') AS found,
    {_SETTLED_BY} AS wanted, w.status IS DISTINCT FROM {_SETTLED_BY} AS is_broken
  FROM $.run_waits AS w LEFT JOIN fact AS f ON f.tenant_id = w.tenant_id AND f.run_id = w.run_id
    AND f.sequence = w.settled_sequence WHERE @w
  UNION ALL
  SELECT w.tenant_id, w.run_id, w.wait_id, 'resolution_digest',
    coalesce('sha256:' || encode(w.resolution_digest, 'hex'), 'none'),
    coalesce(f.data ->> 'resolution_digest', 'none'),
    w.resolution_digest IS NOT NULL IS DISTINCT FROM (w.resolution IS NOT NULL)
      OR coalesce('sha256:' || encode(w.resolution_digest, 'hex'), '') <> coalesce(f.data ->> 'resolution_digest', '')
  FROM $.run_waits AS w LEFT JOIN fact AS f ON f.tenant_id = w.tenant_id AND f.run_id = w.run_id
    AND f.sequence = w.settled_sequence AND f.kind = 'graph-interrupt-resolved' WHERE @w AND w.status = 'resolved'
  UNION ALL
  SELECT f.tenant_id, f.run_id, w.wait_id, 'settled_sequence', 'outstanding', f.sequence::text, true
  FROM fact AS f CROSS JOIN LATERAL (
    SELECT f.data ->> 'wait_id' AS named
    UNION ALL SELECT jsonb_array_elements_text(CASE jsonb_typeof(f.data -> 'abandoned')
      WHEN 'array' THEN f.data -> 'abandoned' ELSE '[]' END)) AS settled
  JOIN $.run_waits AS w ON w.tenant_id = f.tenant_id AND w.run_id = f.run_id AND w.wait_id::text = settled.named
  WHERE w.settled_sequence IS NULL
) AS x WHERE x.is_broken
""",
)

WAITS_ARE_SETTLED_IN_TIME: Final = RowLaw(
    label="LIF-9",
    sentence="an interrupt is answered before it expires, and a timer fires when it is due",
    sql="""
SELECT w.tenant_id, w.run_id, 'run_waits' AS "table",
  CASE e.kind WHEN 'graph-timer-fired' THEN 'due_at' ELSE 'expires_at' END AS "column", 'wait_id=' || w.wait_id AS key,
  'settled at ' || e.recorded_at AS found,
  CASE e.kind WHEN 'graph-timer-fired' THEN 'not before ' || coalesce(w.due_at::text, 'an instant')
    ELSE 'before ' || w.expires_at END AS wanted
FROM $.run_waits AS w JOIN $.run_events AS e ON e.tenant_id = w.tenant_id AND e.run_id = w.run_id
  AND e.sequence = w.settled_sequence
WHERE @w AND ((e.kind = 'graph-timer-fired' AND (w.due_at IS NULL OR e.recorded_at < w.due_at))
  OR (e.kind = 'graph-interrupt-resolved' AND e.recorded_at >= w.expires_at))
""",
)

CLAIMABLE_RUNS_ARE_DISCOVERABLE: Final = RowLaw(
    label="LIF-10",
    sentence="a run can be discovered exactly while its status permits a claim",
    sql="""
SELECT r.tenant_id, r.run_id, 'runs' AS "table", 'scheduler_ready_at' AS "column", '' AS key,
  coalesce(r.scheduler_ready_at::text, 'none') || ' in status ' || r.status AS found,
  CASE WHEN r.status IN ('active', 'cancellation_requested') THEN 'an instant' ELSE 'none' END AS wanted
FROM $.runs AS r WHERE @r AND r.superstep IS NOT NULL
  AND (r.scheduler_ready_at IS NOT NULL) <> (r.status IN ('active', 'cancellation_requested'))
""",
)

ENDED_RUNS_HAVE_AN_OUTCOME: Final = RowLaw(
    label="LIF-1",
    sentence="a run has an outcome exactly when it has ended",
    sql=f"""
SELECT r.tenant_id, r.run_id, 'run_outcomes' AS "table", NULL AS "column", 'kind=outcome' AS key,
  CASE WHEN o.run_id IS NULL THEN 'none' ELSE 'one' END || ' in status ' || r.status AS found,
  CASE WHEN o.run_id IS NULL THEN 'one' ELSE 'none' END AS wanted
FROM $.runs AS r LEFT JOIN $.run_outcomes AS o ON o.tenant_id = r.tenant_id AND o.run_id = r.run_id
  AND o.kind = 'outcome'
WHERE @r AND (r.status IN {_TERMINAL}) <> (o.run_id IS NOT NULL)
""",
)

CANCELLED_RUNS_KEEP_THEIR_REQUEST: Final = RowLaw(
    label="SUB-23",
    sentence="a run has a request to cancel exactly when it was asked to end or was cancelled",
    sql="""
SELECT r.tenant_id, r.run_id, 'run_outcomes' AS "table", NULL AS "column", 'kind=cancellation' AS key,
  CASE WHEN o.run_id IS NULL THEN 'none' ELSE 'one' END || ' in status ' || r.status AS found,
  CASE WHEN o.run_id IS NULL THEN 'one' ELSE 'none' END AS wanted
FROM $.runs AS r LEFT JOIN $.run_outcomes AS o ON o.tenant_id = r.tenant_id AND o.run_id = r.run_id
  AND o.kind = 'cancellation'
WHERE @r AND (r.status IN ('cancellation_requested', 'cancelled')) <> (o.run_id IS NOT NULL)
""",
)

_OPEN_CALL: Final = """
SELECT c.tenant_id, c.run_id, '{0}' AS "table", 'status' AS "column", 'invocation_id=' || c.invocation_id AS key,
  c.status || ' in a run that is ' || r.status AS found, 'a call that has ended' AS wanted
FROM $.{0} AS c JOIN $.runs AS r ON r.tenant_id = c.tenant_id AND r.run_id = c.run_id
WHERE @c AND c.status IN ('executing', 'unknown') AND r.status IN {1}"""

ENDED_RUNS_HAVE_NO_OPEN_CALL: Final = RowLaw(
    label="LIF-16",
    sentence="no run has ended while a call of it is executing or unknown",
    sql=_OPEN_CALL.format("model_invocations", _TERMINAL)
    + " UNION ALL "
    + _OPEN_CALL.format("tool_invocations", _TERMINAL),
)
