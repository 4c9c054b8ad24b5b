"""Settle what a simulated run waits for: timers fire when they are due, interrupts are answered or expire."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from agentruns.domain.failure import Failure, FailureCategory
from agentruns.domain.failure_codes import INTERRUPT_EXPIRED, ORIGIN_GRAPH
from agentruns.domain.ids import EventId, FailureId
from agentruns.domain.ledger.drafts import FailureDraft, FiringDraft, ResolutionDraft
from agentruns.domain.ledger.outcomes import StoredFailure
from agentruns.domain.ledger.records import OutstandingWait
from agentruns.domain.payload import JournalPayload
from agentruns.domain.retry_advice import NeverRetry
from agentruns.domain.waits import InterruptRegistration, WaitResolution, WaitResolver

if TYPE_CHECKING:
    from agentruns.testing.simulation.run import SimulatedRun

#: What an interrupt is answered; ``None`` where nobody answers this one.
Answer: TypeAlias = Callable[[InterruptRegistration], JournalPayload | None]


def settle(run: SimulatedRun) -> None:
    """Settle one of the waits, first those that somebody answers, then whatever is due next.

    Raises:
        ValueError: nobody answers, and the run would wait for ever.
    """
    for wait in run.schedule.order(run.state.waits):
        registration = run.journal.registration(wait)
        if isinstance(registration, InterruptRegistration) and not wait.is_expired(run.now):
            answer = None if run.answer is None else run.answer(registration)
            if answer is not None:
                _resolve(run, registration, answer)
                return
    instants = [at for wait in run.state.waits if (at := wait.due_at or wait.expires_at) is not None]
    if not instants:
        raise ValueError("the graph waits for an answer without an expiry; say what it is answered")
    run.now = max(run.now, min(instants))
    _come_due(run)


def _come_due(run: SimulatedRun) -> None:
    """Let time do what it does: an expired interrupt ends the run before any timer fires."""
    if any(wait.is_expired(run.now) for wait in run.state.waits):
        _expire(run)
        return
    due = [wait for wait in run.state.waits if wait.due_at is not None and wait.due_at <= run.now]
    _fire(run, run.schedule.order(due)[0])


def _resolve(run: SimulatedRun, asked: InterruptRegistration, answer: JournalPayload) -> None:
    principal = asked.principal or run.request.intent.authority.principal
    draft = ResolutionDraft(
        state=run.state,
        event_id=EventId.generate(),
        wait_id=asked.wait_id,
        resolution=WaitResolution(
            resolver=WaitResolver(principal=principal, scopes=asked.scopes),
            payload=answer,
        ),
    )
    run.steps.append(f"the interrupt is answered ({asked.kind.value})")
    run.keep("the answer", draft.build)


def _fire(run: SimulatedRun, wait: OutstandingWait) -> None:
    run.steps.append("the timer fires")
    draft = FiringDraft(state=run.state, event_id=EventId.generate(), wait_id=wait.wait_id)
    run.keep("the firing", draft.build)


def _expire(run: SimulatedRun) -> None:
    run.steps.append("the interrupt expires")
    failure = Failure(
        id=FailureId.generate(),
        category=FailureCategory.DEADLINE_EXCEEDED,
        code=INTERRUPT_EXPIRED,
        origin=ORIGIN_GRAPH,
        message="nobody answered in time",
        retry_advice=NeverRetry(),
    )
    draft = FailureDraft(
        state=run.state,
        epoch=None,
        event_id=EventId.generate(),
        outcome=StoredFailure(failure=failure, usage=run.state.usage),
    )
    run.keep("the expiry", draft.build)
