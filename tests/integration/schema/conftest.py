"""One valid row of each table, in an order in which they can be inserted; they belong to one another."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

AT = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
LATER = AT + timedelta(minutes=1)
DIGEST = bytes(range(32))
BODY = b'{"text":"\\u0000"}'
RUN = {"tenant_id": "tenant-a", "run_id": "0198c0de-0000-7000-8000-000000000001"}
NODE = {"superstep": 0, "node_id": "first"}
CALL = "0198c0de-0000-7000-8000-00000000000a"
OTHER = "0198c0de-0000-7000-8000-00000000000b"
CALLED = {**RUN, "invocation_id": CALL}
CHANGED = {**CALLED, "number": 1, "status": "executing", "attempt_id": OTHER, "sequence": 2}

Samples = dict[str, dict[str, Any]]


def _runs() -> Samples:
    return {
        "runs": {
            **RUN,
            "thread_id": "0198c0de-0000-7000-8000-000000000002",
            "invocation_id": "0198c0de-0000-7000-8000-000000000003",
            "status": "active",
            "revision": 1,
            "changed_at": AT,
            "lifecycle_sequence": 1,
            "head_sequence": 1,
            "head_digest": DIGEST,
            "head_recorded_at": AT,
            "fencing_epoch": 1,
            "superstep": 0,
            "checkpoint_digest": DIGEST,
            "scheduler_ready_at": AT,
            "graph_definition_digest": DIGEST,
            "agent_deadline_at": LATER,
        },
        "run_events": {
            **RUN,
            "sequence": 1,
            "event_id": OTHER,
            "recorded_at": AT,
            "epoch": 0,
            "kind": "agent-admitted",
            "schema_digest": DIGEST,
            "data": BODY,
            "digest": DIGEST,
        },
        "run_outcomes": {**RUN, "kind": "outcome", "body": BODY, "digest": DIGEST, "sequence": 1},
        "run_checkpoints": {
            **RUN,
            "superstep": 0,
            "checkpoint_id": OTHER,
            "ready": b'["first"]',
            "state": BODY,
            "digest": DIGEST,
            "sequence": 1,
        },
    }


def _calls() -> Samples:
    place = {**CALLED, **NODE, "intent": BODY, "status": "executing", "number": 1}
    return {
        "tool_invocations": {**place, "tool_name": "t", "tool_version": "1.0.0", "risk": "read_only"},
        "tool_invocation_revisions": CHANGED,
        "model_invocations": {**place, "model_name": "m", "model_version": "1.0.0"},
        "model_invocation_revisions": CHANGED,
        "node_results": {
            **RUN,
            **NODE,
            "attempt": 1,
            "status": "failed",
            "body": BODY,
            "digest": DIGEST,
            "retry_not_before": LATER,
            "sequence": 1,
        },
        "node_attempts": {**RUN, **NODE, "attempt": 1, "attempt_id": OTHER, "sequence": 1},
    }


def _outbox() -> Samples:
    destination = {"tenant_id": RUN["tenant_id"], "destination_id": OTHER, "digest": DIGEST}
    delivery = {**RUN, "delivery_id": CALL}
    return {
        "outbox_destinations": {**destination, "kind": "web-hook", "config": BODY, "created_at": AT},
        "outbox_deliveries": {
            **delivery,
            "destination_id": OTHER,
            "destination_digest": DIGEST,
            "body": BODY,
            "digest": DIGEST,
            "sequence": 1,
            "expires_at": LATER,
            "status": "pending",
            "attempts": 0,
            "next_attempt_at": AT,
            "updated_at": AT,
        },
        "outbox_attempts": {
            **delivery,
            "attempt": 1,
            "attempt_id": OTHER,
            "started_at": AT,
            "expires_at": AT + timedelta(minutes=5),
        },
        "outbox_results": {
            **delivery,
            "attempt": 1,
            "status": "failed",
            "completed_at": AT,
            "retry_not_before": LATER,
            "body": BODY,
            "digest": DIGEST,
        },
    }


def _waits_and_quarantines() -> Samples:
    return {
        "run_waits": {
            **RUN,
            "wait_id": OTHER,
            "kind": "approval",
            "registration": BODY,
            "digest": DIGEST,
            "sequence": 1,
            "expires_at": LATER,
            "status": "outstanding",
        },
        "run_quarantines": {
            **RUN,
            "quarantine_id": OTHER,
            "quarantined_at": AT,
            "cause_kind": "operator_policy",
            "component": "operator",
            "body": BODY,
            "digest": DIGEST,
            "epoch": 1,
        },
        "run_quarantine_releases": {
            **RUN,
            "quarantine_id": OTHER,
            "released_at": LATER,
            "body": BODY,
            "digest": DIGEST,
        },
    }


def _tenants() -> Samples:
    tenant = {"tenant_id": RUN["tenant_id"]}
    return {
        "graph_definitions": {
            **tenant,
            "graph_owner_issuer": "https://a",
            "graph_owner_subject": "s",
            "graph_name": "g",
            "graph_version": "1.0.0",
            "definition_digest": DIGEST,
            "definition": BODY,
            "created_at": AT,
        },
        "scheduler_fairness_shards": {
            "shard_id": "shard",
            "policy": BODY,
            "policy_digest": DIGEST,
            "cycle_length": 2,
            "next_slot": 1,
            "next_sequence": 0,
        },
        "scheduler_fairness_reservations": {
            "shard_id": "shard",
            "reservation_id": OTHER,
            "sequence": 0,
            "slot": 0,
            "reserved_at": AT,
        },
        "tenant_limits": {**tenant, "maximum_live": 5, "updated_at": AT},
        "tenant_slots": {**tenant, "slot": 0, "run_id": RUN["run_id"], "fencing_epoch": 1, "serial": 1},
    }


def _admissions() -> Samples:
    return {
        "agent_admissions": {
            **RUN,
            "agent_name": "a",
            "agent_version": "1.0.0",
            "body": BODY,
            "admission_digest": DIGEST,
            "sequence": 1,
        },
        "agent_submission_keys": {
            **RUN,
            "key_digest": DIGEST,
            "origin": "admitted",
            "submission_digest": DIGEST,
            "created_at": AT,
        },
        "retention_receipts": {
            "tenant_id": RUN["tenant_id"],
            "receipt_id": OTHER,
            "removed_at": LATER,
            "cutoff_at": AT,
            "run_count": 1,
            "row_count": 1,
            "byte_count": 1,
            "runs_digest": DIGEST,
            "policy": BODY,
        },
    }


@pytest.fixture
def samples() -> Samples:
    return {**_runs(), **_calls(), **_outbox(), **_waits_and_quarantines(), **_tenants(), **_admissions()}
