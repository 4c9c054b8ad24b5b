"""What may happen next to each ready node of a run."""

from __future__ import annotations

from enum import Enum, unique
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import field, frozen

from agentruns.domain.failure import Failure
from agentruns.domain.graph.bindings import InvocationStatus
from agentruns.domain.ledger.event import JournalHead
from agentruns.domain.ledger.records import AttemptStatus, NodeAttempt
from agentruns.domain.ledger.run_data import MAX_ATTEMPTS
from agentruns.domain.numbers import FencingEpoch, Superstep
from agentruns.domain.scalars import NodeId
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import DatabaseClockRegressionError, LeaseLostError, RunNotRunnableError

if TYPE_CHECKING:
    from agentruns.domain.ledger.state import RunState

_SECOND: Final = 1_000_000
_SHORTEST_DELAY: Final = _SECOND
_LONGEST_DELAY: Final = 300 * _SECOND


@unique
class DispatchGround(Enum):
    """Say why a node may be started."""

    FIRST_ATTEMPT = "first_attempt"
    SUPERSEDED_ATTEMPT = "superseded_attempt"
    SAFE_RETRY = "safe_retry"


@frozen(kw_only=True)
class Completed:
    """The node has a result."""

    node_id: NodeId


@frozen(kw_only=True)
class Dispatchable:
    """The node may be started, as the attempt of that number."""

    node_id: NodeId
    ground: DispatchGround
    attempt: int


@frozen(kw_only=True)
class InFlight:
    """The node is under way under this very epoch and is never started again under it."""

    node_id: NodeId


@frozen(kw_only=True)
class Failed:
    """The node failed for good."""

    node_id: NodeId
    failure: Failure = field(repr=False)


@frozen(kw_only=True)
class Exhausted:
    """The node has no attempt left; without a failure when its last one was left by a dead worker."""

    node_id: NodeId
    failure: Failure | None = field(repr=False)


@frozen(kw_only=True)
class Deferred:
    """The node may be started from an instant on."""

    node_id: NodeId
    not_before: Timestamp


ReadyNodeClass: TypeAlias = Completed | Dispatchable | InFlight | Failed | Exhausted | Deferred


@frozen(kw_only=True)
class ReadyNodesPlan:
    """Put each ready node into one class. A plan is no authority to run anything: only a committed start is.

    Attributes:
        head: of the state that was classified.
        epoch: of the live fence.
        observed_at: the database's instant.
        nodes: in the order of their ids.
    """

    head: JournalHead
    superstep: Superstep
    epoch: FencingEpoch
    observed_at: Timestamp
    nodes: tuple[ReadyNodeClass, ...]

    @property
    def is_barrier_ready(self) -> bool:
        """Whether every ready node has a result."""
        return all(isinstance(each, Completed) for each in self.nodes)

    @property
    def earliest_deferred_at(self) -> Timestamp | None:
        """The first instant from which a node that is deferred may be started."""
        return min((each.not_before for each in self.nodes if isinstance(each, Deferred)), default=None)


def classify(state: RunState, *, epoch: FencingEpoch, now: Timestamp) -> ReadyNodesPlan:
    """Classify the ready nodes of a run for the holder of a fence at the database's instant ``now``.

    Raises:
        LeaseLostError: ``stale_fence``: the run has seen a higher epoch.
        DatabaseClockRegressionError: ``now`` lies before the head.
        RunNotRunnableError: ``no_checkpoint``: there is nothing to classify.
    """
    head, checkpoint = state.head, state.checkpoint
    if head is None or checkpoint is None:
        raise RunNotRunnableError(reason="no_checkpoint", tenant_id=state.tenant_id, run_id=state.run_id)
    if epoch.value < state.epoch:
        raise LeaseLostError(reason="stale_fence", tenant_id=state.tenant_id, run_id=state.run_id)
    if now < head.recorded_at:
        raise DatabaseClockRegressionError(observed=now, recorded=head.recorded_at)
    held = _held(state, now)
    nodes = (_class(node_id, state.nodes.get(node_id), epoch.value, now) for node_id in checkpoint.ready_nodes)
    return ReadyNodesPlan(
        head=head,
        superstep=state.superstep,
        epoch=epoch,
        observed_at=now,
        nodes=tuple(_holding_back(each, held) for each in nodes),
    )


def _class(node_id: NodeId, last: NodeAttempt | None, epoch: int, now: Timestamp) -> ReadyNodeClass:
    if last is None:
        return Dispatchable(node_id=node_id, ground=DispatchGround.FIRST_ATTEMPT, attempt=1)
    if last.status is AttemptStatus.SUCCEEDED:
        return Completed(node_id=node_id)
    if last.is_executing_under(epoch):
        return InFlight(node_id=node_id)
    return _class_after(last, now)


def _class_after(last: NodeAttempt, now: Timestamp) -> ReadyNodeClass:
    """Classify a node whose last attempt failed, or was left by a dead worker."""
    node_id, gate = last.node_id, last.retry_not_before
    if last.failure is not None and gate is None:
        return Failed(node_id=node_id, failure=last.failure)
    if last.attempt == MAX_ATTEMPTS:
        return Exhausted(node_id=node_id, failure=last.failure)
    if gate is not None and now < gate:
        return Deferred(node_id=node_id, not_before=gate)
    ground = DispatchGround.SUPERSEDED_ATTEMPT if gate is None else DispatchGround.SAFE_RETRY
    return Dispatchable(node_id=node_id, ground=ground, attempt=last.attempt + 1)


def _held(state: RunState, now: Timestamp) -> dict[NodeId, Timestamp]:
    """Find the nodes that own a tool call of unknown effect, and until when each is held back.

    The longer nobody has known, the longer the pause; of several calls the one that has waited longest decides.
    """
    held: dict[NodeId, Timestamp] = {}
    for call in state.invocations.values():
        if call.status is InvocationStatus.UNKNOWN:
            age = now.micros - call.changed_at.micros
            until = now.plus_micros(min(max(age, _SHORTEST_DELAY), _LONGEST_DELAY))
            held[call.node_id] = max(until, held.get(call.node_id, until))
    return held


def _holding_back(each: ReadyNodeClass, held: dict[NodeId, Timestamp]) -> ReadyNodeClass:
    if isinstance(each, Dispatchable) and each.node_id in held:
        return Deferred(node_id=each.node_id, not_before=held[each.node_id])
    return each
