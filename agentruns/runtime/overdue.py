"""Decide what time has decided for one run: an expired interrupt, a deadline. Whoever is second does nothing."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, cast

from agentruns.domain.failure import Failure, FailureCategory
from agentruns.domain.failure_codes import DEADLINE_EXPIRED, INTERRUPT_EXPIRED, ORIGIN_RUNTIME
from agentruns.domain.ids import EventId, FailureId, RunId
from agentruns.domain.ledger.drafts import CancellationRequestDraft, FailureDraft
from agentruns.domain.ledger.outcomes import CancellationRequest, StoredFailure
from agentruns.domain.retry_advice import NeverRetry
from agentruns.domain.run_ends import RunEnds
from agentruns.domain.run_ends_state import state_at_head
from agentruns.domain.scalars import TenantId
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import ContentionError
from agentruns.runtime.clock import DatabaseClock
from agentruns.runtime.control import MAXIMUM_REPETITIONS, ControlPlan, SentControl, check_clock
from agentruns.runtime.evidence import RunEvidenceProvider
from agentruns.runtime.replay import ReplayedRun
from agentruns.runtime.settling import SettlingStep
from agentruns.runtime.verification import RunVerifier
from agentruns.store.ends import RunLookup

_GOES_ON = (RunStatus.ACTIVE, RunStatus.WAITING)


def deadline_steps(
    tenant_id: TenantId, run_id: RunId, *, event_id: EventId, clock: DatabaseClock, verifier: RunVerifier
) -> Generator[SettlingStep, Any, bool]:
    """Ask for the end of a run whose deadline has come; ``False`` when its end is decided already.

    Raises:
        ContentionError: somebody was faster each time; the deadline stays due.
    """
    failure_id = FailureId.generate()
    for _ in range(1 + MAXIMUM_REPETITIONS):
        stored = verifier.verify(cast("RunEnds", (yield RunLookup(tenant_id=tenant_id, run_id=run_id))))
        if stored.is_quarantined or stored.lifecycle.status not in _GOES_ON:
            return False
        if check_clock(stored, clock) < stored.admission.intent.budget.deadline:
            return False
        state = state_at_head(stored)
        request = CancellationRequest(failure=_deadline_failure(failure_id))
        draft = CancellationRequestDraft(state=state, event_id=event_id, request=request, by_deadline=True)
        sent = cast("SentControl", (yield ControlPlan(state=state, draft=draft.build, size=len(request.canonical))))
        if sent.is_committed:
            return True
    raise ContentionError(run_id=run_id, attempts=MAXIMUM_REPETITIONS)


def expiry_plan(
    run: ReplayedRun, *, event_id: EventId, failure_id: FailureId, evidence: RunEvidenceProvider, now: Timestamp
) -> ControlPlan | None:
    """Plan the end of a run whose interrupt nobody answered in time; ``None`` when it does not wait for one any more.

    Raises:
        EvidenceUnavailableError: usage is not known now; the run stays waiting.
    """
    state = run.state
    if state.status is not RunStatus.WAITING or not any(wait.is_expired(now) for wait in state.waits):
        return None
    outcome = StoredFailure(failure=_expiry_failure(failure_id), usage=evidence.usage(state))
    draft = FailureDraft(state=state, graph=run.graph, epoch=None, event_id=event_id, outcome=outcome)
    return ControlPlan(state=state, draft=draft.build, size=len(outcome.canonical))


def _deadline_failure(failure_id: FailureId) -> Failure:
    return Failure(
        id=failure_id,
        category=FailureCategory.CANCELLED,
        code=DEADLINE_EXPIRED,
        origin=ORIGIN_RUNTIME,
        message="the deadline of the run has come",
        retry_advice=NeverRetry(),
    )


def _expiry_failure(failure_id: FailureId) -> Failure:
    return Failure(
        id=failure_id,
        category=FailureCategory.DEADLINE_EXCEEDED,
        code=INTERRUPT_EXPIRED,
        origin=ORIGIN_RUNTIME,
        message="an interrupt was not answered in time",
        retry_advice=NeverRetry(),
    )
