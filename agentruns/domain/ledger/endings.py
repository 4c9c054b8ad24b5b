"""The commits that a worker ends a drive with: a wait, a success, a failure, a confirmed cancellation."""

from __future__ import annotations

from collections import Counter

from attrs import frozen

from agentruns.domain.digests import Digest
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.ids import CheckpointId, EventId
from agentruns.domain.ledger.bodies import BodyRow
from agentruns.domain.ledger.classify import Exhausted, Failed, InFlight, classify
from agentruns.domain.ledger.commit import CommitBuilder, DraftedCommit
from agentruns.domain.ledger.data import (
    BarrierSucceeded,
    BarrierWaiting,
    CancellationConfirmed,
    EventData,
    RegisteredWait,
    RunFailed,
)
from agentruns.domain.ledger.outcomes import StoredCancellation, StoredFailure, StoredOutcome, StoredSuccess
from agentruns.domain.ledger.requests import abandoned, settlements
from agentruns.domain.ledger.rows import CheckpointRow, OutcomeRow, WaitRow
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import FencingEpoch
from agentruns.domain.timestamps import Timestamp


@frozen(kw_only=True)
class WaitDraft:
    """Let a run sleep. Relative instants count from the stamp.

    Attributes:
        state: whose barrier waits.
        epoch: of the live fence.
    """

    state: RunState
    graph: ExecutableGraph
    epoch: FencingEpoch
    event_id: EventId
    checkpoint_id: CheckpointId

    def build(self, stamp: Timestamp) -> DraftedCommit:
        """Build the commit at a stamp.

        Raises:
            RefusedError: a rule says no; nothing has been written.
        """
        builder = CommitBuilder(before=self.state, graph=self.graph, epoch=int(self.epoch), stamp=stamp)
        plan = self.state.barrier(self.graph)
        registrations = [wait.registered_at(stamp) for wait in plan.waits]
        checkpoint = self.state.successor(plan, self.checkpoint_id)
        data = BarrierWaiting(
            superstep=self.state.superstep,
            checkpoint_digest=checkpoint.digest,
            revision=self.state.revision.next(),
            waits=tuple(RegisteredWait(wait_id=each.wait_id, digest=each.digest) for each in registrations),
        )
        bodies = {each.digest: BodyRow.of(each) for each in registrations}
        bodies[checkpoint.digest] = BodyRow.of_state(self.checkpoint_id, plan.state)
        event = builder.append(self.event_id, data, bodies)
        builder.checkpoint = CheckpointRow.of(builder.state)
        builder.waits.extend(WaitRow.of(each, event.sequence) for each in registrations)
        return builder.finish()


@frozen(kw_only=True)
class SuccessDraft:
    """End a run with its output.

    Attributes:
        state: whose barrier is terminal.
        epoch: of the live fence.
        outcome: the output, with artifacts and usage that evidence gave.
    """

    state: RunState
    graph: ExecutableGraph
    epoch: FencingEpoch
    event_id: EventId
    checkpoint_id: CheckpointId
    outcome: StoredSuccess

    def build(self, stamp: Timestamp) -> DraftedCommit:
        """Build the commit at a stamp.

        Raises:
            RefusedError: a rule says no; nothing has been written.
        """
        builder = CommitBuilder(before=self.state, graph=self.graph, epoch=int(self.epoch), stamp=stamp)
        succeed(builder, self.graph, event_id=self.event_id, checkpoint_id=self.checkpoint_id, outcome=self.outcome)
        return builder.finish()


@frozen(kw_only=True)
class FailureDraft:
    """End a run by a failure.

    Attributes:
        graph: needed by a worker only.
        epoch: of the live fence; ``None`` for the control plane, whose ground is an expired interrupt.
    """

    state: RunState
    graph: ExecutableGraph | None = None
    epoch: FencingEpoch | None
    event_id: EventId
    outcome: StoredFailure

    def build(self, stamp: Timestamp) -> DraftedCommit:
        """Build the commit at a stamp.

        Raises:
            RefusedError: a rule says no; nothing has been written.
        """
        epoch = 0 if self.epoch is None else int(self.epoch)
        builder = CommitBuilder(before=self.state, graph=self.graph, epoch=epoch, stamp=stamp)
        counts: Counter[type] = Counter()
        if self.epoch is not None:
            counts.update(type(each) for each in classify(self.state, epoch=self.epoch, now=stamp).nodes)
        data = RunFailed(
            superstep=self.state.superstep,
            revision=self.state.revision.next(),
            outcome_digest=self.outcome.digest,
            in_flight=counts[InFlight],
            failed=counts[Failed],
            exhausted=counts[Exhausted],
            abandoned=abandoned(self.state),
        )
        _end(builder, self.event_id, data, self.outcome, {})
        builder.settlements.extend(settlements(builder))
        return builder.finish()


@frozen(kw_only=True)
class CancellationDraft:
    """Confirm the cancellation of a run.

    Attributes:
        epoch: of the live fence.
        outcome: the usage, as far as it is known.
    """

    state: RunState
    epoch: FencingEpoch
    event_id: EventId
    outcome: StoredCancellation

    def build(self, stamp: Timestamp) -> DraftedCommit:
        """Build the commit at a stamp.

        Raises:
            RefusedError: a rule says no; nothing has been written.
        """
        builder = CommitBuilder(before=self.state, graph=None, epoch=int(self.epoch), stamp=stamp)
        data = CancellationConfirmed(
            superstep=self.state.superstep,
            revision=self.state.revision.next(),
            outcome_digest=self.outcome.digest,
        )
        _end(builder, self.event_id, data, self.outcome, {})
        return builder.finish()


def succeed(
    builder: CommitBuilder,
    graph: ExecutableGraph,
    *,
    event_id: EventId,
    checkpoint_id: CheckpointId,
    outcome: StoredSuccess,
) -> None:
    """Append the barrier that ends a run with its output.

    Raises:
        RefusedError: a rule says no; nothing has been written.
    """
    state = builder.state
    plan = state.barrier(graph)
    checkpoint = state.successor(plan, checkpoint_id)
    data = BarrierSucceeded(
        superstep=state.superstep,
        checkpoint_digest=checkpoint.digest,
        revision=state.revision.next(),
        outcome_digest=outcome.digest,
    )
    _end(builder, event_id, data, outcome, {checkpoint.digest: BodyRow.of_state(checkpoint_id, plan.state)})
    builder.checkpoint = CheckpointRow.of(builder.state)


def _end(
    builder: CommitBuilder,
    event_id: EventId,
    data: EventData,
    outcome: StoredOutcome,
    bodies: dict[Digest, BodyRow],
) -> None:
    """Append the terminal event with its outcome."""
    event = builder.append(event_id, data, {**bodies, outcome.digest: BodyRow.of(outcome)})
    builder.outcome = OutcomeRow(kind="outcome", body=outcome.canonical, digest=outcome.digest, sequence=event.sequence)
