"""Commit the facts of a stored run by hand, one after another, as a drive would."""

from __future__ import annotations

from typing import Self

from attrs import define

from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.results import ContinueControl, NodeResult, Unchanged
from agentruns.domain.ids import AttemptId, EventId
from agentruns.domain.lease import RunFence
from agentruns.domain.ledger.state import RunState
from agentruns.domain.ledger.superstep import Completion, Start, SuperstepDraft
from agentruns.domain.scalars import NodeId
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import InvariantError
from agentruns.runtime.committer import CommitPlan, CommitResult, RunCommitter
from agentruns.runtime.replay import RunReader
from agentruns.testing.drives import DriveWorld


@define
class HandDriven:
    """Plan and commit under one fence; the state follows what was committed.

    Attributes:
        committer: share one between runs whose commits are to meet in a set.
        fence: tests put a stale one in its place.
        state: at whose head the next plan is made.
    """

    committer: RunCommitter
    fence: RunFence
    state: RunState
    graph: ExecutableGraph

    @classmethod
    async def of(cls, world: DriveWorld, fence: RunFence, *, committer: RunCommitter | None = None) -> Self:
        """Read the run of a fence, whoever owns it now."""
        reader = RunReader(world.store, world.executables)
        replayed = await reader.read(fence.tenant_id, fence.run_id)
        return cls(committer or RunCommitter(world.store), fence, replayed.state, replayed.graph)

    def start(self, node: str = "a", *, event_id: EventId | None = None) -> CommitPlan:
        """Plan the start of a node's next attempt."""
        event_id = event_id or EventId.generate()
        start = Start(node_id=NodeId(node), event_id=event_id, attempt_id=AttemptId.generate())
        return self._plan(self._draft(starts=(start,)))

    def complete(self, node: str = "a") -> CommitPlan:
        """Plan that a node ends well, leaves the state as it is and goes on."""
        result = NodeResult(state_change=Unchanged(), control=ContinueControl(), bindings=(), usage=BudgetUsage.zero())
        completion = Completion(node_id=NodeId(node), event_id=EventId.generate(), body=result)
        return self._plan(self._draft(completions=(completion,)))

    async def commit(self, plan: CommitPlan) -> CommitResult:
        """Commit a plan and go on from what it left."""
        result = await self.committer.commit(plan)
        self.state = result.draft.state
        return result

    def _draft(self, *, starts: tuple[Start, ...] = (), completions: tuple[Completion, ...] = ()) -> SuperstepDraft:
        return SuperstepDraft(
            state=self.state, graph=self.graph, epoch=self.fence.epoch, starts=starts, completions=completions
        )

    def _plan(self, draft: SuperstepDraft) -> CommitPlan:
        if self.state.head is None:
            raise InvariantError(reason="seed")
        return CommitPlan(fence=self.fence, head=self.state.head, build=draft.build, size=0)
