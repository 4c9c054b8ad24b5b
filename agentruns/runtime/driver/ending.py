"""End a run in the commit of its last completion, where nobody else has a say in what it ends with."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.graph.barrier import BarrierPlan
from agentruns.domain.ids import CheckpointId, EventId
from agentruns.domain.ledger.outcomes import StoredSuccess
from agentruns.domain.ledger.state import RunState
from agentruns.domain.ledger.superstep import Ending, SuperstepDraft
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import InvariantError, StaleHeadError
from agentruns.runtime.committer import CommitPlan, CommitResult, RunCommitter
from agentruns.runtime.driver.outcomes import HandoffCommit, LifecycleBarrierReady
from agentruns.runtime.lease_keeper import LeaseKeeper


class SuccessAtOnce(Protocol):
    """Give what a run ends with in the state that its last completions lead to; the same for the same state and stamp.

    ``None`` where the end takes a commit of its own.
    """

    def __call__(
        self, state: RunState, stamp: Timestamp, /, *, intent: AgentAdmissionIntent, output: BoundedJson
    ) -> StoredSuccess | None:
        """Judge the success at an instant."""
        ...


def ending_of(plan: BarrierPlan, intent: AgentAdmissionIntent, success: SuccessAtOnce | None) -> Ending | None:
    """Mint the ids of a terminal barrier once, before the first try of the commit that it may join."""
    if success is None or plan.output is None:
        return None
    return Ending(
        event_id=EventId.generate(),
        checkpoint_id=CheckpointId.generate(),
        success=partial(success, intent=intent, output=plan.output),
    )


async def commit_superstep(
    committer: RunCommitter, plan: CommitPlan, keeper: LeaseKeeper, *, may_end: bool
) -> CommitResult:
    """Commit a superstep. One that ends the run clears its lease, so nothing renews that meanwhile.

    Raises:
        AgentRunsError: as :meth:`RunCommitter.commit` does.
    """
    if not may_end:
        return await committer.commit(plan)
    keeper.let_go()
    try:
        result = await committer.commit(plan)
    except StaleHeadError:
        keeper.keep()
        raise
    if not has_ended(result):
        keeper.keep()
    return result


def has_ended(result: CommitResult) -> bool:
    """Tell whether the run has ended with a commit, made now or found: an answer was lost."""
    return result.outcome is not None and result.draft.state.status.is_terminal


def handoff_of(draft: SuperstepDraft, result: CommitResult) -> LifecycleBarrierReady:
    """Hand an end on that is committed already."""
    if draft.ending is None or draft.plan is None:
        raise InvariantError(reason="ended_without_ending")
    return LifecycleBarrierReady(
        state=result.draft.state,
        plan=draft.plan,
        event_id=draft.ending.event_id,
        commit=HandoffCommit(done=result),
    )
