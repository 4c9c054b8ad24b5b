"""Laws of the attempts of nodes: how they follow one another, and under whose fence they start and end."""

from __future__ import annotations

from typing import Final

from agentruns.operations.audit.law import FACTS, RowLaw

_ENDED: Final = "('graph-node-attempt-succeeded', 'graph-node-attempt-failed')"
_KEY: Final = "'sequence=' || x.sequence || ' superstep=' || x.superstep || ' node_id=' || x.node_id"
_ATTEMPT_KEY: Final = f"{_KEY} || ' attempt=' || x.attempt"
_OF_NODE: Final = (
    "{0}.tenant_id = x.tenant_id AND {0}.run_id = x.run_id AND {0}.superstep = x.superstep AND {0}.node_id = x.node_id"
)
_PLACE: Final = """
SELECT x.tenant_id, x.run_id, 'run_events' AS "table", '{column}' AS "column", {key} AS key, x.found, x.wanted
FROM ({rows}) AS x WHERE {broken}"""

STARTS_ARE_NUMBERED: Final = RowLaw(
    label="LED-17",
    sentence="the starts of a node in a superstep are numbered from 1 to 64 at most",
    sql=FACTS
    + _PLACE.format(
        column="data",
        key=_KEY,
        rows="""
SELECT fact.*, 'attempt ' || attempt AS found, least(n, 64)::text AS wanted FROM (
  SELECT fact.*, row_number() OVER (PARTITION BY tenant_id, run_id, superstep, node_id ORDER BY sequence) AS n
  FROM fact WHERE kind = 'graph-node-attempt-started') AS fact""",
        broken="x.attempt IS DISTINCT FROM x.n::text OR x.n > 64",
    ),
)

ONE_SUCCESS_PER_ACTIVATION: Final = RowLaw(
    label="LEA-16",
    sentence="a node succeeds once in a superstep at most",
    sql=FACTS
    + _PLACE.format(
        column="kind",
        key=_KEY,
        rows="""
SELECT fact.*, 'success ' || n AS found, 'one' AS wanted FROM (
  SELECT fact.*, row_number() OVER (PARTITION BY tenant_id, run_id, superstep, node_id ORDER BY sequence) AS n
  FROM fact WHERE kind = 'graph-node-attempt-succeeded') AS fact""",
        broken="x.found <> 'success 1'",
    ),
)

ONE_COMPLETION_PER_ATTEMPT: Final = RowLaw(
    label="LEA-16",
    sentence="an attempt ends once at most, and never before it was started",
    sql=FACTS
    + _PLACE.format(
        column="kind",
        key=_ATTEMPT_KEY,
        rows=f"""
SELECT ended.*, 'completion ' || ended.n || CASE WHEN ended.is_started THEN '' ELSE ' without a start' END AS found,
  'one, after its start' AS wanted
FROM (
  SELECT x.*, row_number() OVER (PARTITION BY tenant_id, run_id, superstep, node_id, attempt ORDER BY sequence) AS n,
    EXISTS (SELECT FROM fact AS start WHERE {_OF_NODE.format("start")} AND start.attempt = x.attempt
      AND start.sequence < x.sequence AND start.kind = 'graph-node-attempt-started') AS is_started
  FROM fact AS x WHERE kind IN {_ENDED}) AS ended""",
        broken="x.n > 1 OR NOT x.is_started",
    ),
)

COMPLETIONS_HAVE_THE_EPOCH_OF_THEIR_STARTS: Final = RowLaw(
    label="LEA-17",
    sentence="an attempt ends under the epoch that it was started under",
    sql=FACTS
    + _PLACE.format(
        column="epoch",
        key=_ATTEMPT_KEY,
        rows=f"""
SELECT x.*, x.epoch::text AS found, start.epoch::text AS wanted FROM fact AS x
JOIN fact AS start ON {_OF_NODE.format("start")} AND start.attempt = x.attempt
  AND start.kind = 'graph-node-attempt-started' WHERE x.kind IN {_ENDED}""",
        broken="x.found <> x.wanted",
    ),
)

_RETRIED: Final = f"""
, retried AS (
  SELECT x.*, before.epoch AS before_epoch, ended.kind AS ended, ended.gate FROM fact AS x
  JOIN fact AS before ON {_OF_NODE.format("before")} AND before.kind = 'graph-node-attempt-started'
    AND before.sequence < x.sequence
  LEFT JOIN LATERAL (
    SELECT done.kind, CASE WHEN pg_input_is_valid(done.data ->> 'retry_not_before', 'timestamptz')
      THEN (done.data ->> 'retry_not_before')::timestamptz END AS gate
    FROM fact AS done WHERE {_OF_NODE.format("done")} AND done.attempt = before.attempt
      AND done.sequence < x.sequence AND done.kind IN {_ENDED} ORDER BY done.sequence LIMIT 1) AS ended ON true
  WHERE x.kind = 'graph-node-attempt-started' AND NOT EXISTS (
    SELECT FROM fact AS between_them WHERE {_OF_NODE.format("between_them")}
      AND between_them.kind = 'graph-node-attempt-started'
      AND between_them.sequence > before.sequence AND between_them.sequence < x.sequence))"""

AN_OPEN_START_IS_TAKEN_OVER_BY_A_HIGHER_EPOCH: Final = RowLaw(
    label="LEA-18",
    sentence="a start that has not ended is followed by another start of its node only under a higher epoch",
    sql=FACTS
    + _RETRIED
    + _PLACE.format(
        column="epoch",
        key=_ATTEMPT_KEY,
        rows="SELECT *, epoch::text AS found, 'above ' || before_epoch AS wanted FROM retried WHERE ended IS NULL",
        broken="x.epoch <= x.before_epoch",
    ),
)

A_RETRY_WAITS_FOR_ITS_GATE: Final = RowLaw(
    label="LEA-19",
    sentence="an attempt that has ended is followed by another one only after a failure whose gate has passed",
    sql=FACTS
    + _RETRIED
    + _PLACE.format(
        column="recorded_at",
        key=_ATTEMPT_KEY,
        rows="""
SELECT *, CASE WHEN gate IS NULL THEN 'a start after ' || ended || ' without a gate' ELSE recorded_at::text END
    AS found,
  CASE WHEN gate IS NULL THEN 'none' ELSE 'not before ' || gate END AS wanted
FROM retried WHERE ended IS NOT NULL""",
        broken="x.ended <> 'graph-node-attempt-failed' OR x.gate IS NULL OR x.recorded_at < x.gate",
    ),
)

#: Not audited, for no reader depends on it: a record in another order is as good a record.
BATCHES_ARE_IN_ORDER: Final = RowLaw(
    label="DRV-2",
    sentence="the starts of a batch follow one another in the order of their nodes, and so do its completions",
    sql=FACTS
    + _PLACE.format(
        column="data",
        key=_KEY,
        rows=f"""
SELECT ranked.*, 'node ' || node_id AS found, 'a node after ' || before AS wanted FROM (
  SELECT fact.*, lag(node_id) OVER batch AS before, lag(sequence) OVER batch AS before_sequence FROM (
    SELECT fact.*, CASE WHEN kind IN {_ENDED} THEN 'ends' ELSE 'starts' END AS what FROM fact
    WHERE kind = 'graph-node-attempt-started' OR kind IN {_ENDED}) AS fact
  WINDOW batch AS (PARTITION BY tenant_id, run_id, superstep, epoch, what ORDER BY sequence)) AS ranked
WHERE before_sequence = sequence - 1""",
        broken='x.node_id COLLATE "C" < x.before COLLATE "C"',
    ),
)
