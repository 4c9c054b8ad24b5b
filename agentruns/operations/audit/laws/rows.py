"""Each event has exactly the rows that it was written with, and each row its event."""

from __future__ import annotations

from typing import Final

from agentruns.operations.audit.law import FACTS, RowLaw

_RULE: Final = (
    FACTS
    + """
, said AS ({said}), stored AS ({stored})
SELECT coalesce(said.tenant_id, stored.tenant_id) AS tenant_id, coalesce(said.run_id, stored.run_id) AS run_id,
  '{table}' AS "table", c.name AS "column",
  'sequence=' || coalesce(said.sequence, stored.sequence) {more_key} AS key, c.found, c.wanted
FROM said FULL JOIN stored ON stored.tenant_id = said.tenant_id AND stored.run_id = said.run_id
  AND stored.sequence = said.sequence AND stored.part = said.part
CROSS JOIN LATERAL (
  SELECT NULL AS name, 'no row' AS found, 'the row of the event' AS wanted WHERE stored.sequence IS NULL
  UNION ALL SELECT NULL, 'a row', 'no row, for no event of its kind is there' WHERE said.sequence IS NULL
  UNION ALL SELECT v.name, v.found, v.wanted FROM (VALUES {pairs}) AS v (name, found, wanted)
    WHERE stored.sequence IS NOT NULL AND said.sequence IS NOT NULL AND v.found IS DISTINCT FROM v.wanted
) AS c
"""
)


def _digest(column: str) -> str:
    return f"'sha256:' || encode({column}, 'hex')"


def _law(
    table: str, kinds: tuple[str, ...], columns: dict[str, tuple[str, str]], *, part: str = "''", said: str = ""
) -> RowLaw:
    """Hold a table's rows against the events of some kinds.

    Args:
        table: the table, as ``x``.
        kinds: of the events that write a row of it.
        columns: by name, what the row says and what the event says, as ``fact``.
        part: tells rows of one event apart, as an expression over ``x``.
        said: the rows of the events, where one event writes several.
    """
    named = ", ".join(f"'{kind}'" for kind in kinds)
    told = ", ".join(f"({wanted})::text AS {name}" for name, (_, wanted) in columns.items())
    stored = ", ".join(f"({found})::text AS {name}" for name, (found, _) in columns.items())
    source = said or f"SELECT fact.*, '' AS part FROM fact WHERE kind IN ({named})"
    return RowLaw(
        label="LED-1",
        sentence=f"each event has exactly its rows in {table}, and each row says what its event says",
        sql=_RULE.format(
            table=table,
            said=f"SELECT tenant_id, run_id, sequence, part, {told} FROM ({source}) AS fact",
            stored=f"SELECT tenant_id, run_id, sequence, {part} AS part, {stored} FROM $.{table} AS x WHERE @x",
            pairs=", ".join(f"('{name}', stored.{name}, said.{name})" for name in columns),
            more_key="|| coalesce(' ' || nullif(coalesce(said.part, stored.part), ''), '')",
        ),
    )


ADMISSION_ROWS: Final = _law(
    "agent_admissions",
    ("agent-admitted",),
    {"admission_digest": (_digest("x.admission_digest"), "fact.data ->> 'admission_digest'")},
)

CHECKPOINT_ROWS: Final = _law(
    "run_checkpoints",
    ("agent-admitted", "graph-barrier-continued", "graph-barrier-waiting", "graph-barrier-succeeded"),
    {
        "superstep": (
            "x.superstep",
            "CASE WHEN fact.superstep ~ '^[0-9]{1,15}$' THEN fact.superstep::bigint + 1 ELSE 0 END",
        ),
        "digest": (_digest("x.digest"), "fact.data ->> 'checkpoint_digest'"),
    },
)

ATTEMPT_ROWS: Final = _law(
    "node_attempts",
    ("graph-node-attempt-started",),
    {
        "superstep": ("x.superstep", "fact.superstep"),
        "node_id": ("x.node_id", "fact.node_id"),
        "attempt": ("x.attempt", "fact.attempt"),
        "attempt_id": ("x.attempt_id", "fact.data ->> 'attempt_id'"),
    },
)

RESULT_ROWS: Final = _law(
    "node_results",
    ("graph-node-attempt-succeeded", "graph-node-attempt-failed"),
    {
        "superstep": ("x.superstep", "fact.superstep"),
        "node_id": ("x.node_id", "fact.node_id"),
        "attempt": ("x.attempt", "fact.attempt"),
        "status": ("x.status", "replace(fact.kind, 'graph-node-attempt-', '')"),
        "digest": (_digest("x.digest"), "fact.data ->> 'result_digest'"),
        "retry_not_before": (
            "to_char(x.retry_not_before AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')",
            "fact.data ->> 'retry_not_before'",
        ),
    },
)

OUTCOME_ROWS: Final = _law(
    "run_outcomes",
    (
        "agent-cancellation-requested",
        "agent-deadline-cancellation-requested",
        "agent-cancellation-confirmed",
        "graph-barrier-succeeded",
        "graph-run-failed",
    ),
    {
        "kind": ("x.kind", "CASE WHEN fact.kind LIKE '%-requested' THEN 'cancellation' ELSE 'outcome' END"),
        "digest": (
            _digest("x.digest"),
            "coalesce(fact.data ->> 'outcome_digest', fact.data ->> 'request_digest')",
        ),
    },
)

WAIT_ROWS: Final = _law(
    "run_waits",
    (),
    {"digest": (_digest("x.digest"), "fact.digest")},
    part="'wait_id=' || x.wait_id",
    said="SELECT fact.*, 'wait_id=' || (each.value ->> 'wait_id') AS part, each.value ->> 'digest' AS digest"
    " FROM fact CROSS JOIN LATERAL jsonb_array_elements(CASE jsonb_typeof(fact.data -> 'waits')"
    " WHEN 'array' THEN fact.data -> 'waits' ELSE '[]' END) AS each WHERE fact.kind = 'graph-barrier-waiting'",
)

#: Of each table of a run's evidence that the fold reads.
EVERY_EVENT_HAS_ITS_ROWS: Final = (
    ADMISSION_ROWS,
    CHECKPOINT_ROWS,
    ATTEMPT_ROWS,
    RESULT_ROWS,
    OUTCOME_ROWS,
    WAIT_ROWS,
)
