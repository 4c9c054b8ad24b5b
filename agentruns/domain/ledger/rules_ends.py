"""The rules of the ends of a run that are not its success, and what every end has in common."""

from __future__ import annotations

from collections import Counter

from agentruns.domain.failure_codes import DEADLINE_EXPIRED
from agentruns.domain.ids import WaitId
from agentruns.domain.ledger.bodies import CANCELLATION, OUTCOME
from agentruns.domain.ledger.classify import Exhausted, Failed, InFlight, classify
from agentruns.domain.ledger.data import CancellationConfirmed, CancellationRequested, RunFailed
from agentruns.domain.ledger.kinds import EventKind
from agentruns.domain.ledger.outcomes import StoredCancellation, StoredFailure
from agentruns.domain.ledger.records import CancellationFacts, OutcomeFacts, SettledWait, WaitSettlement
from agentruns.domain.ledger.step import Changes, Consequence, Step
from agentruns.domain.numbers import FencingEpoch
from agentruns.domain.status import RunStatus
from agentruns.errors import CheckpointBlockedError

_OUTCOME = "outcome"
_CANCELLATION = "cancellation"


def failed(step: Step, data: RunFailed) -> Consequence:
    """End the run by a failure, for a ground that the state shows."""
    body = step.body(OUTCOME, data.outcome_digest)
    if not isinstance(body, StoredFailure):
        raise step.breach(_OUTCOME)
    if data.abandoned != _outstanding(step):
        raise step.breach(_OUTCOME, reason="abandoned")
    if not (_has_worker_ground(step, data) if step.event.epoch else _has_expired_interrupt(step, data)):
        raise step.breach(_OUTCOME, reason="ground")
    check_settled(step)
    outcome = OutcomeFacts(
        kind=RunStatus.FAILED, digest=data.outcome_digest, completed_at=step.event.recorded_at, body=body
    )
    return Consequence(changes={"outcome": outcome, **_abandoning(step)})


def cancellation_requested(step: Step, data: CancellationRequested) -> Consequence:
    """Ask for the end of the run; from here on only its confirmation ends it."""
    failure = step.body(CANCELLATION, data.request_digest).failure
    by_deadline = step.kind is EventKind.DEADLINE_CANCELLATION_REQUESTED
    if not failure.is_cancellation or failure.caused_by_event_id not in (None, step.event.event_id):
        raise step.breach(_CANCELLATION, reason="failure")
    if data.abandoned != _outstanding(step):
        raise step.breach(_CANCELLATION, reason="abandoned")
    if by_deadline and not (failure.code == DEADLINE_EXPIRED and _is_deadline_over(step)):
        raise step.breach(_CANCELLATION, reason="deadline")
    facts = CancellationFacts(
        digest=data.request_digest, failure=failure, requested_at=step.event.recorded_at, by_deadline=by_deadline
    )
    return Consequence(changes={"cancellation": facts, **_abandoning(step)})


def cancellation_confirmed(step: Step, data: CancellationConfirmed) -> Consequence:
    """End the run as was requested."""
    body = step.body(OUTCOME, data.outcome_digest)
    if not isinstance(body, StoredCancellation):
        raise step.breach(_OUTCOME)
    check_settled(step)
    outcome = OutcomeFacts(
        kind=RunStatus.CANCELLED, digest=data.outcome_digest, completed_at=step.event.recorded_at, body=body
    )
    return Consequence(changes={"outcome": outcome})


def check_settled(step: Step) -> None:
    """Refuse an end over a call that is executing or unknown."""
    state = step.state
    unsettled = tuple(each.invocation_id for each in state.invocations.values() if each.is_open)
    if unsettled:
        refusal = CheckpointBlockedError(tenant_id=state.tenant_id, run_id=state.run_id, invocation_ids=unsettled)
        raise step.breach("unsettled", refusal=refusal)


def _has_worker_ground(step: Step, data: RunFailed) -> bool:
    """Hold the counts against the classes at the event's instant, and insist on one ground."""
    state, event = step.state, step.event
    plan = classify(state, epoch=FencingEpoch(event.epoch), now=event.recorded_at)
    counts = Counter(type(each) for each in plan.nodes)
    if (data.in_flight, data.failed, data.exhausted) != (counts[InFlight], counts[Failed], counts[Exhausted]):
        return False
    return data.in_flight == 0 and (
        data.failed + data.exhausted > 0
        or state.superstep >= step.graph.definition.limits.maximum_supersteps
        or plan.is_barrier_ready
    )


def _has_expired_interrupt(step: Step, data: RunFailed) -> bool:
    return (data.in_flight, data.failed, data.exhausted) == (0, 0, 0) and any(
        wait.is_expired(step.event.recorded_at) for wait in step.state.waits
    )


def _is_deadline_over(step: Step) -> bool:
    admission = step.state.admission
    return admission is not None and step.event.recorded_at >= admission.deadline


def _outstanding(step: Step) -> tuple[WaitId, ...]:
    return tuple(wait.wait_id for wait in step.state.waits)


def _abandoning(step: Step) -> Changes:
    """Settle every outstanding wait as abandoned."""
    state = step.state
    if not state.waits:
        return {}
    abandoned = [
        SettledWait(
            wait_id=wait.wait_id,
            how=WaitSettlement.ABANDONED,
            position=wait.position,
            sequence=step.event.sequence,
        )
        for wait in state.waits
    ]
    return {"waits": (), "settled": in_order(*state.settled, *abandoned)}


def in_order(*settled: SettledWait) -> tuple[SettledWait, ...]:
    """Put settled waits into the order of their registration."""
    return tuple(sorted(settled, key=lambda wait: wait.position))
