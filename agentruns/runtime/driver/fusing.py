"""Put facts of one superstep into one commit, where the record stays what separate commits would have left."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import frozen

from agentruns.domain.copies import copy_with
from agentruns.domain.graph.barrier import BarrierDisposition, BarrierPlan
from agentruns.domain.graph.results import NodeResult
from agentruns.domain.ids import CheckpointId, EventId
from agentruns.domain.ledger.classify import Completed, Dispatchable, DispatchGround, ReadyNodesPlan, classify
from agentruns.domain.ledger.superstep import BarrierIds, Ending, Start, SuperstepDraft
from agentruns.domain.scalars import NodeId
from agentruns.domain.timestamps import Timestamp
from agentruns.runtime.driver.batches import dispatchable
from agentruns.runtime.result_limit import result_bytes

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
        ending: names the barrier that ends the run as a plan says; ``None`` where that takes a commit of its own.
        now: gives an instant that the database's clock has passed.
        maximum_result_bytes: of the results that a barrier is planned from.
    """

    is_allowed: bool
    may_start: bool
    events_left: int
    starts: Callable[[Sequence[NodeId], int], tuple[Start, ...]]
    ending: Callable[[BarrierPlan], Ending | None]
    now: Callable[[], Timestamp]
    maximum_result_bytes: int

    def fuse(self, draft: SuperstepDraft) -> SuperstepDraft:
        """Add barrier and next starts to the last completions of a batch that has succeeded as a whole."""
        has_failed = any(not isinstance(each.body, NodeResult) for each in draft.completions)
        if not self.is_allowed or has_failed:
            return draft
        if draft.completes_superstep:
            return self._with_decision(draft) if self._may_be_planned(draft) else draft
        now = self.now()
        plan = classify(draft.build(now).state, epoch=draft.epoch, now=now)
        nodes = dispatchable(plan) if _is_untroubled(plan) else ()
        starts = self._starts(nodes, events=len(draft.completions))
        return copy_with(draft, {"starts": starts}) if starts else draft

    def _may_be_planned(self, draft: SuperstepDraft) -> bool:
        """Tell whether this process may hold the results; if not, they are committed all the same, for another one."""
        completed = result_bytes(each.body for each in draft.completions)
        return completed + result_bytes(draft.state.results.values()) <= self.maximum_result_bytes

    def _with_decision(self, draft: SuperstepDraft) -> SuperstepDraft:
        """Plan what follows without building the commit: no stamp matters for it."""
        try:
            plan = draft.planned()
        except Exception:  # noqa: BLE001  # nodes that have ended must not run again: the turn after their commit meets it
            return draft
        if plan.disposition is BarrierDisposition.CONTINUE:
            return self.with_barrier(draft, plan)
        may_end = plan.disposition is BarrierDisposition.TERMINAL and len(draft.completions) < self.events_left
        return copy_with(draft, {"plan": plan, "ending": self.ending(plan) if may_end else None})

    def with_barrier(self, draft: SuperstepDraft, plan: BarrierPlan) -> SuperstepDraft:
        """Add a barrier, and the first batch of the superstep that it begins."""
        events = len(draft.completions) + 1
        if events > self.events_left:
            return draft
        ids = BarrierIds(event_id=EventId.generate(), checkpoint_id=CheckpointId.generate())
        is_last = draft.state.superstep.next() >= draft.graph.definition.limits.maximum_supersteps
        starts = () if is_last else self._starts(plan.ready_nodes.ids, events=events)
        return copy_with(draft, {"barrier": ids, "plan": plan, "starts": starts})

    def _starts(self, nodes: Sequence[NodeId], *, events: int) -> tuple[Start, ...]:
        """Start some of these nodes beside so many events, if their completions still fit into the drive."""
        left = self.events_left - events
        if not self.is_allowed or not self.may_start or not nodes or left < EVENTS_OF_A_NODE:
            return ()
        return self.starts(nodes, left)


def _is_untroubled(plan: ReadyNodesPlan) -> bool:
    """Tell whether nothing of the superstep has failed yet: beside a failed node no sibling is started."""
    return all(
        isinstance(each, Completed) or (isinstance(each, Dispatchable) and each.ground is DispatchGround.FIRST_ATTEMPT)
        for each in plan.nodes
    )
