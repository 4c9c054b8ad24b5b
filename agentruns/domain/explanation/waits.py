"""What a run waits for, and what time has decided without anybody acting on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from agentruns.domain.explanation.explanation import ExplanationReason, ReasonCode
from agentruns.domain.explanation.facts import ObservedRun, ObservedWait
from agentruns.domain.explanation.words import future, past, since
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp

#: A worker looks for runs at least once a minute, and by default each second for what time has decided: what has not
#: happened by then does not happen by itself.
_PATIENCE_MICROS: Final = 60_000_000


def is_late(at: Timestamp, now: Timestamp) -> bool:
    """Whether something is due for so long that nobody does it by himself."""
    return now.micros - at.micros > _PATIENCE_MICROS


def deadline_reasons(run: ObservedRun) -> Iterator[ExplanationReason]:
    """Tell of a deadline that is over, without a request for the run's end."""
    is_asked_for = run.status in (RunStatus.ACTIVE, RunStatus.WAITING)
    if run.deadline_at is not None and is_asked_for and run.deadline_at <= run.now:
        yield ExplanationReason(
            code=ReasonCode.DEADLINE_PASSED,
            sentence=f"The deadline of the run passed {past(run.deadline_at, run.now)},"
            " and nobody has asked for its end.",
            action=f"start a worker that supervises tenant {run.tenant_id}",
            needs_action=is_late(run.deadline_at, run.now),
        )


def wait_reasons(run: ObservedRun) -> Iterator[ExplanationReason]:
    """Tell of each outstanding wait: first what expired, then what is overdue, then what is waited for."""
    if run.status is not RunStatus.WAITING:
        return
    timers = sorted((wait for wait in run.waits if wait.due_at is not None), key=lambda wait: _instant_of(wait).micros)
    interrupts = sorted((wait for wait in run.waits if wait.due_at is None), key=lambda wait: _instant_of(wait).micros)
    yield from (_expired(run, wait) for wait in interrupts if _instant_of(wait) <= run.now)
    yield from (_overdue(run, wait) for wait in timers if _instant_of(wait) <= run.now)
    yield from (_unanswered(run, wait) for wait in interrupts if _instant_of(wait) > run.now)
    yield from (_asleep(run, wait) for wait in timers if _instant_of(wait) > run.now)


def is_overdue(run: ObservedRun) -> bool:
    """Whether time has settled something that the run waits for."""
    return run.status is RunStatus.WAITING and any(_instant_of(wait) <= run.now for wait in run.waits)


def _instant_of(wait: ObservedWait) -> Timestamp:
    """When time settles the wait; an interrupt that never expires comes last."""
    return wait.due_at or wait.expires_at or Timestamp.MAX


def _expired(run: ObservedRun, wait: ObservedWait) -> ExplanationReason:
    return ExplanationReason(
        code=ReasonCode.INTERRUPT_EXPIRED,
        sentence=f"Interrupt {wait.wait_id} ({wait.kind}) expired {past(_instant_of(wait), run.now)},"
        " and nobody has ended the run.",
        action=_supervise(run),
        needs_action=is_late(_instant_of(wait), run.now),
    )


def _overdue(run: ObservedRun, wait: ObservedWait) -> ExplanationReason:
    return ExplanationReason(
        code=ReasonCode.TIMER_OVERDUE,
        sentence=f"Timer {wait.wait_id} ({wait.kind}) was due {past(_instant_of(wait), run.now)},"
        " and nobody has fired it.",
        action=_supervise(run),
        needs_action=is_late(_instant_of(wait), run.now),
    )


def _unanswered(run: ObservedRun, wait: ObservedWait) -> ExplanationReason:
    expiry = "never expires" if wait.expires_at is None else f"expires at {future(wait.expires_at, run.now)}"
    return ExplanationReason(
        code=ReasonCode.WAITING_FOR_INTERRUPT,
        sentence=f"Interrupt {wait.wait_id} ({wait.kind}) has waited for an answer"
        f" {since(wait.registered_at, run.now)}; it {expiry}.",
        action=f"answer it, in the application or with"
        f" `agentruns waits resolve {run.tenant_id} {run.run_id} {wait.wait_id}`",
        needs_action=False,
    )


def _asleep(run: ObservedRun, wait: ObservedWait) -> ExplanationReason:
    return ExplanationReason(
        code=ReasonCode.WAITING_FOR_TIMER,
        sentence=f"The run has waited for timer {wait.wait_id} ({wait.kind})"
        f" {since(wait.registered_at, run.now)}; it is due at {future(_instant_of(wait), run.now)}.",
        action=None,
        needs_action=False,
    )


def _supervise(run: ObservedRun) -> str:
    return f"start a worker that has the graph and supervises tenant {run.tenant_id}"
