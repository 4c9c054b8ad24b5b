"""Decide a request to end a run, step by step, without doing any of the steps; see :mod:`agentruns.runtime.submission`.

Nothing here asks the registry: an end can be asked for where the graph of the run is not deployed.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, cast

from attrs import frozen

from agentruns.domain.failure import Failure
from agentruns.domain.ids import EventId, RunId
from agentruns.domain.ledger.data import CancellationRequested
from agentruns.domain.ledger.drafts import CancellationRequestDraft
from agentruns.domain.ledger.kinds import EventKind
from agentruns.domain.ledger.lifecycle import why_not
from agentruns.domain.ledger.outcomes import CancellationRequest
from agentruns.domain.operator_authority import OperatorAuthority
from agentruns.domain.run_ends import RunEnds
from agentruns.domain.run_ends_checks import VerifiedRun
from agentruns.domain.run_ends_outcome import recorded_request, show
from agentruns.domain.run_ends_state import state_at_head
from agentruns.domain.scalars import TenantId
from agentruns.domain.submission import MutationOutcome
from agentruns.errors import (
    CancellationConflictError,
    ContentionError,
    IdConflictError,
    InvalidValueError,
    RunNotRunnableError,
)
from agentruns.runtime.arguments import check_argument
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


@frozen(kw_only=True)
class AskedCancellation:
    """What the caller asks for: the ids are made once and kept for every retry."""

    tenant_id: TenantId
    run_id: RunId
    event_id: EventId
    request: CancellationRequest

    @classmethod
    def of(
        cls,
        tenant_id: TenantId,
        run_id: RunId,
        *,
        event_id: EventId,
        failure: Failure,
        authority: OperatorAuthority | None = None,
    ) -> AskedCancellation:
        """Check what is asked for, before anything is sent.

        Raises:
            InvalidValueError: ``failure_kind_mismatch``: not of category ``cancelled`` with advice never;
                ``failure_cause_mismatch``: caused by another event than this one.
        """
        check_argument("tenant_id", tenant_id, TenantId)
        check_argument("run_id", run_id, RunId)
        check_argument("event_id", event_id, EventId)
        check_argument("failure", failure, Failure)
        if not failure.is_cancellation:
            raise InvalidValueError(type_name="Failure", reason="failure_kind_mismatch")
        if failure.caused_by_event_id not in (None, event_id):
            raise InvalidValueError(type_name="Failure", reason="failure_cause_mismatch")
        request = CancellationRequest(failure=failure, authority=authority)
        return cls(tenant_id=tenant_id, run_id=run_id, event_id=event_id, request=request)


#: What a step asks for, and in the same order what it is answered: :class:`RunEnds`, :class:`SentControl`.
CancellationStep: TypeAlias = RunLookup | ControlPlan


def cancellation_steps(
    asked: AskedCancellation, *, clock: DatabaseClock, verifier: RunVerifier
) -> Generator[CancellationStep, Any, AgentRunMutation]:
    """Read and judge, then commit at the head that was read; read again when the run was faster."""
    for _ in range(1 + MAXIMUM_REPETITIONS):
        ends = cast("RunEnds", (yield RunLookup(tenant_id=asked.tenant_id, run_id=asked.run_id)))
        stored = verifier.verify(ends)
        snapshot = show(stored)
        if _is_recorded(asked, stored):
            return AgentRunMutation(outcome=MutationOutcome.IDEMPOTENT, snapshot=snapshot)
        _refuse(asked, stored)
        check_clock(stored, clock)
        sent = cast("SentControl", (yield _plan(asked, stored)))
        if sent.is_committed:
            return AgentRunMutation(outcome=MutationOutcome.COMMITTED, snapshot=shown_after(snapshot, sent.draft))
    raise ContentionError(run_id=asked.run_id, attempts=MAXIMUM_REPETITIONS)


def _is_recorded(asked: AskedCancellation, stored: VerifiedRun) -> bool:
    """Tell whether this very request is the recorded one.

    Raises:
        IdConflictError: the id of the event stands for something else in this run.
    """
    for sequence in stored.rows.ends.events:
        found = stored.journal.at(sequence)
        if found.event.event_id != asked.event_id:
            continue
        data = found.data
        if (
            isinstance(data, CancellationRequested)
            and data.kind is EventKind.CANCELLATION_REQUESTED
            and data.request_digest == asked.request.digest
        ):
            return True
        raise IdConflictError(tenant_id=asked.tenant_id, run_id=asked.run_id, kind="event", id=asked.event_id)
    return False


def _refuse(asked: AskedCancellation, stored: VerifiedRun) -> None:
    """Say why the end of the run cannot be asked for. Silence: it can."""
    tenant_id, run_id = asked.tenant_id, asked.run_id
    recorded = recorded_request(stored)
    if recorded is not None:
        raise CancellationConflictError(tenant_id=tenant_id, run_id=run_id, recorded_failure_id=recorded.failure.id)
    status, revision = stored.lifecycle.status, stored.lifecycle.revision
    if status.is_terminal:
        raise RunNotRunnableError(
            reason=why_not(status), tenant_id=tenant_id, run_id=run_id, status=status, revision=revision
        )
    check_isolation(stored)
    check_transaction(stored)


def _plan(asked: AskedCancellation, stored: VerifiedRun) -> ControlPlan:
    state = state_at_head(stored)
    draft = CancellationRequestDraft(state=state, event_id=asked.event_id, request=asked.request)
    return ControlPlan(state=state, draft=draft.build, size=len(asked.request.canonical))
