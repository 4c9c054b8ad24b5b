"""Say which rows an event was written with, read off the fold before and after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.ledger.event import Event
from agentruns.domain.ledger.kinds import EventKind, find_kind
from agentruns.domain.ledger.records import NodeAttempt
from agentruns.domain.ledger.rows import CheckpointRow
from agentruns.domain.ledger.state import RunState

#: Columns by the key of the row: ``(source, …)``.
Rows = Mapping[tuple[Any, ...], Mapping[str, object]]

# Tuples: a member is found in them by its identity, while a set would hash it in Python.
_BARRIERS: Final = (EventKind.BARRIER_CONTINUED, EventKind.BARRIER_WAITING, EventKind.BARRIER_SUCCEEDED)
_COMPLETIONS: Final = (EventKind.NODE_ATTEMPT_SUCCEEDED, EventKind.NODE_ATTEMPT_FAILED)
_REQUESTS: Final = (EventKind.CANCELLATION_REQUESTED, EventKind.DEADLINE_CANCELLATION_REQUESTED)
_ENDS: Final = (EventKind.BARRIER_SUCCEEDED, EventKind.RUN_FAILED, EventKind.CANCELLATION_CONFIRMED)


def expected_rows(before: RunState, event: Event, after: RunState, intent: AgentAdmissionIntent) -> Rows:
    """Give every row that stands at the event's sequence, by the columns that the fold determines.

    Bodies are not repeated here: the fold has verified each against the digest that its event names.
    """
    kind = find_kind(event.kind, event.schema_digest)
    rows: dict[tuple[Any, ...], Mapping[str, object]] = {}
    if kind is EventKind.AGENT_ADMITTED:
        rows |= _admission(after, intent)
    if kind is EventKind.AGENT_ADMITTED or kind in _BARRIERS:
        rows |= _checkpoint(after)
    if kind is EventKind.NODE_ATTEMPT_STARTED:
        rows |= _attempt(before, after)
    if kind in _COMPLETIONS:
        rows |= _result(before, after)
    if kind is EventKind.BARRIER_WAITING:
        rows |= _waits(after)
    if kind in _ENDS and after.outcome is not None:
        rows[("outcome", "outcome")] = {"digest": after.outcome.digest.raw}
    if kind in _REQUESTS and after.cancellation is not None:
        rows[("outcome", "cancellation")] = {"digest": after.cancellation.digest.raw}
    return rows


def _admission(after: RunState, intent: AgentAdmissionIntent) -> Rows:
    agent = intent.provenance.agent.capability
    digest = after.admission.admission_digest.raw if after.admission else None
    return {("admission", None): {"digest": digest, "word": str(agent.name), "node_id": str(agent.version)}}


def _checkpoint(after: RunState) -> Rows:
    row = CheckpointRow.of(after)
    columns = {"id": row.checkpoint_id.text, "digest": row.digest.raw, "second_body": row.ready}
    return {("checkpoint", row.superstep.value): columns}


def _changed(before: RunState, after: RunState) -> NodeAttempt:
    """Find the attempt that an event started or ended."""
    return next(attempt for node_id, attempt in after.nodes.items() if before.nodes.get(node_id) is not attempt)


def _attempt(before: RunState, after: RunState) -> Rows:
    attempt = _changed(before, after)
    key = ("attempt", after.superstep.value, attempt.node_id.text, attempt.attempt)
    return {key: {"id": attempt.attempt_id.text}}


def _result(before: RunState, after: RunState) -> Rows:
    attempt = _changed(before, after)
    key = ("result", after.superstep.value, attempt.node_id.text, attempt.attempt)
    gate, digest = attempt.retry_not_before, attempt.result_digest
    columns = {
        "status": attempt.status.value,
        "digest": None if digest is None else digest.raw,
        "at": None if gate is None else gate.to_datetime(),
    }
    return {key: columns}


def expected_settlements(event: Event, after: RunState) -> Mapping[str, Mapping[str, object]]:
    """Give what an event wrote into the rows of the waits that it settled, by the id of the wait."""
    return {
        wait.wait_id.text: {
            "status": wait.how.value,
            "second_digest": None if wait.resolution_digest is None else wait.resolution_digest.raw,
        }
        for wait in after.settled
        if wait.sequence == event.sequence
    }


def _waits(after: RunState) -> Rows:
    return {
        ("wait", wait.wait_id.text): {
            "word": wait.kind.value,
            "digest": wait.digest.raw,
            "at": None if wait.due_at is None else wait.due_at.to_datetime(),
            "until": None if wait.expires_at is None else wait.expires_at.to_datetime(),
        }
        for wait in after.waits
    }
