"""Say what the columns of the views of revision 0016 mean; a name means the same in each of them.

Frozen like the revision that creates the views.
"""

from __future__ import annotations

from agentruns.migrations.frozen import execute, quoted

MEANINGS = {
    "active": "Number of runs that a worker may drive.",
    "admission_digest": "Digest of the admission.",
    "admitted_at": "Instant of the admission.",
    "agent_deadline_at": "Deadline of the admission.",
    "agent_name": "Name of the agent.",
    "agent_version": "Version of the agent.",
    "attempt": "Number of the attempt, counted from 1.",
    "attempt_expires_at": "Instant at which the open attempt ends.",
    "attempt_id": "Id of the attempt.",
    "attempts": "Number of attempts that were started.",
    "bytes": "Bytes of the bodies.",
    "cancellation_requested": "Number of runs that are asked to end.",
    "cancelled": "Number of runs that were cancelled.",
    "cause_kind": "Kind of the cause.",
    "changed_at": "Instant of the last change.",
    "checkpoint_id": "Id of the checkpoint.",
    "completed_at": "Instant of the end.",
    "component": "Rule or column that does not verify.",
    "created_at": "Instant of the insertion.",
    "definition_digest": "Digest of the graph's definition.",
    "delivery_id": "Id of the delivery.",
    "destination_digest": "Digest of the destination's configuration.",
    "destination_id": "Id of the destination.",
    "digest": "Digest of the record.",
    "document": "Body as JSON.",
    "due_at": "Instant at which the timer fires.",
    "due_deliveries": "Number of deliveries whose next attempt may start.",
    "ended_at": "Instant of the attempt's end.",
    "enqueued_at": "Instant of the event that asked for the delivery.",
    "epoch": "Fence of the writer, 0 or absent for the control plane.",
    "event_id": "Id of the event.",
    "events": "Number of events of the journal.",
    "expires_at": "Instant of the expiry.",
    "failed": "Number of runs that failed.",
    "graph_definition_digest": "Digest of the graph that the admission pins.",
    "graph_name": "Name of the graph.",
    "graph_owner_issuer": "Issuer of the graph's owner.",
    "graph_owner_subject": "Subject of the graph's owner.",
    "graph_version": "Version of the graph.",
    "head_age": "Time since the last event by the database's clock.",
    "head_recorded_at": "Instant of the last event.",
    "invocation_id": "Id of the call.",
    "key_digest": "Digest of the submission key, or of the run where there is no key.",
    "kind": "Kind of the record.",
    "lease_epoch": "Fence of the last claim.",
    "lease_expires_at": "Instant at which the lease ends by itself.",
    "live_leases": "Number of leases that live.",
    "maximum_live": "Leases that may live at once, absent for no limit.",
    "model_name": "Name of the model.",
    "model_version": "Version of the model.",
    "name": "Name of the tool or model.",
    "next_attempt_at": "Instant from which the next attempt may start.",
    "next_wake_up_at": "Instant from which the run can move by itself, absent where only somebody else can move it.",
    "node_id": "Node of the activation.",
    "number": "Number of the change.",
    "oldest_due_at": "Instant since which the oldest claimable run waits for a worker.",
    "origin": "Whether the row came with the admission or was attached later.",
    "outstanding_waits": "Number of waits that are not settled.",
    "quarantine_id": "Id of the quarantine.",
    "quarantined": "Number of runs in quarantine.",
    "quarantined_at": "Instant of the quarantine.",
    "ready_document": "Nodes that run next, as a JSON array.",
    "recorded_at": "Instant of the event.",
    "registered_at": "Instant of the wait's registration.",
    "released_at": "Instant of the release, absent while the quarantine stands.",
    "resolution_bytes": "Bytes of the resolution.",
    "resolution_digest": "Digest of the resolution.",
    "resolution_document": "Resolution as JSON.",
    "retry_not_before": "Instant before which no retry starts.",
    "revision": "Number of the status.",
    "risk": "What the tool does to the world, absent for a model.",
    "run_age": "Time since the admission by the database's clock.",
    "run_id": "Id of the run.",
    "schema_digest": "Digest of the document that describes the data.",
    "sequence": "Place in the run's journal.",
    "settled_at": "Instant of the settlement.",
    "settled_sequence": "Event that settled the wait.",
    "started_at": "Instant of the attempt's start.",
    "status": "Current status; of an attempt, how it ended, absent while it is under way.",
    "status_age": "Time since the last change of status by the database's clock.",
    "submission_digest": "Digest of what was submitted.",
    "succeeded": "Number of runs that succeeded.",
    "superstep": "Superstep of the run.",
    "tenant_id": "Tenant that owns the record.",
    "tool_name": "Name of the tool.",
    "tool_version": "Version of the tool.",
    "unknown_tools": "Number of tool calls whose effect is unknown.",
    "updated_at": "Instant of the last change.",
    "version": "Version of the tool or model.",
    "wait_id": "Id of the wait.",
    "waiting": "Number of runs that wait.",
}

_COMMENTS = """
DO $comments$ DECLARE
  found record;
BEGIN
  FOR found IN
    SELECT c.relname, a.attname, m.meaning
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
    JOIN (VALUES
      {meanings}
    ) AS m (name, meaning) ON m.name = a.attname
    WHERE n.nspname = '{name}' AND c.relname IN ({views})
  LOOP
    EXECUTE format('COMMENT ON COLUMN %I.%I.%I IS %L', '{name}', found.relname, found.attname, found.meaning);
  END LOOP;
END $comments$
"""


def comment_columns(views: list[str]) -> None:
    """Give every column of the views its sentence, in one statement."""
    meanings = ",\n      ".join(f"({quoted(name)}, {quoted(meaning)})" for name, meaning in MEANINGS.items())
    names = ", ".join(quoted(view) for view in views)
    execute(_COMMENTS.replace("{meanings}", meanings).replace("{views}", names))
