"""Barriers: what follows a superstep, and every reason for which nothing may."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
from attrs import evolve, field, frozen

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import JsonTree
from agentruns.domain.graph.barrier import BarrierDisposition, BarrierPlan, as_read, plan_barrier
from agentruns.domain.graph.definition import GraphNode, GraphReducerReference, ReadyNodes
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.reducers import MergeReducer, NodeUpdate, ReplaceReducer
from agentruns.domain.graph.results import (
    ContinueControl,
    NodeControl,
    NodeResult,
    RouteControl,
    TerminalControl,
    Unchanged,
    Update,
    WaitControl,
)
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.numbers import Superstep
from agentruns.domain.scalars import NodeId, RouteId
from agentruns.domain.usage import BudgetUsage
from agentruns.domain.waits import NodeWait
from agentruns.errors import (
    BarrierRejectedError,
    CorruptDataError,
    DeploymentError,
    ExecutableGraphUnavailableError,
    ReducerRejectedError,
)
from agentruns.testing.graphs import executable_of, schemas_of

NODES = [
    GraphNode.of("a", continue_to=["c"], routes={"r": ["c", "d"]}, wait_to=["e"], terminal=True),
    GraphNode.of("b", continue_to=["d"], wait_to=["a"], terminal=True),
    GraphNode.of("c", continue_to=["a"]),
    GraphNode.of("d", continue_to=["e"]),
    GraphNode.of("e", continue_to=["b"], terminal=True),
]
#: Each level of a value doubles the work, so that the validator gives up on a deep one.
DOUBLING: dict[str, Any] = {
    "$ref": "#/$defs/each",
    "$defs": {"each": {"allOf": [{"items": {"$ref": "#/$defs/each"}}, {"items": {"$ref": "#/$defs/each"}}]}},
}
KEYWORDS: dict[str, Mapping[str, Any]] = {
    "state": {"type": ["object", "array"], "properties": {"n": {"type": "integer"}}},
    "update": {"properties": {"n": {"type": ["integer", "null"]}}},
    "output": {"type": "string"},
}
REFERENCE: GraphReducerReference = MergeReducer().reference


@frozen
class Reducer:
    """Answer by a function, and note each call."""

    answer: Callable[[JsonTree, Sequence[NodeUpdate]], JsonTree]
    calls: list[list[str]] = field(factory=list)
    reference: GraphReducerReference = field(default=REFERENCE)

    def reduce(self, state: JsonTree, updates: Sequence[NodeUpdate]) -> JsonTree:
        self.calls.append([str(update.node_id) for update in updates])
        return self.answer(state, updates)


def value(tree: Any) -> BoundedJson:
    return BoundedJson.of(tree, JsonLimits.MAXIMUM)


def deep() -> Any:
    tree: Any = 1
    for _ in range(20):
        tree = [tree]
    return tree


def result(control: NodeControl | None = None, update: Any = None) -> NodeResult:
    return NodeResult(
        state_change=Unchanged() if update is None else Update(data=value(update)),
        control=control or ContinueControl(),
        bindings=(),
        usage=BudgetUsage.zero(),
    )


def route(name: str) -> RouteControl:
    return RouteControl(route_id=RouteId(name))


def finish(output: Any = "done") -> TerminalControl:
    return TerminalControl(output=value(output))


def wait(*waits: Any) -> WaitControl:
    return WaitControl(waits=waits or (NodeWait.timer(due_in=timedelta(seconds=1)),))


@pytest.fixture(scope="module")
def graph() -> ExecutableGraph:
    return executable_of(NODES, entry=("a", "b"), keywords=KEYWORDS, maximum_parallelism=3, maximum_supersteps=9)


def plan(
    graph: ExecutableGraph,
    results: Mapping[str, NodeResult],
    *,
    state: Any = None,
    superstep: int = 1,
    ready: Sequence[str] | None = None,
) -> BarrierPlan:
    return plan_barrier(
        graph,
        superstep=Superstep(superstep),
        state=value({} if state is None else state),
        ready_nodes=ReadyNodes.of(*(results if ready is None else ready)),
        results={NodeId(name): each for name, each in results.items()},
    )


def corrupt(graph: ExecutableGraph, results: Mapping[str, NodeResult], **members: Any) -> tuple[str, list[str]]:
    with pytest.raises(CorruptDataError) as caught:
        plan(graph, results, **members)
    error = caught.value
    assert error.component == "barrier"
    return error.reason, [str(node_id) for node_id in error.node_ids]


def rejected(graph: ExecutableGraph, results: Mapping[str, NodeResult], **members: Any) -> tuple[str, list[str]]:
    with pytest.raises(BarrierRejectedError) as caught:
        plan(graph, results, **members)
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    return error.reason, [str(node_id) for node_id in error.node_ids]


def unavailable(graph: ExecutableGraph, results: Mapping[str, NodeResult], **members: Any) -> str:
    with pytest.raises(ExecutableGraphUnavailableError) as caught:
        plan(graph, results, **members)
    assert caught.value.graph == graph.digest
    return caught.value.reason


def with_reducer(graph: ExecutableGraph, answer: Callable[[Any, Any], Any]) -> tuple[ExecutableGraph, Reducer]:
    reducer = Reducer(answer)
    return evolve(graph, reducer=reducer), reducer


def raising(error: BaseException) -> Callable[[Any, Any], Any]:
    def reduce(_state: Any, _updates: Any) -> Any:
        raise error

    return reduce


def test_continue_and_route_join_their_sets(graph: ExecutableGraph) -> None:
    found = plan(graph, {"b": result(update={"y": 2}), "a": result(route("r"), {"x": 1})}, state={"n": 1}, superstep=0)
    assert found.disposition is BarrierDisposition.CONTINUE
    assert found.ready_nodes == ReadyNodes.of("c", "d")
    assert found.state == value({"n": 1, "x": 1, "y": 2})
    assert found.state_digest.hex == sha256(b'agentruns/state/v1\0{"n":1,"x":1,"y":2}').hexdigest()
    assert (found.waits, found.output) == ((), None)


def test_one_waiting_sibling_suspends_the_run(graph: ExecutableGraph) -> None:
    first = NodeWait.timer(due_in=timedelta(seconds=1))
    waits = [NodeWait.timer(due_in=timedelta(seconds=number)) for number in range(3)]
    results = {"d": result(), "b": result(wait(waits[2], waits[1])), "a": result(wait(first, waits[0]))}
    found = plan(graph, results)
    assert found.disposition is BarrierDisposition.WAIT
    assert found.ready_nodes == ReadyNodes.of("a", "e")
    assert found.waits == (first, waits[0], waits[2], waits[1])
    assert (found.state, found.output) == (value({}), None)


def test_a_sole_terminal_result_ends_the_graph(graph: ExecutableGraph) -> None:
    found = plan(graph, {"a": result(finish(), {"n": 2})}, state={"n": 1})
    assert found.disposition is BarrierDisposition.TERMINAL
    assert found.ready_nodes == ReadyNodes()
    assert found.output == value("done")
    assert found.state == value({"n": 2})


def test_without_update_the_reducer_is_not_called(graph: ExecutableGraph) -> None:
    executable, reducer = with_reducer(graph, raising(ValueError()))
    assert plan(executable, {"a": result(), "b": result()}, state={"n": 1}).state == value({"n": 1})
    assert reducer.calls == []


def test_the_reducer_is_called_once_in_the_order_of_nodes(graph: ExecutableGraph) -> None:
    def answer(state: Any, updates: Any) -> Any:
        values = [update.update.pop("n") for update in updates]
        state["n"] = values[0]
        return state

    executable, reducer = with_reducer(graph, answer)
    results = {"d": result(update={"n": 3}), "a": result(update={"n": 1}), "c": result()}
    assert plan(executable, results, state={"kept": 0}).state == value({"kept": 0, "n": 1})
    assert reducer.calls == [["a", "d"]]
    assert results["d"].state_change == Update(data=value({"n": 3}))


def test_1_the_limit_of_supersteps(graph: ExecutableGraph) -> None:
    assert plan(graph, {"a": result()}, superstep=8).ready_nodes == ReadyNodes.of("c")
    assert rejected(graph, {"x": result()}, superstep=9, state=5) == ("superstep_limit_reached", [])


@pytest.mark.parametrize(
    ("superstep", "ready"), [(0, ["a"]), (0, ["a", "b", "c"]), (1, ["a", "b", "c", "d"]), (1, ["a", "x"])]
)
def test_2_the_ready_set(graph: ExecutableGraph, superstep: int, ready: list[str]) -> None:
    found = corrupt(graph, {}, superstep=superstep, ready=ready, state=5)
    assert found == ("ready_set_invalid", ready)


def test_3_the_base_state(graph: ExecutableGraph) -> None:
    assert corrupt(graph, {}, ready=["a"], state={"n": "x"}) == ("base_state_rejected", ["a"])


@pytest.mark.parametrize(
    ("results", "missing"), [(["a"], ["b"]), (["a", "b", "c"], ["c"]), (["a", "c"], ["b", "c"]), ([], ["a", "b"])]
)
def test_4_results_cover_the_ready_set(graph: ExecutableGraph, results: list[str], missing: list[str]) -> None:
    bad = result(route("nowhere"))
    assert corrupt(graph, dict.fromkeys(results, bad), ready=["a", "b"]) == ("result_set_mismatch", missing)


@pytest.mark.parametrize(
    ("node", "bad", "reason"),
    [
        ("a", result(route("r"), {"n": "x"}), "update_rejected"),
        ("c", result(wait()), "control_undeclared"),
        ("c", result(finish()), "control_undeclared"),
        ("b", result(route("r")), "route_undeclared"),
        ("e", result(finish(5)), "output_rejected"),
    ],
)
def test_5_a_result_that_its_check_refuses(graph: ExecutableGraph, node: str, bad: NodeResult, reason: str) -> None:
    assert corrupt(graph, {"d": result(), node: bad}) == (reason, [node])


def test_6_a_terminal_result_stands_alone(graph: ExecutableGraph) -> None:
    results = {"a": result(finish()), "c": result(), "b": result(wait())}
    assert rejected(graph, results) == ("terminal_not_exclusive", ["a"])
    assert rejected(graph, {"a": result(finish()), "b": result(finish())}) == ("terminal_not_exclusive", ["a", "b"])


def test_6_nothing_follows_nothing(graph: ExecutableGraph) -> None:
    assert rejected(graph, {}) == ("empty_successors", [])


def test_6_siblings_bring_64_waits_with_distinct_ids(graph: ExecutableGraph) -> None:
    waits = [NodeWait.timer(due_in=timedelta(seconds=1)) for _ in range(65)]
    assert len(plan(graph, {"a": result(wait(*waits[:32])), "b": result(wait(*waits[32:64]))}).waits) == 64
    batch = {"a": result(wait(*waits[:32])), "b": result(wait(*waits[32:])), "c": result()}
    assert rejected(graph, batch) == ("wait_batch_invalid", ["a", "b"])
    same = {"a": result(wait(waits[0])), "b": result(wait(waits[0]))}
    assert rejected(graph, same) == ("wait_batch_invalid", ["a", "b"])


def test_7_successors_fit_into_the_parallelism() -> None:
    nodes = [
        GraphNode.of("a", continue_to=["c", "d"]),
        GraphNode.of("b", continue_to=["d", "e"]),
        *(GraphNode.of(name, terminal=True) for name in "cde"),
    ]
    executable, reducer = with_reducer(
        executable_of(nodes, entry=("a", "b"), maximum_parallelism=2), raising(ValueError())
    )
    results = {"a": result(update={}), "b": result(update={})}
    assert rejected(executable, results, superstep=0) == ("successor_parallelism_exceeded", ["a", "b"])
    assert reducer.calls == []


@pytest.mark.parametrize(
    ("error", "reason", "read"),
    [
        (ReducerRejectedError(code="no"), "reducer_rejected", None),
        (ValueError("canary"), "reducer_raised", "reducer"),
        (RecursionError(), "reducer_raised", "reducer"),
        (asyncio.CancelledError(), "reducer_raised", "reducer"),
        (BarrierRejectedError(reason="mine"), "reducer_raised", "reducer"),
    ],
)
def test_8_a_reducer_that_refuses_or_raises(
    graph: ExecutableGraph, error: BaseException, reason: str, read: str | None
) -> None:
    executable, _ = with_reducer(graph, raising(error))
    assert rejected(executable, {"a": result(update={}), "b": result()}) == (reason, ["a"])
    found = as_read(BarrierRejectedError(reason=reason, node_ids=(NodeId("a"),)), graph)
    if read is None:
        assert isinstance(found, CorruptDataError)
        assert (found.component, found.reason, found.node_ids) == ("barrier", reason, (NodeId("a"),))
    else:
        assert isinstance(found, ExecutableGraphUnavailableError)
        assert (found.reason, found.graph) == (read, graph.digest)


@pytest.mark.parametrize(
    ("error", "reason"), [(DeploymentError(reason="down"), "reducer"), (MemoryError(), "out_of_memory")]
)
def test_8_a_reducer_that_cannot_run_now(graph: ExecutableGraph, error: Exception, reason: str) -> None:
    executable, _ = with_reducer(graph, raising(error))
    assert unavailable(executable, {"a": result(update={})}) == reason


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_8_an_interrupt_of_the_process_passes(graph: ExecutableGraph, raised: type[BaseException]) -> None:
    executable, _ = with_reducer(graph, raising(raised()))
    with pytest.raises(raised):
        plan(executable, {"a": result(update={})})


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"n": "x"}, "reduced_state_rejected"),
        ("x", "reduced_state_rejected"),
        ({"n": {1}}, "reduced_state_rejected"),
        ({"n": 2**53}, "reduced_state_rejected"),
        (["x" * 1_000_000] * 3, "state_too_large"),
        ({"x": "y" * 1_048_577}, "state_too_large"),
    ],
)
def test_9_a_state_that_cannot_stand(graph: ExecutableGraph, answer: Any, reason: str) -> None:
    executable, _ = with_reducer(graph, lambda _state, _updates: answer)
    assert rejected(executable, {"a": result(update={}), "b": result()}) == (reason, ["a"])


def test_9_a_validator_that_gives_up(graph: ExecutableGraph) -> None:
    doubling = {"state": DOUBLING}
    executable = executable_of(NODES, entry=("a", "b"), keywords=doubling, reducer=ReplaceReducer())
    assert rejected(executable, {"a": result(update=deep())}) == ("validator_failed", ["a"])
    found = as_read(BarrierRejectedError(reason="validator_failed"), executable)
    assert isinstance(found, ExecutableGraphUnavailableError)
    assert found.reason == "validator"
    assert unavailable(executable, {"a": result()}, state=deep()) == "validator"
    update = executable_of(NODES, entry=("a", "b"), keywords={"update": DOUBLING})
    assert unavailable(update, {"a": result(update=deep())}) == "validator"
    assert graph.digest != executable.digest


def test_schemas_that_are_not_installed(graph: ExecutableGraph) -> None:
    bare = evolve(graph, schemas=schemas_of())
    assert unavailable(bare, {"a": result()}) == "schema"
    only_state = evolve(graph, schemas=schemas_of(keywords={"state": KEYWORDS["state"]}))
    assert plan(only_state, {"a": result()}).ready_nodes == ReadyNodes.of("c")
    assert unavailable(only_state, {"a": result(update={})}) == "schema"
    assert unavailable(only_state, {"a": result(finish())}) == "schema"


def test_a_plan_does_not_show_its_data(graph: ExecutableGraph) -> None:
    found = plan(graph, {"a": result(finish("canary"), {"canary": 1})})
    assert "canary" not in repr(found)
