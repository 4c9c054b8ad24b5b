r"""Write the views of revision 0016: overviews without any body, and decoders that show bodies as JSON.

Frozen like the revision that creates them. A decoder extracts no text: ``\u0000`` is legal JSON and illegal text.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentruns.migrations.frozen import comment, execute
from agentruns.migrations.frozen_view_columns import comment_columns

OVERVIEWS = {
    "run_overview": (
        "Runs, each with its agent, its graph, its lease and what it waits for.",
        """
SELECT
    r.tenant_id, r.run_id, r.status, r.revision, r.superstep, r.head_sequence AS events,
    a.agent_name, a.agent_version, g.graph_name, g.graph_version, {graph_definition_digest},
    r.fencing_epoch AS lease_epoch, r.lease_expires_at,
    CASE
        WHEN r.status IN ('active', 'cancellation_requested')
            THEN greatest(r.scheduler_ready_at, r.scheduler_not_before, r.lease_expires_at)
        WHEN r.status = 'waiting' THEN least(w.next_at, r.agent_deadline_at)
    END AS next_wake_up_at,
    r.agent_deadline_at, coalesce(w.outstanding, 0) AS outstanding_waits, r.quarantined_at,
    e.recorded_at AS admitted_at, r.changed_at, r.head_recorded_at,
    clock_timestamp() - e.recorded_at AS run_age,
    clock_timestamp() - r.changed_at AS status_age,
    clock_timestamp() - r.head_recorded_at AS head_age
FROM {schema}.runs AS r
LEFT JOIN {schema}.agent_admissions AS a ON a.tenant_id = r.tenant_id AND a.run_id = r.run_id
LEFT JOIN {schema}.graph_definitions AS g
    ON g.tenant_id = r.tenant_id AND g.definition_digest = r.graph_definition_digest
LEFT JOIN {schema}.run_events AS e ON e.tenant_id = r.tenant_id AND e.run_id = r.run_id AND e.sequence = 1
LEFT JOIN LATERAL (
    SELECT count(*) AS outstanding, min(coalesce(x.due_at, x.expires_at)) AS next_at
    FROM {schema}.run_waits AS x
    WHERE x.tenant_id = r.tenant_id AND x.run_id = r.run_id AND x.status = 'outstanding'
) AS w ON true
""",
    ),
    "run_timeline": (
        "Events of runs in their order, without their data.",
        """
SELECT
    r.tenant_id, r.run_id, r.sequence, r.event_id, r.recorded_at, r.kind, r.epoch,
    octet_length(r.data) AS bytes, {digest}
FROM {schema}.run_events AS r
""",
    ),
    "node_overview": (
        "Attempts of nodes, each with its start and its end.",
        """
SELECT
    r.tenant_id, r.run_id, r.superstep, r.node_id, r.attempt, r.attempt_id, s.epoch, s.recorded_at AS started_at,
    n.status, e.recorded_at AS ended_at, octet_length(n.body) AS bytes,
    'sha256:' || encode(n.digest, 'hex') AS digest, n.retry_not_before
FROM {schema}.node_attempts AS r
LEFT JOIN {schema}.run_events AS s ON s.tenant_id = r.tenant_id AND s.run_id = r.run_id AND s.sequence = r.sequence
LEFT JOIN {schema}.node_results AS n
    ON n.tenant_id = r.tenant_id AND n.run_id = r.run_id AND n.superstep = r.superstep AND n.node_id = r.node_id
    AND n.attempt = r.attempt
LEFT JOIN {schema}.run_events AS e ON e.tenant_id = n.tenant_id AND e.run_id = n.run_id AND e.sequence = n.sequence
""",
    ),
    "invocation_overview": (
        "Calls of tools and models, each with its current place.",
        """
SELECT
    r.tenant_id, r.run_id, r.invocation_id, 'tool' AS kind, r.superstep, r.node_id, r.tool_name AS name,
    r.tool_version AS version, r.risk, r.status, r.number, v.attempts, e.recorded_at AS changed_at,
    octet_length(r.intent) + v.bytes AS bytes
FROM {schema}.tool_invocations AS r
CROSS JOIN LATERAL (
    SELECT count(DISTINCT x.attempt_id) AS attempts, coalesce(sum(octet_length(x.body)), 0) AS bytes,
        max(x.sequence) AS sequence
    FROM {schema}.tool_invocation_revisions AS x
    WHERE x.tenant_id = r.tenant_id AND x.run_id = r.run_id AND x.invocation_id = r.invocation_id
) AS v
LEFT JOIN {schema}.run_events AS e ON e.tenant_id = r.tenant_id AND e.run_id = r.run_id AND e.sequence = v.sequence
UNION ALL
SELECT
    r.tenant_id, r.run_id, r.invocation_id, 'model' AS kind, r.superstep, r.node_id, r.model_name AS name,
    r.model_version AS version, NULL AS risk, r.status, r.number, v.attempts, e.recorded_at AS changed_at,
    octet_length(r.intent) + v.bytes AS bytes
