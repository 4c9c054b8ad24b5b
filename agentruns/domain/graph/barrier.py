"""The next step of a run: a pure function of its graph, its state and the results of one superstep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, unique

from attrs import field, frozen

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import Digest, DigestPurpose, digest_body
from agentruns.domain.graph.content import verify_content
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.judging import Verdict, judge, unavailable
from agentruns.domain.graph.nodes import GraphNode, ReadyNodes
from agentruns.domain.graph.reducing import reduced
from agentruns.domain.graph.results import NodeResult, RouteControl, TerminalControl, Update, WaitControl
from agentruns.domain.numbers import Superstep
from agentruns.domain.scalars import NodeId
from agentruns.domain.waits import MAXIMUM_WAITS, InterruptWait, TimerWait
from agentruns.errors import BarrierRejectedError, CorruptDataError, ExecutableGraphUnavailableError, InvalidValueError

#: Reasons that say nothing about the record, only about what ran in this process, with their name when it is read.
_RAISED = {"reducer_raised": "reducer", "validator_failed": "validator"}


@unique
class BarrierDisposition(Enum):
    """Say how a superstep ends: the next one begins, the run waits, or the graph is over."""

    CONTINUE = "continue"
    WAIT = "wait"
    TERMINAL = "terminal"


@frozen(kw_only=True)
class BarrierPlan:
    """Hold the decision about one superstep. It has no id: the successor's checkpoint id is chosen afterwards.

    Attributes:
        disposition: how the superstep ends.
        state: of the successor.
        ready_nodes: of the successor; empty exactly when the graph is over.
        waits: in the order of their nodes, then of the node's own; only when the run waits.
        output: only when the graph is over.
    """

    disposition: BarrierDisposition
    state: BoundedJson = field(repr=False)
    ready_nodes: ReadyNodes
    waits: tuple[InterruptWait | TimerWait, ...] = ()
    output: BoundedJson | None = field(default=None, repr=False)
    state_digest: Digest = field(init=False)

    @state_digest.default
    def _digest_of_state(self) -> Digest:
        return digest_body(DigestPurpose.STATE, self.state.data)


def plan_barrier(
    graph: ExecutableGraph,
    *,
    superstep: Superstep,
    state: BoundedJson,
    ready_nodes: ReadyNodes,
    results: Mapping[NodeId, NodeResult],
) -> BarrierPlan:
    """Decide what follows a superstep. Neither the order of results nor that of members in any JSON matters.

    Errors are those of a live barrier and name nodes, never data; :func:`as_read` gives those of a stored one.

    Raises:
        BarrierRejectedError: the run fails.
        CorruptDataError: what the results stand on contradicts the graph.
        ExecutableGraphUnavailableError: this process cannot decide now.
    """
    _check_base(graph, superstep=superstep, state=state, ready_nodes=ready_nodes)
    if results.keys() != set(ready_nodes):
        raise _corrupt("result_set_mismatch", tuple(sorted(results.keys() ^ set(ready_nodes))))
    ordered = [(graph.definition.node(node_id), results[node_id]) for node_id in ready_nodes]
    for node, result in ordered:
        _check_result(graph, node, result)
    disposition = _disposition(ordered)
    waits = _waits(ordered)
    successors = _successors(ordered, maximum=int(graph.definition.limits.maximum_parallelism))
    updates = [
        (node.node_id, result.state_change.data) for node, result in ordered if isinstance(result.state_change, Update)
    ]
    return BarrierPlan(
        disposition=disposition,
        state=reduced(graph, state, updates),
        ready_nodes=successors,
        waits=waits,
        output=next(
            (result.control.output for _, result in ordered if isinstance(result.control, TerminalControl)), None
        ),
    )


def as_read(error: BarrierRejectedError, graph: ExecutableGraph) -> CorruptDataError | ExecutableGraphUnavailableError:
    """Say what a rejected plan means when the barrier is stored: somebody has once planned it without complaint."""
    if error.reason in _RAISED:
        return unavailable(graph, _RAISED[error.reason])
    return _corrupt(error.reason, error.node_ids)


def _check_base(graph: ExecutableGraph, *, superstep: Superstep, state: BoundedJson, ready_nodes: ReadyNodes) -> None:
    definition = graph.definition
    if superstep >= definition.limits.maximum_supersteps:
        raise BarrierRejectedError(reason="superstep_limit_reached")
    if (
        (superstep.value == 0 and ready_nodes != definition.entry_nodes)
        or len(ready_nodes) > definition.limits.maximum_parallelism.value
        or not all(node_id in definition for node_id in ready_nodes)
    ):
        raise _corrupt("ready_set_invalid", ready_nodes.ids)
    verdict = judge(graph, definition.state_schema, state)
    if verdict is Verdict.FAILED:
        raise unavailable(graph, "validator")
    if verdict is Verdict.REJECTED:
        raise _corrupt("base_state_rejected", ready_nodes.ids)


def _check_result(graph: ExecutableGraph, node: GraphNode, result: NodeResult) -> None:
    try:
        verify_content(graph, node, result)
    except InvalidValueError as error:
        raise _corrupt(error.reason, (node.node_id,)) from error


def _disposition(ordered: Sequence[tuple[GraphNode, NodeResult]]) -> BarrierDisposition:
    """Let a terminal result stand only alone; otherwise one waiting node suspends the whole run."""
    terminal = tuple(node.node_id for node, result in ordered if isinstance(result.control, TerminalControl))
    if terminal and len(ordered) > 1:
        raise BarrierRejectedError(reason="terminal_not_exclusive", node_ids=terminal)
    if terminal:
        return BarrierDisposition.TERMINAL
    if any(isinstance(result.control, WaitControl) for _, result in ordered):
        return BarrierDisposition.WAIT
    if not ordered:
        raise BarrierRejectedError(reason="empty_successors")
    return BarrierDisposition.CONTINUE


def _waits(ordered: Sequence[tuple[GraphNode, NodeResult]]) -> tuple[InterruptWait | TimerWait, ...]:
    waiting = [(node.node_id, result.control) for node, result in ordered if isinstance(result.control, WaitControl)]
    if not waiting:
        return ()
    waits = tuple(wait for _, control in waiting for wait in control.waits)
    if len(waits) > MAXIMUM_WAITS or len({wait.wait_id for wait in waits}) != len(waits):
        raise BarrierRejectedError(reason="wait_batch_invalid", node_ids=tuple(node_id for node_id, _ in waiting))
    return waits


def _successors(ordered: Sequence[tuple[GraphNode, NodeResult]], *, maximum: int) -> ReadyNodes:
    chosen = sorted({node_id for node, result in ordered for node_id in _chosen(node, result)})
    if len(chosen) > maximum:
        raise BarrierRejectedError(
            reason="successor_parallelism_exceeded", node_ids=tuple(node.node_id for node, _ in ordered)
        )
    return ReadyNodes(tuple(chosen))


def _chosen(node: GraphNode, result: NodeResult) -> ReadyNodes:
    """Give the set that a checked result chooses; a terminal one chooses nothing."""
    control = result.control
    if isinstance(control, RouteControl):
        route = node.route(control.route_id)
        return ReadyNodes() if route is None else route.successors
    if isinstance(control, TerminalControl):
        return ReadyNodes()
    declared = node.wait_to if isinstance(control, WaitControl) else node.continue_to
    return declared or ReadyNodes()


def _corrupt(reason: str, node_ids: tuple[object, ...]) -> CorruptDataError:
    return CorruptDataError(component="barrier", reason=reason, node_ids=node_ids)
