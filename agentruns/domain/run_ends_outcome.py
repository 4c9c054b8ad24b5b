"""Verify how a run ended, and show the run: the last steps of a verified read."""

from __future__ import annotations

from typing import Final, TypeVar

from agentruns.domain.digests import Digest
from agentruns.domain.ledger.bodies import CANCELLATION, OUTCOME, BodyKind, BodyRow
from agentruns.domain.ledger.data import (
    BarrierSucceeded,
    CancellationConfirmed,
    CancellationRequested,
    RunFailed,
)
from agentruns.domain.ledger.outcomes import CancellationRequest, StoredCancellation, StoredFailure, StoredSuccess
from agentruns.domain.outcome import AgentRunTerminalOutcome, CancelledOutcome, FailedOutcome, SucceededOutcome
from agentruns.domain.result import AgentResult
from agentruns.domain.run_ends import RunEnds, StoredOutcome
from agentruns.domain.run_ends_checks import VerifiedRun
from agentruns.domain.run_ends_journal import corrupt, insist, well_formed
from agentruns.domain.snapshot import AgentRunSnapshot
from agentruns.domain.status import RunStatus

Record = TypeVar("Record")

_ASKED_TO_END: Final = (RunStatus.CANCELLATION_REQUESTED, RunStatus.CANCELLED)


def show(run: VerifiedRun) -> AgentRunSnapshot:
    """Put the public view of a run together from what was verified.

    Whether the output satisfies its schema is for the caller to ask its registry.

    Raises:
        CorruptDataError: outcome or cancellation do not verify.
    """
    ends = run.rows.ends
    request = recorded_request(run)
    outcome = _outcome(run, request)
    intent = run.admission.intent
    with well_formed(ends, "snapshot"):
        return AgentRunSnapshot(
            provenance=intent.provenance,
            graph=intent.graph,
            admission_digest=run.admission.digest,
            admitted_at=run.admission.admitted_at,
            revision=run.lifecycle.revision,
            status=run.lifecycle.status,
            changed_at=run.lifecycle.changed_at,
            quarantined=run.is_quarantined,
            outcome=outcome,
        )


def recorded_request(run: VerifiedRun) -> CancellationRequest | None:
    """Verify the request to end the run: it is there exactly when the lifecycle has passed through it.

    Raises:
        CorruptDataError: it does not verify.
    """
    ends, stored = run.rows.ends, run.rows.ends.cancellation
    insist(ends, "run_outcomes", holds=(stored is not None) == (run.lifecycle.status in _ASKED_TO_END))
    if stored is None:
        return None
    event = run.journal.at(stored.sequence)
    if not isinstance(event.data, CancellationRequested):
        raise corrupt(ends, "cancellation")
    before_end = 0 if run.lifecycle.status is RunStatus.CANCELLATION_REQUESTED else 1
    is_last = event.data.revision.value == run.lifecycle.revision.value - before_end
    insist(ends, "cancellation", holds=is_last)
    return _body(ends, CANCELLATION, stored, event.data.request_digest)


def _outcome(run: VerifiedRun, request: CancellationRequest | None) -> AgentRunTerminalOutcome | None:
    """Verify the outcome of a run that is over: the event of its last transition names it."""
    ends, stored = run.rows.ends, run.rows.ends.outcome
    data = run.lifecycle.transition.data
    insist(ends, "run_outcomes", holds=(stored is not None) == run.lifecycle.status.is_terminal)
    if stored is None:
        return None
    insist(ends, "run_outcomes.sequence", holds=stored.sequence == run.rows.run.lifecycle_sequence)
    if not isinstance(data, BarrierSucceeded | RunFailed | CancellationConfirmed):
        raise corrupt(ends, "outcome")
    body = _body(ends, OUTCOME, stored, data.outcome_digest)
    with well_formed(ends, "outcome"):
        if isinstance(body, StoredSuccess) and run.lifecycle.status is RunStatus.SUCCEEDED:
            return _succeeded(run, body)
        if isinstance(body, StoredFailure) and run.lifecycle.status is RunStatus.FAILED:
            return FailedOutcome(failure=body.failure, completed_at=run.lifecycle.changed_at, usage=body.usage)
        if isinstance(body, StoredCancellation) and request is not None:
            return CancelledOutcome(failure=request.failure, completed_at=run.lifecycle.changed_at, usage=body.usage)
    raise corrupt(ends, "outcome")


def _succeeded(run: VerifiedRun, body: StoredSuccess) -> SucceededOutcome:
    """Put the result together from event, admission and body, and check it as it was checked before it committed."""
    intent = run.admission.intent
    result = AgentResult(
        provenance=intent.provenance,
        completed_at=run.lifecycle.changed_at,
        output_schema=intent.descriptor.output_schema,
        output=body.output,
        artifacts=body.artifacts,
        usage=body.usage,
    )
    result.validate_for(intent.provenance, intent.request, intent.descriptor, intent.budget)
    return SucceededOutcome(result=result)


def _body(ends: RunEnds, kind: BodyKind[Record], stored: StoredOutcome, named: Digest) -> Record:
    """Read a body whose bytes hash to the digest that its event names and its row states."""
    row = BodyRow(data=stored.body or b"")
    insist(ends, "run_outcomes.digest", holds=stored.digest == named.raw)
    insist(ends, "body", holds=kind.verifies(named, row))
    with well_formed(ends, "body"):
        return kind.read(row)
