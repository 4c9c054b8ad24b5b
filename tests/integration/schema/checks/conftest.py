"""Rows that violate one CHECK each, told as changes of the valid rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

Changes = dict[str, list[dict[str, Any]]]

AT = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
TICK = timedelta(microseconds=1)
TOO_EARLY = datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)
INFINITY = datetime.max.replace(tzinfo=UTC)  # what the driver sends as infinity
SHORT = bytes(31)
VERSION_4 = "0198c0de-0000-4000-8000-000000000001"
VARIANT_3 = "0198c0de-0000-7000-c000-000000000001"
BAD_TENANTS = ["", ".", "..", "a b", "a/b", "a\n", "é", "x" * 129]
LEASE = {
    "lease_attempt_id": VERSION_4,
    "lease_acquired_at": AT,
    "lease_renewed_at": AT,
    "lease_expires_at": AT + TICK,
}


def each(column: str, *values: object) -> list[dict[str, Any]]:
    return [{column: value} for value in values]


def call(risk: Changes, statuses: str) -> Changes:
    return {
        "superstep": each("superstep", -1),
        "node_id": each("node_id", "", "x" * 129),
        "intent": each("intent", b""),
        "status": each("status", *statuses.split()),
        "number": each("number", -1),
        "prepared": [{"number": 0}, {"status": "prepared"}, {"status": "committed", "number": 0}],
        **risk,
    }


def revision(ends: str, statuses: str) -> Changes:
    body = {"body": b"{}", "digest": bytes(32)}
    return {
        "number": each("number", -1),
        "status": each("status", *statuses.split()),
        "attempt_id": [{"attempt_id": None}, {"number": 0}],
        "body": [{**body, "status": "committed", "body": b""}],
        "body_status": [*each("status", *ends.split()), body, {**body, "status": "prepared"}],
        "digest": [{**body, "status": "failed", "digest": SHORT}],
        "body_together": [{"digest": bytes(32)}, {"body": b"{}", "status": "failed"}],
        "sequence": each("sequence", 0),
    }


NODE: Changes = {
    "superstep": each("superstep", -1),
    "node_id": each("node_id", "", "x" * 129),
    "attempt": each("attempt", 0, 65),
    "sequence": each("sequence", 0),
}

CHANGES: dict[str, Changes] = {
    "applied_revisions": {"checksum": each("checksum", SHORT), "oldest_code": each("oldest_code", 0, 18)},
    "runs": {
        "tenant_id": each("tenant_id", *BAD_TENANTS),
        "run_id": each("run_id", VERSION_4, VARIANT_3),
        "thread_id": each("thread_id", VERSION_4, VARIANT_3),
        "invocation_id": each("invocation_id", VERSION_4, VARIANT_3),
        "status": [{"status": "pending", "scheduler_ready_at": None}],
        "revision": each("revision", 0),
        "lifecycle_sequence": each("lifecycle_sequence", 0, 2),
        "head_digest": each("head_digest", SHORT, bytes(33)),
        "head_recorded_at": each("head_recorded_at", AT - TICK),
        "fencing_epoch": each("fencing_epoch", -1),
        "lease_together": [
            {name: value for name, value in LEASE.items() if name != missing}
            for missing in ("lease_acquired_at", "lease_renewed_at", "lease_expires_at")
        ]
        + each("lease_expires_at", AT),
        "lease_shape": [
            {**LEASE, "fencing_epoch": 0},
            {**LEASE, "lease_renewed_at": AT - TICK},
            {**LEASE, "lease_expires_at": AT},
            {**LEASE, "status": "waiting", "scheduler_ready_at": None},
            {**LEASE, "status": "succeeded", "scheduler_ready_at": None},
            {**LEASE, "quarantined_at": AT},
        ],
        "trace_context": each("trace_context", "", "x" * 54, "x" * 56),
        "checkpoint_together": [{"checkpoint_digest": None}, {"superstep": None, "scheduler_ready_at": None}],
        "superstep": each("superstep", -1),
        "checkpoint_digest": each("checkpoint_digest", SHORT),
        "scheduler_ready": [
            {"scheduler_ready_at": None},
            {"status": "cancellation_requested", "scheduler_ready_at": None},
            {"status": "waiting"},
            {"status": "failed"},
            {"superstep": None, "checkpoint_digest": None},
        ],
        "scheduler_gate": [
            {"scheduler_not_before": AT - TICK},
            {"scheduler_not_before": AT, "status": "waiting", "scheduler_ready_at": None},
            {"scheduler_not_before": AT, **LEASE},
        ],
        "graph_definition_digest": each("graph_definition_digest", SHORT),
        "agent_deadline_at": each("agent_deadline_at", TOO_EARLY, INFINITY),
    },
    "run_events": {
        "sequence": each("sequence", 0),
        "epoch": each("epoch", -1),
        "kind": each("kind", "", "x" * 65),
        "schema_digest": each("schema_digest", SHORT),
        "data": each("data", b"", bytes(16 * 1024 + 1)),
        "digest": each("digest", SHORT),
    },
    "run_outcomes": {
        "kind": each("kind", "end"),
        "body": each("body", b"", bytes(2 * 1024**2 + 1)),
        "digest": each("digest", SHORT),
        "sequence": each("sequence", 0),
    },
    "run_checkpoints": {
        "superstep": each("superstep", -1),
        "ready": each("ready", b"", bytes(160 * 1024 + 1)),
        "state": each("state", b"", bytes(2 * 1024**2 + 1)),
        "digest": each("digest", SHORT),
        "sequence": each("sequence", 0),
    },
    "tool_invocations": call({"risk": each("risk", "none")}, "done"),
    "tool_invocation_revisions": revision("committed failed unknown", "done"),
    "model_invocations": call({}, "unknown"),
    "model_invocation_revisions": revision("committed failed", "unknown"),
    "node_results": {
        **NODE,
        "status": [{"status": "done", "retry_not_before": None}],
        "body": each("body", b"", bytes(16 * 1024**2 + 1)),
        "digest": each("digest", SHORT),
        "retry_not_before": each("retry_not_before", TOO_EARLY, INFINITY),
        "retry_status": each("status", "succeeded"),
    },
    "node_attempts": NODE,
    "outbox_destinations": {
        "tenant_id": each("tenant_id", *BAD_TENANTS),
        "digest": each("digest", SHORT),
        "kind": each("kind", "", "Web", "-web", "web-", "web--hook", "web_hook", "x" * 97),
        "config": each("config", b"", bytes(2 * 1024**2 + 1)),
    },
    "outbox_deliveries": {
        "destination_digest": each("destination_digest", SHORT),
        "body": each("body", b"", bytes(4 * 1024**2 + 1)),
        "digest": each("digest", SHORT),
        "sequence": each("sequence", 0),
        "expires_at": each("expires_at", TOO_EARLY, INFINITY),
        "status": each("status", "done"),
        "attempts": each("attempts", -1, 65),
        "attempt_expires_at": [{"attempt_expires_at": AT}, {"status": "delivering"}],
        "next_attempt_at": [
            {"next_attempt_at": None},
            *each("status", "acknowledged", "dead_letter", "expired"),
            {"status": "delivering", "attempt_expires_at": AT, "next_attempt_at": None},
        ],
    },
    "outbox_attempts": {
        "attempt": each("attempt", 0, 65),
        "expires_at": each("expires_at", AT, AT + timedelta(minutes=5) + TICK, INFINITY),
    },
    "outbox_results": {
        "status": [{"status": "done", "retry_not_before": None}],
        "retry_not_before": each("retry_not_before", TOO_EARLY, INFINITY),
        "retry_status": each("status", "acknowledged"),
        "body": each("body", b"", bytes(1024**2 + 1)),
        "digest": each("digest", SHORT),
    },
    "run_waits": {
        "kind": [{"kind": "other", "expires_at": None}],
        "registration": each("registration", b"", bytes(4 * 1024**2 + 1)),
        "digest": each("digest", SHORT),
        "sequence": each("sequence", 0),
        "due_at": [{"kind": "sleep", "expires_at": None, "due_at": instant} for instant in (TOO_EARLY, INFINITY)],
        "due_kind": [{"due_at": AT}, {"kind": "retry_backoff", "expires_at": None}],
        "expires_at": each("expires_at", TOO_EARLY, INFINITY),
        "expires_kind": [{"kind": "sleep", "due_at": AT}],
        "status": [{"status": "expired", "settled_sequence": 2}],
        "settled_status": [{"settled_sequence": 2}, {"status": "fired"}, {"status": "abandoned"}],
        "settled_sequence": [{"status": "abandoned", "settled_sequence": 1}],
        "resolution": [
            {"status": "resolved", "settled_sequence": 2, "resolution": body, "resolution_digest": bytes(32)}
            for body in (b"", bytes(4 * 1024**2 + 1))
        ],
        "resolution_digest": [
            {"status": "resolved", "settled_sequence": 2, "resolution": b"{}", "resolution_digest": SHORT}
        ],
        "resolution_together": [
            {"resolution_digest": bytes(32)},
            {"status": "resolved", "settled_sequence": 2, "resolution": b"{}"},
        ],
        "resolution_status": [
            {"status": "resolved", "settled_sequence": 2},
            {"resolution": b"{}", "resolution_digest": bytes(32)},
        ],
    },
    "run_quarantines": {
        "cause_kind": each("cause_kind", "other"),
        "component": each("component", "", "x" * 129),
        "body": each("body", b"", bytes(64 * 1024 + 1)),
        "digest": each("digest", SHORT),
        "epoch": each("epoch", 0),
    },
    "run_quarantine_releases": {
        "body": each("body", b"", bytes(64 * 1024 + 1)),
        "digest": each("digest", SHORT),
    },
    "graph_definitions": {
        "tenant_id": each("tenant_id", *BAD_TENANTS),
        "graph_owner_issuer": each("graph_owner_issuer", "https:/a", "x" * 513),
        "graph_owner_subject": each("graph_owner_subject", "", "x" * 256),
        "graph_name": each("graph_name", "", "x" * 129),
        "graph_version": each("graph_version", "1.00", "1" * 63),
        "definition_digest": each("definition_digest", SHORT),
        "definition": each("definition", b"", bytes(2_097_281)),
    },
    "scheduler_fairness_shards": {
        "shard_id": each("shard_id", *BAD_TENANTS),
        "policy": each("policy", b"", bytes(256 * 1024 + 1)),
        "policy_digest": each("policy_digest", SHORT),
        "cycle_length": [{"cycle_length": 4097}],
        "next_slot": each("next_slot", -1, 2),
        "next_sequence": each("next_sequence", -1),
    },
    "scheduler_fairness_reservations": {"sequence": each("sequence", -1), "slot": each("slot", -1, 4096)},
    "tenant_limits": {
        "tenant_id": each("tenant_id", *BAD_TENANTS),
        "maximum_live": each("maximum_live", 0, 1025),
    },
    "tenant_slots": {
        "slot": each("slot", -1, 1024),
        "claim_together": [{"run_id": None}, {"fencing_epoch": None}],
        "fencing_epoch": each("fencing_epoch", 0),
        "serial": each("serial", -1),
    },
    "agent_admissions": {
        "body": each("body", b"", bytes(16 * 1024**2 + 1)),
        "admission_digest": each("admission_digest", SHORT),
        "sequence": each("sequence", 0, 2),
    },
    "agent_submission_keys": {
        "key_digest": each("key_digest", SHORT),
        "run_id": each("run_id", VERSION_4),
        "origin": each("origin", "other"),
        "submission_digest": each("submission_digest", SHORT),
    },
    "retention_receipts": {
        "runs_digest": each("runs_digest", SHORT),
        "policy": each("policy", b"", bytes(16 * 1024 + 1)),
    },
}


@pytest.fixture
def violations() -> dict[str, Changes]:
    """Of each table and each check of it: changes of the valid row that violate the check and nothing else."""
    return CHANGES
