"""The commit of a superstep: completions, a barrier whose successor begins at once, and starts, in this order.

Or completions and the barrier that ends the run.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from agentruns.domain.graph.barrier import BarrierDisposition, BarrierPlan
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.results import NodeFailure, NodeResult, WaitControl
from agentruns.domain.ids import AttemptId, CheckpointId, EventId
from agentruns.domain.ledger.bodies import BodyRow
from agentruns.domain.ledger.commit import CommitBuilder, DraftedCommit
from agentruns.domain.ledger.data import (
    BarrierContinued,
    EventData,
    NodeAttemptFailed,
    NodeAttemptStarted,
    NodeAttemptSucceeded,
)
from agentruns.domain.ledger.endings import succeed
from agentruns.domain.ledger.outcomes import StoredSuccess
from agentruns.domain.ledger.rows import CheckpointRow, ResultRow, StartRow
from agentruns.domain.ledger.rules_nodes import retry_instant
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import FencingEpoch
from agentruns.domain.scalars import NodeId
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import InvariantError


@frozen(kw_only=True)
class Completion:
    """End the attempt of a node that is under way."""

    node_id: NodeId
    event_id: EventId
    body: NodeResult | NodeFailure


@frozen(kw_only=True)
class BarrierIds:
    """Name a barrier and the checkpoint that it makes."""

    event_id: EventId
    checkpoint_id: CheckpointId


@frozen(kw_only=True)
class Ending:
    """Name the barrier that ends the run, and its checkpoint.

    Attributes:
        success: gives what the run ends with, for the state that the completions lead to and the stamp; the same for
            the same. ``None`` where the run cannot end with this commit: then it is left as the completions leave it.
    """

    event_id: EventId
    checkpoint_id: CheckpointId
    success: Callable[[RunState, Timestamp], StoredSuccess | None]


@frozen(kw_only=True)
class Start:
    """Start the next attempt of a node."""

    node_id: NodeId
    event_id: EventId
    attempt_id: AttemptId


@frozen(kw_only=True)
class SuperstepDraft:
    """Fix everything about a commit of a worker but its stamp.

    Attributes:
        state: at whose head the commit stands.
        graph: the run's.
        epoch: of the live fence.
        completions: in the order of their nodes.
        barrier: there when the next superstep begins with this commit.
        plan: what :meth:`planned` gave; without it the barrier is planned while building. Without a barrier it is kept
            with the state that the completions lead to.
        ending: there when the run may end with this commit.
        starts: in the order of their nodes.
    """

    state: RunState
    graph: ExecutableGraph
    epoch: FencingEpoch
    completions: tuple[Completion, ...] = ()
    barrier: BarrierIds | None = None
    plan: BarrierPlan | None = None
    ending: Ending | None = None
    starts: tuple[Start, ...] = ()

    def build(self, stamp: Timestamp) -> DraftedCommit:
        """Build the commit at a stamp; the same stamp gives the same commit.

        Raises:
            RefusedError: a rule says no; nothing has been written.
            ExecutableGraphUnavailableError: this process cannot plan the barrier.
        """
        builder = self._builder(stamp)
        for completion in self.completions:
            _complete(builder, completion)
        if self.plan is not None:
            builder.state.keep_plan(self.graph, self.plan)
        if self.barrier is not None:
            self._continue(builder, self.barrier)
        if self.ending is not None:
            self._end(builder, self.ending)
        for start in self.starts:
            _start(builder, start)
        return builder.finish()

    @property
    def size(self) -> int:
        """Bytes of the bodies that the commit brings."""
        size, plan = sum(len(each.body.canonical) for each in self.completions), self.plan
        if plan is None or (self.barrier is None and self.ending is None):
            return size
        return size + plan.state.size + (0 if plan.output is None else plan.output.size)

    @property
    def completes_superstep(self) -> bool:
        """Whether every ready node has a result once the completions are committed."""
        checkpoint, results = self.state.checkpoint, self.state.results
        ended = {each.node_id for each in self.completions if isinstance(each.body, NodeResult)}
        return checkpoint is not None and all(
            node_id in ended or node_id in results for node_id in checkpoint.ready_nodes
        )

    def planned(self) -> BarrierPlan:
        """Plan the barrier over the state with the completions: no stamp matters, and the reducer runs once.

        Raises:
            BarrierRejectedError: the run fails.
            CorruptDataError: what the results stand on contradicts the graph.
            ExecutableGraphUnavailableError: this process cannot decide now.
        """
        if self.plan is not None:
            return self.plan
        completed = {each.node_id: each.body for each in self.completions if isinstance(each.body, NodeResult)}
        return self.state.barrier(self.graph, completed)

    def _builder(self, stamp: Timestamp) -> CommitBuilder:
        return CommitBuilder(before=self.state, graph=self.graph, epoch=int(self.epoch), stamp=stamp)

    def _end(self, builder: CommitBuilder, ending: Ending) -> None:
        outcome = ending.success(builder.state, builder.stamp)
        if outcome is not None:
            succeed(
                builder,
                self.graph,
                event_id=ending.event_id,
                checkpoint_id=ending.checkpoint_id,
                outcome=outcome,
            )

    def _continue(self, builder: CommitBuilder, ids: BarrierIds) -> None:
        plan = builder.state.barrier(self.graph)
        if plan.disposition is not BarrierDisposition.CONTINUE:
            raise InvariantError(reason="barrier:disposition")
        row = BodyRow.of_state(ids.checkpoint_id, plan.state)
        digest = builder.state.successor(plan, ids.checkpoint_id).digest
        data = BarrierContinued(superstep=builder.state.superstep, checkpoint_digest=digest)
        builder.append(ids.event_id, data, {digest: row})
        builder.checkpoint = CheckpointRow.of(builder.state)


def _complete(builder: CommitBuilder, completion: Completion) -> None:
    last = builder.state.nodes.get(completion.node_id)
    if last is None:
        raise InvariantError(reason="attempt_history")
    body, superstep = completion.body, builder.state.superstep
    gate = retry_instant(body.failure, builder.stamp) if isinstance(body, NodeFailure) else None
    event = builder.append(
        completion.event_id, _completion_data(builder, completion, last.attempt, gate), {body.digest: BodyRow.of(body)}
    )
    row = ResultRow(
        superstep=superstep,
        node_id=completion.node_id,
        attempt=last.attempt,
        status="succeeded" if isinstance(body, NodeResult) else "failed",
        body=body.canonical,
        digest=body.digest,
        retry_not_before=gate,
        sequence=event.sequence,
    )
    builder.results.append(row)
    if isinstance(body, NodeResult) and isinstance(body.control, WaitControl):
        builder.wait_ids.extend(wait.wait_id for wait in body.control.waits)


def _completion_data(builder: CommitBuilder, completion: Completion, attempt: int, gate: Timestamp | None) -> EventData:
    superstep, digest = builder.state.superstep, completion.body.digest
    if isinstance(completion.body, NodeResult):
        return NodeAttemptSucceeded(
            superstep=superstep, node_id=completion.node_id, attempt=attempt, result_digest=digest
        )
    return NodeAttemptFailed(
        superstep=superstep,
        node_id=completion.node_id,
        attempt=attempt,
        result_digest=digest,
        retry_not_before=gate,
    )


def _start(builder: CommitBuilder, start: Start) -> None:
    last, superstep = builder.state.nodes.get(start.node_id), builder.state.superstep
    attempt = 1 if last is None else last.attempt + 1
    data = NodeAttemptStarted(superstep=superstep, node_id=start.node_id, attempt=attempt, attempt_id=start.attempt_id)
    event = builder.append(start.event_id, data)
    row = StartRow(
        superstep=superstep,
        node_id=start.node_id,
        attempt=attempt,
        attempt_id=start.attempt_id,
        sequence=event.sequence,
    )
    builder.starts.append(row)
    gate = None if last is None else last.retry_not_before
    if gate is not None and (builder.gate is None or gate > builder.gate):
        builder.gate = gate
