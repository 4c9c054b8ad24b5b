"""One step of the fold: the rules that every event must satisfy, then those of its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from agentruns.domain.copies import copy_with
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.ledger import (
    rules_admission,
    rules_barriers,
    rules_calls,
    rules_ends,
    rules_nodes,
    rules_waits,
)
from agentruns.domain.ledger.bodies import Bodies
from agentruns.domain.ledger.counting import counted
from agentruns.domain.ledger.data import EventData, parse_data
from agentruns.domain.ledger.event import Event
from agentruns.domain.ledger.findings import UNSUPPORTED
from agentruns.domain.ledger.kinds import EventKind, find_kind
from agentruns.domain.ledger.lifecycle import permits, status_after, terminal_kinds, why_not
from agentruns.domain.ledger.step import Consequence, Step
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import AgentRunsError, InvalidValueError, RunNotRunnableError

if TYPE_CHECKING:
    from agentruns.domain.ledger.state import RunState

_Rule = Callable[[Step, Any], Consequence]

RULES: Final[Mapping[EventKind, _Rule]] = {
    EventKind.AGENT_ADMITTED: rules_admission.admitted,
    EventKind.NODE_ATTEMPT_STARTED: rules_nodes.started,
    EventKind.NODE_ATTEMPT_SUCCEEDED: rules_nodes.succeeded,
    EventKind.NODE_ATTEMPT_FAILED: rules_nodes.failed,
    EventKind.BARRIER_CONTINUED: rules_barriers.continued,
    EventKind.BARRIER_WAITING: rules_barriers.waiting,
    EventKind.BARRIER_SUCCEEDED: rules_barriers.succeeded,
    EventKind.RUN_FAILED: rules_ends.failed,
    EventKind.INTERRUPT_RESOLVED: rules_waits.resolved,
    EventKind.TIMER_FIRED: rules_waits.fired,
    EventKind.CANCELLATION_REQUESTED: rules_ends.cancellation_requested,
    EventKind.DEADLINE_CANCELLATION_REQUESTED: rules_ends.cancellation_requested,
    EventKind.CANCELLATION_CONFIRMED: rules_ends.cancellation_confirmed,
    EventKind.MODEL_INVOCATION_PREPARED: rules_calls.prepared,
    EventKind.TOOL_INVOCATION_PREPARED: rules_calls.prepared,
    EventKind.MODEL_ATTEMPT_STARTED: rules_calls.started,
    EventKind.TOOL_ATTEMPT_STARTED: rules_calls.started,
    EventKind.MODEL_RESPONSE_COMMITTED: rules_calls.committed,
    EventKind.TOOL_RESULT_COMMITTED: rules_calls.committed,
    EventKind.MODEL_ERROR_COMMITTED: rules_calls.model_failed,
    EventKind.TOOL_ERROR_COMMITTED: rules_calls.tool_failed,
    EventKind.TOOL_RESULT_RECONCILED: rules_calls.committed,
    EventKind.TOOL_ERROR_RECONCILED: rules_calls.tool_failed,
}

_TERMINAL: Final = terminal_kinds()


def fold(
    state: RunState, event: Event, bodies: Bodies, graph: ExecutableGraph | None, *, is_building: bool
) -> RunState:
    """Give the state after an event, or say which rule it breaks."""
    # What this process made the bytes from, it need not read from them.
    data = event.made_from
    kind = find_kind(event.kind, event.schema_digest) if data is None else data.kind
    step = Step(
        state=state,
        event=event,
        kind=kind or EventKind.AGENT_ADMITTED,
        bodies=bodies,
        executable=graph,
        is_building=is_building,
    )
    _check_chain(step)
    if kind is None:
        raise step.breach("kind", reason=UNSUPPORTED)
    if data is None:
        data = _data(step)
    _check_source(step)
    _check_status(step)
    _check_position(step, data)
    return _moved(step, RULES[kind](step, data))


def _check_chain(step: Step) -> None:
    state, event, head = step.state, step.event, step.state.head
    if (event.tenant_id, event.run_id) != (state.tenant_id, state.run_id):
        raise step.breach("chain")
    if event.sequence.value != (1 if head is None else head.sequence.value + 1):
        raise step.breach("chain", reason="sequence")
    if head is not None and event.recorded_at < head.recorded_at:
        raise step.breach("chain", reason="recorded_at")
    if not event.follows(head):
        raise step.breach("chain", reason="digest")


def _data(step: Step) -> EventData:
    try:
        return parse_data(step.kind, step.event.data)
    except InvalidValueError as error:
        raise step.breach("kind", reason=error.reason) from error


def _check_source(step: Step) -> None:
    epoch = step.event.epoch
    if not step.kind.source.allows(epoch) or 0 < epoch < step.state.epoch:
        raise step.breach("source")


def _check_status(step: Step) -> None:
    state, kind = step.state, step.kind
    if (kind is EventKind.AGENT_ADMITTED) is not (state.head is None) or state.status.is_terminal:
        raise step.breach("order", refusal=_not_runnable(step))
    if not permits(state.status, kind, step.event.epoch):
        raise step.breach("status", refusal=_not_runnable(step))


def _not_runnable(step: Step) -> AgentRunsError:
    state = step.state
    return RunNotRunnableError(
        reason=why_not(state.status),
        tenant_id=state.tenant_id,
        run_id=state.run_id,
        status=state.status,
        revision=state.revision,
    )


def _check_position(step: Step, data: EventData) -> None:
    state = step.state
    superstep, revision = getattr(data, "superstep", None), getattr(data, "revision", None)
    if superstep is not None and superstep != state.superstep:
        raise step.breach("position")
    if revision is not None and revision.value != state.revision.value + 1:
        raise step.breach("position")


def _moved(step: Step, follows: Consequence) -> RunState:
    """Put together what follows: the rule's changes, the head, the lifecycle and the usage."""
    state, event = step.state, step.event
    changes: dict[str, Any] = {**follows.changes, "head": event.head, "usage": _usage(step, follows)}
    waits = changes.get("waits", state.waits)
    status = status_after(step.kind, are_waits_outstanding=bool(waits))
    if status is not None:
        changes |= {
            "status": status,
            "revision": state.revision.next(),
            "changed_at": event.recorded_at,
            "lifecycle_sequence": event.sequence,
        }
    if event.epoch > state.epoch:
        changes["epoch"] = event.epoch
    # A state has no check of its own: the rules are its checks.
    return copy_with(state, changes)


def _usage(step: Step, follows: Consequence) -> BudgetUsage:
    """Count the event's bytes beside what its rule counts; a terminal event is not counted."""
    counts = follows.counts
    if step.kind not in _TERMINAL:
        counts = {**counts, "event_bytes": len(step.event.data)}
    try:
        return counted(step.state.usage, counts, spent=follows.spent)
    except InvalidValueError as error:
        raise step.breach("usage", reason=error.reason) from error
