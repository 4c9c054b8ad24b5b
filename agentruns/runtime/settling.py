"""Decide what settles a wait, step by step, without doing any of the steps; see :mod:`agentruns.runtime.submission`.

Only the ends of the run's evidence are read, so the cost does not grow with its history.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from attrs import frozen

from agentruns.domain.ids import EventId, RunId, WaitId
from agentruns.domain.ledger.data import InterruptResolved
from agentruns.domain.ledger.drafts import FiringDraft, ResolutionDraft
from agentruns.domain.run_ends import RunEnds
from agentruns.domain.run_ends_checks import VerifiedRun
from agentruns.domain.run_ends_outcome import show
from agentruns.domain.run_ends_state import state_at_head
from agentruns.domain.run_waits import StoredWaitRow, VerifiedWait, verify_wait
from agentruns.domain.scalars import TenantId
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.waits import InterruptRegistration, WaitRegistration, WaitResolution
from agentruns.errors import ContentionError, IdConflictError, NotFoundError, WaitAlreadySettledError
from agentruns.runtime.clock import DatabaseClock
from agentruns.runtime.control import (
    MAXIMUM_REPETITIONS,
    AgentRunMutation,
    ControlPlan,
    SentControl,
    check_clock,
    check_isolation,
    check_transaction,
    shown_after,
)
from agentruns.runtime.verification import RunVerifier
from agentruns.store.ends import RunLookup
from agentruns.store.waits import WaitLookup

#: What a step asks for, and in the same order what it is answered: :class:`RunEnds`, rows in the order of the
#: ids, ``None`` where there is none, :class:`SentControl`.
SettlingStep: TypeAlias = RunLookup | WaitLookup | ControlPlan


@frozen(kw_only=True)
class AskedResolution:
    """What the caller asks for: the id of the event is made once and kept for every retry."""

    tenant_id: TenantId
    run_id: RunId
    wait_id: WaitId
    event_id: EventId
    resolution: WaitResolution

    @property
    def lookup(self) -> WaitLookup:
        """The wait that is to be settled."""
        return WaitLookup(tenant_id=self.tenant_id, run_id=self.run_id, wait_ids=(self.wait_id,))


def resolution_steps(
    asked: AskedResolution, *, clock: DatabaseClock, verifier: RunVerifier
) -> Generator[SettlingStep, Any, AgentRunMutation]:
    """Read and judge, then commit at the head that was read; read again when the run was faster."""
    for _ in range(1 + MAXIMUM_REPETITIONS):
        stored = verifier.verify(cast("RunEnds", (yield _run_of(asked.lookup))))
        snapshot = show(stored)
        (wait,) = _verified(stored, (yield asked.lookup))
        if _is_recorded(asked, stored, wait):
            return AgentRunMutation(outcome=MutationOutcome.IDEMPOTENT, snapshot=snapshot)
        check_isolation(stored)
        registration = _open_interrupt(asked.lookup, wait)
        now = check_clock(stored, clock)
        if registration.expires_at is not None and registration.expires_at <= now:
            raise _settled(asked.lookup, "expired")
        check_transaction(stored)
        plan = _planned(asked, stored, registration, now)
        if plan is None:
            continue
        sent = cast("SentControl", (yield plan))
        if sent.is_committed:
            return AgentRunMutation(outcome=MutationOutcome.COMMITTED, snapshot=shown_after(snapshot, sent.draft))
    raise ContentionError(run_id=asked.run_id, attempts=MAXIMUM_REPETITIONS)


def _planned(
    asked: AskedResolution, stored: VerifiedRun, registration: InterruptRegistration, now: Timestamp
) -> ControlPlan | None:
    """Plan the event at the head that was read; ``None`` when the wait was registered only after that head.

    Raises:
        ResolverNotPermittedError: the rules of the fold say so.
    """
    state = state_at_head(stored, known=(registration,))
    if all(wait.wait_id != asked.wait_id for wait in state.waits):
        return None
    draft = ResolutionDraft(state=state, event_id=asked.event_id, wait_id=asked.wait_id, resolution=asked.resolution)
    # Drafted once here, so that what its rules refuse never disturbs the set that it would travel in.
    draft.build(now)
    size = len(asked.resolution.canonical)
    return ControlPlan(state=state, draft=draft.build, until=registration.expires_at, size=size)


def firing_steps(
    lookup: WaitLookup, *, event_ids: Mapping[WaitId, EventId], clock: DatabaseClock, verifier: RunVerifier
) -> Generator[SettlingStep, Any, int]:
    """Fire timers of a run that are due, each on the head that the one before it left; say how many fired by these ids.

    What somebody else has settled is passed over.

    Raises:
        ContentionError: something else happened to the run each time; what is left stays due.
    """
    for _ in range(1 + MAXIMUM_REPETITIONS):
        stored = verifier.verify(cast("RunEnds", (yield _run_of(lookup))))
        waits = [wait for wait in _verified(stored, (yield lookup)) if wait is not None]
        due = [wait.registration for wait in waits if wait.how is None]
        fired = sum(_is_fired_by(wait, event_ids) for wait in waits)
        if stored.is_quarantined or not due:
            return fired
        check_clock(stored, clock)
        state = state_at_head(stored, known=due)
        if not {each.wait_id for each in due} <= {each.wait_id for each in state.waits}:
            continue
        for each in due:
            draft = FiringDraft(state=state, event_id=event_ids[each.wait_id], wait_id=each.wait_id)
            sent = cast("SentControl", (yield ControlPlan(state=state, draft=draft.build)))
            if not sent.is_committed:
                break
            state = sent.draft.state
        else:
            return fired + len(due)
    raise ContentionError(run_id=lookup.run_id, attempts=MAXIMUM_REPETITIONS)


def _is_fired_by(wait: VerifiedWait, event_ids: Mapping[WaitId, EventId]) -> bool:
    return wait.event is not None and wait.event.event.event_id == event_ids[wait.registration.wait_id]


def wait_steps(lookup: WaitLookup, *, verifier: RunVerifier) -> Generator[SettlingStep, Any, VerifiedWait]:
    """Read one wait of a run, verified."""
    stored = verifier.verify(cast("RunEnds", (yield _run_of(lookup))))
    (wait,) = _verified(stored, (yield lookup))
    if wait is None:
        raise _unknown(lookup)
    return wait


def outstanding_steps(
    tenant_id: TenantId, run_id: RunId, *, verifier: RunVerifier
) -> Generator[SettlingStep, Any, tuple[WaitRegistration, ...]]:
    """Read what a run waits for, verified, in the order in which it was registered."""
    stored = verifier.verify(cast("RunEnds", (yield RunLookup(tenant_id=tenant_id, run_id=run_id))))
    ids = tuple(wait.wait_id for wait in state_at_head(stored).waits)
    if not ids:
        return ()
    waits = _verified(stored, (yield WaitLookup(tenant_id=tenant_id, run_id=run_id, wait_ids=ids)))
    return tuple(wait.registration for wait in waits if wait is not None and wait.how is None)


def _run_of(lookup: WaitLookup) -> RunLookup:
    return RunLookup(tenant_id=lookup.tenant_id, run_id=lookup.run_id)


def _verified(stored: VerifiedRun, rows: Sequence[StoredWaitRow | None]) -> tuple[VerifiedWait | None, ...]:
    return tuple(None if row is None else verify_wait(stored.rows.ends, row) for row in rows)


def _is_recorded(asked: AskedResolution, stored: VerifiedRun, wait: VerifiedWait | None) -> bool:
    """Tell whether this very resolution is the recorded one.

    Raises:
        IdConflictError: the event of this id settled the wait otherwise, or is another one at the ends of the run.
    """
    settling = None if wait is None or wait.event is None else wait.event
    if settling is not None and settling.event.event_id == asked.event_id:
        data = settling.data
        if isinstance(data, InterruptResolved) and data.resolution_digest == asked.resolution.digest:
            return True
    elif all(event.event_id != asked.event_id.text for event in stored.rows.ends.events.values()):
        return False
    raise IdConflictError(tenant_id=asked.tenant_id, run_id=asked.run_id, kind="event", id=asked.event_id)


def _open_interrupt(lookup: WaitLookup, wait: VerifiedWait | None) -> InterruptRegistration:
    """Give the interrupt that is still to be answered; nobody answers a timer."""
    if wait is None or not isinstance(wait.registration, InterruptRegistration):
        raise _unknown(lookup)
    if wait.how is not None:
        raise _settled(lookup, wait.how.value)
    return wait.registration


def _unknown(lookup: WaitLookup) -> NotFoundError:
    return NotFoundError(kind="wait", tenant_id=lookup.tenant_id, id=lookup.wait_ids[0])


def _settled(lookup: WaitLookup, reason: str) -> WaitAlreadySettledError:
    return WaitAlreadySettledError(
        reason=reason, tenant_id=lookup.tenant_id, run_id=lookup.run_id, wait_id=lookup.wait_ids[0]
    )
