"""Turn what a drive hands on into the run's end, or its sleep: one commit each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum, unique
from typing import Final

from attrs import frozen

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.graph.barrier import BarrierDisposition
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.ids import CheckpointId, RunId
from agentruns.domain.lease import RunFence
from agentruns.domain.ledger.commit import DraftedCommit
from agentruns.domain.ledger.documents import CANCELLATION_EVENT, LIFECYCLE_EVENT
from agentruns.domain.ledger.drafts import CancellationDraft, FailureDraft, SuccessDraft, WaitDraft
from agentruns.domain.ledger.outcomes import StoredCancellation, StoredFailure, StoredSuccess
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import RunRevision
from agentruns.domain.status import RunStatus
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import (
    AgentRunsError,
    EvidenceUnavailableError,
    InvalidValueError,
    InvariantError,
    StaleHeadError,
)
from agentruns.runtime.committer import CommitPlan, CommitResult, RunCommitter
from agentruns.runtime.driver.ending import SuccessAtOnce
from agentruns.runtime.driver.outcomes import Blocked, CancellationRequested, LifecycleBarrierReady
from agentruns.runtime.evidence import LedgerEvidence, RunEvidenceProvider
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.run_failures import failure_of, rejected_result, result_refusal
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.supervisor import DurableRunSupervisor
from agentruns.runtime.telemetry.drives import observed_lifecycle


@unique
class LifecycleEnd(Enum):
    """Say where a commit, or a release, has left the run."""

    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RELEASED = "released"


@frozen(kw_only=True)
class LifecycleResult:
    """What became of a handoff.

    Attributes:
        outcome: ``None`` when the run was only given back.
    """

    end: LifecycleEnd
    outcome: MutationOutcome | None
    run_id: RunId
    revision: RunRevision


_ENDS: Final = {
    RunStatus.WAITING: LifecycleEnd.WAITING,
    RunStatus.SUCCEEDED: LifecycleEnd.SUCCEEDED,
    RunStatus.FAILED: LifecycleEnd.FAILED,
    RunStatus.CANCELLED: LifecycleEnd.CANCELLED,
}


class DurableGraphLifecycle:
    """Commit what a handoff says, under the lease that came with it. A retry with the same handoff is a success.

    Raises on construction:
        SchemaUnavailableError: the registry lacks the exact schema of the lifecycle's events.
    """

    def __init__(
        self,
        store: AgentRunStore,
        executables: ExecutableGraphRegistry,
        *,
        evidence: RunEvidenceProvider | None = None,
        committer: RunCommitter | None = None,
    ) -> None:
        for document in (LIFECYCLE_EVENT, CANCELLATION_EVENT):
            executables.schemas.require(document)
        self._store = store
        self._executables = executables
        self._evidence = evidence or LedgerEvidence()
        self._committer = committer or RunCommitter(store)
        self._supervisor = DurableRunSupervisor(store, executables, evidence=evidence)

    async def commit_barrier(
        self, fence: RunFence, handoff: LifecycleBarrierReady, intent: AgentAdmissionIntent
    ) -> LifecycleResult:
        """Let the run sleep, or end it with its output; a result that cannot stand fails it instead.

        Raises:
            StaleHeadError: ``handoff``; the run moved on. Drop the handoff.
            LeaseLostError: the fence is not the live one; nothing was written.
            EvidenceUnavailableError: usage is not known now; the run stays active.
        """
        if handoff.commit.done is not None:
            with observed_lifecycle(handoff.state) as observed:
                return _result(observed.ended_with(handoff.commit.done))
        if handoff.plan.disposition is BarrierDisposition.WAIT:
            committed = await self._committed(handoff.state, handoff.commit.planned(lambda: self._wait(fence, handoff)))
            # What is due already is settled at once, or else by the next tick of supervision.
            with suppress(AgentRunsError):
                await self._settle_due(committed.draft)
            return _result(committed)
        end = handoff.commit.planned(lambda: self._success(fence, handoff, intent))
        return _result(await self._committed(handoff.state, end))

    async def resolve_blocked(self, fence: RunFence, handoff: Blocked) -> LifecycleResult:
        """Fail a run that cannot go on; one with nodes in flight is only given back, to the next fence.

        Raises:
            InvalidValueError: the handoff names no blocker.
            StaleHeadError: ``handoff``; the run moved on.
            LeaseLostError: the fence is not the live one; nothing was written.
        """
        state, blockers = handoff.state, handoff.blockers
        if blockers.in_flight:
            await self._store.release(fence)
            return LifecycleResult(
                end=LifecycleEnd.RELEASED, outcome=None, run_id=state.run_id, revision=state.revision
            )
        if not (blockers.failed or blockers.exhausted or blockers.superstep_limit_reached or blockers.barrier_rejected):
            raise InvalidValueError(type_name="Blocked", reason="no_blocker")
        return _result(await self._committed(state, handoff.commit.planned(lambda: self._failure(fence, handoff))))

    async def confirm_cancellation(self, fence: RunFence, handoff: CancellationRequested) -> LifecycleResult:
        """End a run as its request asked, with exact usage.

        Raises:
            EvidenceUnavailableError: a call is still open; the request stands and the run is given back.
        """
        end = handoff.commit.planned(lambda: self._cancellation(fence, handoff))
        return _result(await self._committed(handoff.state, end))

    @property
    def success_at_once(self) -> SuccessAtOnce | None:
        """What runs end with in the commit of their last completion.

        ``None`` with evidence of somebody's own: that is asked once the completion is there.
        """
        return self._success_at if type(self._evidence) is LedgerEvidence else None

    def _success_at(
        self, state: RunState, stamp: Timestamp, /, *, intent: AgentAdmissionIntent, output: BoundedJson
    ) -> StoredSuccess | None:
        """Give a success that stands; what keeps one from standing is for a commit of its own to meet."""
        try:
            artifacts, usage = self._evidence.terminal(state, output)
        except (EvidenceUnavailableError, InvalidValueError):
            return None
        success = StoredSuccess(output=output, artifacts=artifacts, usage=usage)
        refusal = result_refusal(success, intent, self._executables.schemas, completed_at=stamp)
        return success if refusal is None else None

    # --- what a handoff is planned to, once --------------------------------------------------------------------------

    def _wait(self, fence: RunFence, handoff: LifecycleBarrierReady) -> CommitPlan:
        draft = WaitDraft(
            state=handoff.state,
            graph=self._graph_of(handoff.state),
            epoch=fence.epoch,
            event_id=handoff.event_id,
            checkpoint_id=CheckpointId.generate(),
        )
        return _planned(fence, handoff.state, draft.build, size=len(handoff.plan.state.data))

    def _success(self, fence: RunFence, handoff: LifecycleBarrierReady, intent: AgentAdmissionIntent) -> CommitPlan:
        if handoff.plan.output is None:
            raise InvariantError(reason="terminal_without_output")
        artifacts, usage = self._evidence.terminal(handoff.state, handoff.plan.output)
        draft = SuccessDraft(
            state=handoff.state,
            graph=self._graph_of(handoff.state),
            epoch=fence.epoch,
            event_id=handoff.event_id,
            checkpoint_id=CheckpointId.generate(),
            outcome=StoredSuccess(output=handoff.plan.output, artifacts=artifacts, usage=usage),
        )
        size = len(handoff.plan.state.data) + len(draft.outcome.canonical)
        return _planned(fence, handoff.state, self._or_rejected(draft, intent), size=size)

    def _failure(self, fence: RunFence, handoff: Blocked) -> CommitPlan:
        failure = failure_of(handoff, epoch=fence.epoch)
        outcome = StoredFailure(failure=failure, usage=self._evidence.usage(handoff.state))
        draft = FailureDraft(
            state=handoff.state,
            graph=self._graph_of(handoff.state),
            epoch=fence.epoch,
            event_id=handoff.event_id,
            outcome=outcome,
        )
        return _planned(fence, handoff.state, draft.build, size=len(outcome.canonical))

    def _cancellation(self, fence: RunFence, handoff: CancellationRequested) -> CommitPlan:
        outcome = StoredCancellation(usage=self._evidence.usage(handoff.state))
        draft = CancellationDraft(state=handoff.state, epoch=fence.epoch, event_id=handoff.event_id, outcome=outcome)
        return _planned(fence, handoff.state, draft.build, size=len(outcome.canonical))

    # -----------------------------------------------------------------------------------------------------------------

    async def _settle_due(self, draft: DraftedCommit) -> None:
        tenant_id, run_id = draft.state.tenant_id, draft.state.run_id
        if any(wait.is_expired(draft.recorded_at) for wait in draft.state.waits):
            await self._supervisor.fail_expired(tenant_id, run_id)
            return
        due = [w.wait_id for w in draft.state.waits if w.due_at is not None and w.due_at <= draft.recorded_at]
        if due:
            await self._supervisor.fire(tenant_id, run_id, due)

    def _or_rejected(self, success: SuccessDraft, intent: AgentAdmissionIntent) -> Callable[[Timestamp], DraftedCommit]:
        """Build the success, or, where the result cannot stand at that instant, the failure that says why.

        A deterministic refusal must not repeat for ever: the same event id ends the run either way.
        """
        failed = rejected_result()

        def build(stamp: Timestamp) -> DraftedCommit:
            refusal = result_refusal(success.outcome, intent, self._executables.schemas, completed_at=stamp)
            if refusal is None:
                return success.build(stamp)
            outcome = StoredFailure(failure=failed(refusal), usage=success.outcome.usage)
            failure = FailureDraft(
                state=success.state,
                graph=success.graph,
                epoch=success.epoch,
                event_id=success.event_id,
                outcome=outcome,
            )
            return failure.build(stamp)

        return build

    async def _committed(self, state: RunState, plan: CommitPlan) -> CommitResult:
        with observed_lifecycle(state) as observed:
            try:
                return observed.ended_with(await self._committer.commit(plan))
            except StaleHeadError as error:
                raise StaleHeadError(tenant_id=state.tenant_id, run_id=state.run_id, reason="handoff") from error

    def _graph_of(self, state: RunState) -> ExecutableGraph:
        if state.admission is None:
            raise InvariantError(reason="seed")
        return self._executables.resolve(state.admission.graph_digest)


def _planned(fence: RunFence, state: RunState, build: Callable[[Timestamp], DraftedCommit], *, size: int) -> CommitPlan:
    if state.head is None:
        raise InvariantError(reason="seed")
    return CommitPlan(fence=fence, head=state.head, build=build, size=size)


def _result(committed: CommitResult) -> LifecycleResult:
    after = committed.draft.state
    return LifecycleResult(
        end=_ENDS[after.status], outcome=committed.outcome, run_id=after.run_id, revision=after.revision
    )
