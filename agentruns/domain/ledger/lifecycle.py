"""The lifecycle of a run: which kinds of events its statuses permit, and where each leads."""

from __future__ import annotations

from typing import Final

from agentruns.domain.ledger.kinds import EventKind
from agentruns.domain.status import RunStatus

_ACTIVE: Final = frozenset({RunStatus.ACTIVE})
_WAITING: Final = frozenset({RunStatus.WAITING})
_CANCELLING: Final = frozenset({RunStatus.CANCELLATION_REQUESTED})

#: From which statuses each kind is legal. A failure by the control plane is legal for a waiting run instead.
_FROM: Final[dict[EventKind, frozenset[RunStatus]]] = {
    EventKind.AGENT_ADMITTED: frozenset({RunStatus.PENDING}),
    EventKind.NODE_ATTEMPT_STARTED: _ACTIVE,
    EventKind.NODE_ATTEMPT_SUCCEEDED: _ACTIVE,
    EventKind.NODE_ATTEMPT_FAILED: _ACTIVE,
    EventKind.BARRIER_CONTINUED: _ACTIVE,
    EventKind.BARRIER_WAITING: _ACTIVE,
    EventKind.BARRIER_SUCCEEDED: _ACTIVE,
    EventKind.RUN_FAILED: _ACTIVE,
    EventKind.INTERRUPT_RESOLVED: _WAITING,
    EventKind.TIMER_FIRED: _WAITING,
    EventKind.CANCELLATION_REQUESTED: _ACTIVE | _WAITING,
    EventKind.DEADLINE_CANCELLATION_REQUESTED: _ACTIVE | _WAITING,
    EventKind.CANCELLATION_CONFIRMED: _CANCELLING,
    EventKind.MODEL_INVOCATION_PREPARED: _ACTIVE,
    EventKind.TOOL_INVOCATION_PREPARED: _ACTIVE,
    EventKind.MODEL_ATTEMPT_STARTED: _ACTIVE,
    EventKind.TOOL_ATTEMPT_STARTED: _ACTIVE,
    EventKind.MODEL_RESPONSE_COMMITTED: _ACTIVE | _CANCELLING,
    EventKind.TOOL_RESULT_COMMITTED: _ACTIVE | _CANCELLING,
    EventKind.MODEL_ERROR_COMMITTED: _ACTIVE | _CANCELLING,
    EventKind.TOOL_ERROR_COMMITTED: _ACTIVE | _CANCELLING,
    EventKind.TOOL_RESULT_RECONCILED: _ACTIVE | _CANCELLING,
    EventKind.TOOL_ERROR_RECONCILED: _ACTIVE | _CANCELLING,
}

_TO: Final[dict[EventKind, RunStatus]] = {
    EventKind.AGENT_ADMITTED: RunStatus.ACTIVE,
    EventKind.BARRIER_WAITING: RunStatus.WAITING,
    EventKind.BARRIER_SUCCEEDED: RunStatus.SUCCEEDED,
    EventKind.RUN_FAILED: RunStatus.FAILED,
    EventKind.CANCELLATION_REQUESTED: RunStatus.CANCELLATION_REQUESTED,
    EventKind.DEADLINE_CANCELLATION_REQUESTED: RunStatus.CANCELLATION_REQUESTED,
    EventKind.CANCELLATION_CONFIRMED: RunStatus.CANCELLED,
}

_SETTLING: Final = frozenset({EventKind.INTERRUPT_RESOLVED, EventKind.TIMER_FIRED})


def permits(status: RunStatus, kind: EventKind, epoch: int) -> bool:
    """Tell whether an event of that kind and epoch may follow a status."""
    if kind is EventKind.RUN_FAILED and epoch == 0:
        return status is RunStatus.WAITING
    return status in _FROM[kind]


def status_after(kind: EventKind, *, are_waits_outstanding: bool) -> RunStatus | None:
    """Give the status that an event leads to; ``None`` where it is no transition."""
    if kind in _SETTLING:
        return RunStatus.WAITING if are_waits_outstanding else RunStatus.ACTIVE
    return _TO.get(kind)


def why_not(status: RunStatus) -> str:
    """Give the reason of the refusal of what a status does not permit."""
    if status.is_terminal:
        return "terminal"
    return {RunStatus.WAITING: "waiting", RunStatus.CANCELLATION_REQUESTED: "cancelling"}.get(status, "transition")


def terminal_kinds() -> frozenset[EventKind]:
    """Name the kinds after which nothing follows."""
    return frozenset(kind for kind, status in _TO.items() if status.is_terminal)