FROM {schema}.model_invocations AS r
CROSS JOIN LATERAL (
    SELECT count(DISTINCT x.attempt_id) AS attempts, coalesce(sum(octet_length(x.body)), 0) AS bytes,
        max(x.sequence) AS sequence
    FROM {schema}.model_invocation_revisions AS x
    WHERE x.tenant_id = r.tenant_id AND x.run_id = r.run_id AND x.invocation_id = r.invocation_id
) AS v
LEFT JOIN {schema}.run_events AS e ON e.tenant_id = r.tenant_id AND e.run_id = r.run_id AND e.sequence = v.sequence
""",
    ),
    "wait_overview": (
        "What runs wait for, each with its settlement.",
        """
SELECT
    r.tenant_id, r.run_id, r.wait_id, r.kind, r.status, e.recorded_at AS registered_at, r.due_at, r.expires_at,
    s.recorded_at AS settled_at, octet_length(r.registration) AS bytes, {digest},
    octet_length(r.resolution) AS resolution_bytes, {resolution_digest}
FROM {schema}.run_waits AS r
LEFT JOIN {schema}.run_events AS e ON e.tenant_id = r.tenant_id AND e.run_id = r.run_id AND e.sequence = r.sequence
LEFT JOIN {schema}.run_events AS s
    ON s.tenant_id = r.tenant_id AND s.run_id = r.run_id AND s.sequence = r.settled_sequence
""",
    ),
    "outbox_overview": (
        "Deliveries of the outbox, each with its current place.",
        """
SELECT
    r.tenant_id, r.run_id, r.delivery_id, r.destination_id, {destination_digest}, r.status, r.attempts,
    e.recorded_at AS enqueued_at, r.next_attempt_at, r.attempt_expires_at, r.expires_at, r.updated_at,
    octet_length(r.body) AS bytes, {digest}
FROM {schema}.outbox_deliveries AS r
LEFT JOIN {schema}.run_events AS e ON e.tenant_id = r.tenant_id AND e.run_id = r.run_id AND e.sequence = r.sequence
""",
    ),
    "quarantine_overview": (
        "Quarantines of runs, each with its release.",
        """
SELECT
    r.tenant_id, r.run_id, r.quarantine_id, r.quarantined_at, r.cause_kind, r.component, r.epoch,
    octet_length(r.body) AS bytes, {digest}, x.released_at
FROM {schema}.run_quarantines AS r
LEFT JOIN {schema}.run_quarantine_releases AS x
    ON x.tenant_id = r.tenant_id AND x.run_id = r.run_id AND x.quarantine_id = r.quarantine_id
""",
    ),
    "submission_overview": (
        "Submissions of runs by digest.",
        """
SELECT r.tenant_id, r.run_id, r.origin, {key_digest}, {submission_digest}, r.created_at
FROM {schema}.agent_submission_keys AS r
""",
    ),
    "tenant_overview": (
        "Tenants that have runs, each with its counts.",
        """
SELECT
    r.tenant_id, r.active, r.waiting, r.cancellation_requested, r.succeeded, r.failed, r.cancelled, r.quarantined,
    r.oldest_due_at, r.live_leases, m.maximum_live,
    (SELECT count(*) FROM {schema}.tool_invocations AS t
     WHERE t.tenant_id = r.tenant_id AND t.status = 'unknown') AS unknown_tools,
    (SELECT count(*) FROM {schema}.outbox_deliveries AS d
     WHERE d.tenant_id = r.tenant_id AND d.next_attempt_at <= clock_timestamp()) AS due_deliveries
