"""Put facts of one superstep into one commit, where the record stays what separate commits would have left."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve, frozen

from agentruns.domain.graph.barrier import BarrierDisposition, BarrierPlan
from agentruns.domain.graph.results import NodeResult
from agentruns.domain.ids import CheckpointId, EventId
from agentruns.domain.ledger.classify import Completed, Dispatchable, DispatchGround, ReadyNodesPlan, classify
from agentruns.domain.ledger.superstep import BarrierIds, Start, SuperstepDraft
from agentruns.domain.scalars import NodeId
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import BarrierRejectedError
from agentruns.runtime.driver.batches import dispatchable

#: A start and its completion.
EVENTS_OF_A_NODE = 2


@frozen(kw_only=True)
class Fusing:
    """What may join a commit now.

    Attributes:
        is_allowed: whether the options permit it.
        may_start: whether nobody wants the process to end.
        events_left: what the drive may still write.
        starts: mints the starts of the first batch of some nodes.
        now: an instant that the database's clock has passed.
    """

    is_allowed: bool
    may_start: bool
    events_left: int
    starts: Callable[[Sequence[NodeId], int], tuple[Start, ...]]
    now: Timestamp

    def fuse(self, draft: SuperstepDraft) -> SuperstepDraft:
        """Add barrier and next starts to the last completions of a batch that has succeeded as a whole."""
        has_failed = any(not isinstance(each.body, NodeResult) for each in draft.completions)
        if not self.is_allowed or has_failed:
            return draft
        after = draft.build(self.now).state
        plan = classify(after, epoch=draft.epoch, now=self.now)
        if not plan.is_barrier_ready:
            nodes = dispatchable(plan) if _is_untroubled(plan) else ()
            return self._with_starts(draft, nodes, events=len(draft.completions))
        try:
            barrier = after.barrier(draft.graph)
        except BarrierRejectedError:
            return draft
        return self.with_barrier(draft, barrier) if barrier.disposition is BarrierDisposition.CONTINUE else draft

    def with_barrier(self, draft: SuperstepDraft, plan: BarrierPlan) -> SuperstepDraft:
        """Add a barrier, and the first batch of the superstep that it begins."""
        events = len(draft.completions) + 1
        if events > self.events_left:
            return draft
        ids = BarrierIds(event_id=EventId.generate(), checkpoint_id=CheckpointId.generate())
        fused = evolve(draft, barrier=ids, plan=plan)
        if draft.state.superstep.next() >= draft.graph.definition.limits.maximum_supersteps:
            return fused
        return self._with_starts(fused, plan.ready_nodes.ids, events=events)

    def _with_starts(self, draft: SuperstepDraft, nodes: Sequence[NodeId], *, events: int) -> SuperstepDraft:
        """Add starts, if their completions still fit into the drive."""
        left = self.events_left - events
        if not self.is_allowed or not self.may_start or not nodes or left < EVENTS_OF_A_NODE:
            return draft
        return evolve(draft, starts=self.starts(nodes, left))


def _is_untroubled(plan: ReadyNodesPlan) -> bool:
    """Tell whether nothing of the superstep has failed yet: beside a failed node no sibling is started."""
    return all(
        isinstance(each, Completed) or (isinstance(each, Dispatchable) and each.ground is DispatchGround.FIRST_ATTEMPT)
        for each in plan.nodes
    )
