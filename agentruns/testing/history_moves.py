"""What may happen next to a run of a random history: every move is one legal commit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.failure import RetryAdvice, SafeAfter
from agentruns.domain.graph.barrier import BarrierDisposition
from agentruns.domain.graph.bindings import settled_bindings
from agentruns.domain.graph.nodes import GraphNode
from agentruns.domain.graph.results import (
    ContinueControl,
    NodeControl,
    NodeFailure,
    NodeResult,
    RouteControl,
    TerminalControl,
    Unchanged,
    Update,
    WaitControl,
)
from agentruns.domain.ids import AttemptId, CheckpointId, EventId, WaitId
from agentruns.domain.ledger.classify import Dispatchable, Exhausted, Failed, InFlight, ReadyNodesPlan, classify
from agentruns.domain.ledger.counting import usage_with_output
from agentruns.domain.ledger.drafts import (
    BarrierIds,
    CancellationDraft,
    Completion,
    DraftedCommit,
    FailureDraft,
    Start,
    SuccessDraft,
    SuperstepDraft,
    WaitDraft,
)
from agentruns.domain.ledger.outcomes import StoredCancellation, StoredFailure, StoredSuccess
from agentruns.domain.numbers import DurationMillis
from agentruns.domain.scalars import NodeId
from agentruns.domain.status import RunStatus
from agentruns.domain.usage import BudgetUsage
from agentruns.domain.waits import AnyNodeWait, NodeWait
from agentruns.errors import BarrierRejectedError
from agentruns.testing.history_calls import call_moves
from agentruns.testing.history_waits import payload, request_moves, waiting_moves
from agentruns.testing.samples import failure

if TYPE_CHECKING:
    from agentruns.testing.histories import History

Move: TypeAlias = Callable[[], DraftedCommit]


def moves(history: History) -> list[Move]:
    """List what may happen now; empty when only time, or another worker, can help."""
    state = history.state
    if state.status is RunStatus.WAITING:
        return [*waiting_moves(history), *request_moves(history)]
    if state.status is RunStatus.CANCELLATION_REQUESTED:
        return call_moves(history) or _confirmations(history)
    plan = classify(state, epoch=history.epoch, now=history.now)
    return [*_node_moves(history, plan), *call_moves(history), *request_moves(history)]


def _node_moves(history: History, plan: ReadyNodesPlan) -> list[Move]:
    state, graph = history.state, history.graph
    if plan.is_barrier_ready:
        return [_barrier(history)]
    is_blocked = any(isinstance(each, Failed | Exhausted) for each in plan.nodes)
    is_at_limit = state.superstep >= graph.definition.limits.maximum_supersteps
    in_flight = [each.node_id for each in plan.nodes if isinstance(each, InFlight)]
    if (is_blocked or is_at_limit) and not in_flight:
        return [] if any(call.is_open for call in state.invocations.values()) else [partial(_fail, history)]
    startable = [] if is_at_limit else [each.node_id for each in plan.nodes if isinstance(each, Dispatchable)]
    return [
        *(partial(_start, history, node_id) for node_id in startable),
        *(partial(_complete, history, node_id) for node_id in in_flight if _may_succeed(history, node_id)),
        *(partial(_fail_attempt, history, node_id) for node_id in in_flight if _is_unlucky(history)),
    ]


def _is_unlucky(history: History) -> bool:
    """Let most attempts end well, so that runs come far."""
    return history.random.random() < 0.3  # noqa: PLR2004


def _start(history: History, node_id: NodeId) -> DraftedCommit:
    start = Start(node_id=node_id, event_id=history.mint(EventId), attempt_id=history.mint(AttemptId))
    return _draft(history, starts=(start,)).build(history.now)


def _complete(history: History, node_id: NodeId) -> DraftedCommit:
    node = history.graph.definition.node(node_id)
    is_unchanged = history.random.random() < 0.3  # noqa: PLR2004  # some nodes leave the state as it is
    result = NodeResult(
        state_change=Unchanged() if is_unchanged else Update(data=BoundedJson.of(history.update(history.random))),
        control=_control(history, node),
        bindings=settled_bindings(node_id, history.state.invocations),
        usage=BudgetUsage.of(output_bytes=history.random.randrange(3)),
    )
    completion = Completion(node_id=node_id, event_id=history.mint(EventId), body=result)
    return _draft(history, completions=(completion,)).build(history.now)


def _fail_attempt(history: History, node_id: NodeId) -> DraftedCommit:
    advice: RetryAdvice | None = None
    if history.random.random() < 0.9:  # noqa: PLR2004  # most failures may be repeated
        advice = SafeAfter(delay=DurationMillis(history.random.randrange(3000)))
    body = NodeFailure(failure=failure(retry_advice=advice), usage=BudgetUsage.of(input_bytes=1))
    completion = Completion(node_id=node_id, event_id=history.mint(EventId), body=body)
    return _draft(history, completions=(completion,)).build(history.now)


def _draft(
    history: History,
    *,
    completions: tuple[Completion, ...] = (),
    barrier: BarrierIds | None = None,
    starts: tuple[Start, ...] = (),
) -> SuperstepDraft:
    return SuperstepDraft(
        state=history.state,
        graph=history.graph,
        epoch=history.epoch,
        completions=completions,
        barrier=barrier,
        starts=starts,
    )


def _may_succeed(history: History, node_id: NodeId) -> bool:
    calls = history.state.invocations.values()
    return all(call.status.is_settled for call in calls if call.node_id == node_id)


def _control(history: History, node: GraphNode) -> NodeControl:
    random = history.random
    possible: list[Callable[[], NodeControl]] = [
        partial(RouteControl, route_id=route.route_id) for route in node.routes
    ]
    if node.continue_to is not None:
        possible.append(ContinueControl)
    if node.wait_to is not None:
        possible.append(lambda: WaitControl(waits=tuple(_wait(history) for _ in range(random.randrange(1, 4)))))
    if node.terminal:
        possible.append(lambda: TerminalControl(output=BoundedJson.of(history.update(random))))
    return random.choice(possible)()


def _wait(history: History) -> AnyNodeWait:
    random, wait_id = history.random, history.mint(WaitId)
    delay = timedelta(milliseconds=random.randrange(5000))
    if random.random() < 0.5:  # noqa: PLR2004  # as many timers as interrupts
        return NodeWait.timer(due_in=delay, id=wait_id)
    return NodeWait.interrupt("approval", request=payload(), expires_in=random.choice([None, delay]), id=wait_id)


def _barrier(history: History) -> Move:
    state, graph = history.state, history.graph
    try:
        plan = state.barrier(graph)
    except BarrierRejectedError:
        return partial(_fail, history)
    event_id, checkpoint_id = history.mint(EventId), history.mint(CheckpointId)
    if plan.disposition is BarrierDisposition.CONTINUE:
        draft = _draft(history, barrier=BarrierIds(event_id=event_id, checkpoint_id=checkpoint_id))
        return lambda: draft.build(history.now)
    if plan.disposition is BarrierDisposition.WAIT:
        wait = WaitDraft(state=state, graph=graph, epoch=history.epoch, event_id=event_id, checkpoint_id=checkpoint_id)
        return lambda: wait.build(history.now)
    output = plan.output or BoundedJson.of(None)
    success = SuccessDraft(
        state=state,
        graph=graph,
        epoch=history.epoch,
        event_id=event_id,
        checkpoint_id=checkpoint_id,
        outcome=StoredSuccess(output=output, artifacts=(), usage=usage_with_output(state.usage, output)),
    )
    return lambda: success.build(history.now)


def _fail(history: History) -> DraftedCommit:
    return FailureDraft(
        state=history.state,
        graph=history.graph,
        epoch=history.epoch,
        event_id=history.mint(EventId),
        outcome=StoredFailure(failure=failure(), usage=history.state.usage),
    ).build(history.now)


def _confirmations(history: History) -> list[Move]:
    draft = CancellationDraft(
        state=history.state,
        epoch=history.epoch,
        event_id=history.mint(EventId),
        outcome=StoredCancellation(usage=history.state.usage),
    )
    return [lambda: draft.build(history.now)]