FROM (
    SELECT
        x.tenant_id,
        count(*) FILTER (WHERE x.status = 'active') AS active,
        count(*) FILTER (WHERE x.status = 'waiting') AS waiting,
        count(*) FILTER (WHERE x.status = 'cancellation_requested') AS cancellation_requested,
        count(*) FILTER (WHERE x.status = 'succeeded') AS succeeded,
        count(*) FILTER (WHERE x.status = 'failed') AS failed,
        count(*) FILTER (WHERE x.status = 'cancelled') AS cancelled,
        count(*) FILTER (WHERE x.quarantined_at IS NOT NULL) AS quarantined,
        min(greatest(x.scheduler_ready_at, x.scheduler_not_before, x.lease_expires_at)) FILTER (
            WHERE x.scheduler_ready_at IS NOT NULL AND x.quarantined_at IS NULL
            AND greatest(x.scheduler_ready_at, x.scheduler_not_before, x.lease_expires_at) <= clock_timestamp()
        ) AS oldest_due_at,
        count(*) FILTER (WHERE x.lease_expires_at > clock_timestamp()) AS live_leases
    FROM {schema}.runs AS x
    GROUP BY x.tenant_id
) AS r
LEFT JOIN {schema}.tenant_limits AS m ON m.tenant_id = r.tenant_id
""",
    ),
}

#: Of each table: the columns shown as they are, the digests, and the bodies under the names that they are shown by.
DECODERS = {
    "run_events": ("sequence event_id recorded_at epoch kind", "schema_digest digest", {"data": "document"}),
    "run_checkpoints": (
        "superstep checkpoint_id sequence",
        "digest",
        {"ready": "ready_document", "state": "document"},
    ),
    "run_outcomes": ("kind sequence", "digest", {"body": "document"}),
    "node_results": (
        "superstep node_id attempt status retry_not_before sequence",
        "digest",
        {"body": "document"},
    ),
    "tool_invocations": (
        "invocation_id superstep node_id tool_name tool_version risk status number",
        "",
        {"intent": "document"},
    ),
    "tool_invocation_revisions": (
        "invocation_id number status attempt_id sequence",
        "digest",
        {"body": "document"},
    ),
    "model_invocations": (
        "invocation_id superstep node_id model_name model_version status number",
        "",
        {"intent": "document"},
    ),
    "model_invocation_revisions": (
        "invocation_id number status attempt_id sequence",
        "digest",
        {"body": "document"},
    ),
    "run_waits": (
        "wait_id kind due_at expires_at status settled_sequence sequence",
        "digest resolution_digest",
        {"registration": "document", "resolution": "resolution_document"},
    ),
    "outbox_deliveries": (
        "delivery_id destination_id expires_at status attempts attempt_expires_at next_attempt_at updated_at sequence",
        "destination_digest digest",
        {"body": "document"},
    ),
    "outbox_results": (
        "delivery_id attempt status completed_at retry_not_before",
        "digest",
        {"body": "document"},
    ),
    "run_quarantines": (
        "quarantine_id quarantined_at cause_kind component epoch",
        "digest",
        {"body": "document"},
    ),
    "graph_definitions": (
        "graph_owner_issuer graph_owner_subject graph_name graph_version created_at",
        "definition_digest",
        {"definition": "document"},
    ),
    "agent_admissions": ("agent_name agent_version sequence", "admission_digest", {"body": "document"}),
}


def create_views() -> None:
    """Create overviews with their owner's rights, and decoders with those of whoever reads."""
    for name, (sentence, query) in OVERVIEWS.items():
        execute(f"CREATE VIEW {{schema}}.{name} WITH (security_barrier = true) AS\n{_spelled(query).strip()}")
        comment(name, sentence, {}, kind="VIEW")
    for table, (columns, digests, bodies) in DECODERS.items():
        shown = ", ".join(_shown(table, columns.split(), digests.split(), bodies))
        source = f"FROM {{schema}}.{table} AS r"
        execute(f"CREATE VIEW {{schema}}.{table}_json WITH (security_invoker = true) AS\nSELECT {shown}\n{source}")
        comment(f"{table}_json", f"Rows of {table} with their bodies as JSON.", {}, kind="VIEW")
    comment_columns(_names())


def drop_views() -> None:
    """Drop every view that 0016 created."""
    execute(f"DROP VIEW {', '.join(f'{{schema}}.{name}' for name in _names())}")


def _names() -> list[str]:
    return [*OVERVIEWS, *(f"{table}_json" for table in DECODERS)]


def _shown(table: str, columns: list[str], digests: list[str], bodies: dict[str, str]) -> Iterator[str]:
    yield "r.tenant_id"
    if table != "graph_definitions":
        yield "r.run_id"
    yield from (f"r.{column}" for column in columns)
    yield from (_digest(column) for column in digests)
    yield from (f"convert_from(r.{body}, 'UTF8')::json AS {name}" for body, name in bodies.items())


def _digest(column: str) -> str:
    return f"'sha256:' || encode(r.{column}, 'hex') AS {column}"


def _spelled(query: str) -> str:
    """Write out the digests that a query names in braces."""
    for column in (
        "digest",
        "graph_definition_digest",
        "resolution_digest",
        "destination_digest",
        "key_digest",
        "submission_digest",
    ):
        query = query.replace(f"{{{column}}}", _digest(column))
    return query
