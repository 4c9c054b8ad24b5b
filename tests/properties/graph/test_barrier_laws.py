"""Laws of barriers, over graphs and results that Hypothesis draws."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve, field, frozen
from hypothesis import given
from hypothesis import strategies as st

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import JsonTree
from agentruns.domain.graph.barrier import BarrierPlan, plan_barrier
from agentruns.domain.graph.check import check_result
from agentruns.domain.graph.definition import CompiledGraph, GraphNode, GraphReducerReference, ReadyNodes
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.reducers import GraphReducer, MergeReducer, NodeUpdate
from agentruns.domain.graph.results import NodeResult, Update
from agentruns.domain.graph.returns import Continue, Finish, Route, Suspend
from agentruns.domain.ids import WaitId
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.numbers import Superstep
from agentruns.domain.scalars import NodeId
from agentruns.domain.waits import NodeWait
from agentruns.errors import BarrierRejectedError, CorruptDataError, InvalidValueError
from agentruns.testing.graphs import chain, executable, graph_of, schemas_of
from agentruns.testing.samples import sample_id
from agentruns.testing.strategies.graphs import compiled_graphs

REDUCER = MergeReducer({"log": "append", "names": "union", "count": "add"}, default="last")
KEYWORDS: dict[str, dict[str, JsonTree]] = {
    "state": {"type": "object", "properties": {"bad": {"type": "string"}}},
    "update": {"type": "object", "properties": {"worse": False}},
    "output": {"type": ["string", "integer", "object"]},
}
SCHEMAS = schemas_of(keywords=KEYWORDS)
GRAPHS = compiled_graphs(reducer=REDUCER, keywords=KEYWORDS)

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1, 1) | st.text("aé\u2028\U0001f600", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abz\ue000\U0001f600", max_size=2), inner),
    max_leaves=6,
)
updates: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "log": st.lists(json_values, max_size=2),
        "names": st.lists(st.text("ab", max_size=2), max_size=2),
        "count": st.integers(-5, 5) | st.just("x"),
        "any": json_values,
        "bad": st.sampled_from(["ok", 1]),
    },
)


@frozen(kw_only=True)
class Superstepped:
    """Hold the inputs of a barrier; results are what nodes return."""

    graph: ExecutableGraph
    state: dict[str, JsonTree]
    ready: ReadyNodes
    returned: dict[NodeId, object]
    superstep: int

    def results(self) -> dict[NodeId, NodeResult]:
        return {
            node_id: check_result(self.graph, node_id=node_id, returned=each, invocations={})
            for node_id, each in self.returned.items()
        }


@frozen
class Counting:
    """Reduce by another reducer, and note each call."""

    inner: GraphReducer
    calls: list[list[NodeId]] = field(factory=list)

    @property
    def reference(self) -> GraphReducerReference:
        return self.inner.reference

    def reduce(self, state: JsonTree, updates: Sequence[NodeUpdate]) -> JsonTree:
        self.calls.append([update.node_id for update in updates])
        return self.inner.reduce(state, updates)


def wait(number: int) -> NodeWait:
    return NodeWait.timer(due_in=timedelta(seconds=number), id=sample_id(WaitId, number))


@st.composite
def legal_returns(draw: st.DrawFn, node: GraphNode) -> object:
    """Draw what a node may return: one of its declared controls, with or without an update."""
    update = draw(st.none() | updates)
    choices: list[object] = [Route(each.route_id, update) for each in node.routes]
    if node.continue_to is not None:
        choices.append(Continue(update))
    if node.wait_to is not None:
        numbers = draw(st.lists(st.integers(1, 40), min_size=1, max_size=3, unique=True))
        choices.append(Suspend(*map(wait, numbers), update=update))
    if node.terminal:
        choices.append(Finish(draw(st.integers(-9, 9) | st.text("ab", max_size=3)), update))
    return draw(st.sampled_from(choices))


@st.composite
def supersteps(draw: st.DrawFn) -> Superstepped:
    """Draw a graph, a state, a ready set and what its nodes legally return."""
    definition = draw(GRAPHS)
    if draw(st.booleans()):
        ready, superstep = definition.entry_nodes, 0
    else:
        chosen = draw(st.sets(st.sampled_from([node.node_id for node in definition.nodes]), min_size=1))
        ready, superstep = ReadyNodes(tuple(sorted(chosen))), 1
    returned = {node_id: draw(legal_returns(definition.node(node_id))) for node_id in ready}
    state = draw(updates.filter(lambda tree: tree.get("bad") != 1 and tree.get("count") != "x"))
    graph = executable(definition, REDUCER, schemas=SCHEMAS)
    return Superstepped(graph=graph, state=state, ready=ready, returned=returned, superstep=superstep)


def value(tree: JsonTree) -> BoundedJson:
    return BoundedJson.of(tree, JsonLimits.MAXIMUM)


def planned(
    inputs: Superstepped, results: dict[NodeId, NodeResult], state: BoundedJson | None = None
) -> BarrierPlan | tuple[str, tuple[object, ...]]:
    try:
        return plan_barrier(
            inputs.graph,
            superstep=Superstep(inputs.superstep),
            state=value(inputs.state) if state is None else state,
            ready_nodes=inputs.ready,
            results=results,
        )
    except BarrierRejectedError as error:
        return error.reason, error.node_ids


def turned(tree: Any) -> Any:
    """Insert the members of every object the other way round."""
    if isinstance(tree, dict):
        return {name: turned(tree[name]) for name in reversed(tree)}
    return [turned(each) for each in tree] if isinstance(tree, list) else tree


def turned_result(result: NodeResult) -> NodeResult:
    change = result.state_change
    return (
        evolve(result, state_change=Update(data=value(turned(change.data.value))))
        if isinstance(change, Update)
        else result
    )


@given(supersteps(), st.randoms(use_true_random=False))
def test_GRA_03_no_order_of_results_or_members_matters(inputs: Superstepped, shuffler: random.Random) -> None:
    results = inputs.results()
    found = planned(inputs, results)
    entries = list(results.items())
    shuffler.shuffle(entries)
    assert planned(inputs, dict(entries)) == found
    other = {node_id: turned_result(result) for node_id, result in entries}
    assert planned(inputs, other, value(turned(inputs.state))) == found


@given(supersteps())
def test_GRA_05_the_reducer_is_called_once_in_order_and_only_with_updates(inputs: Superstepped) -> None:
    results = inputs.results()
    counting = Counting(REDUCER)
    found = planned(evolve(inputs, graph=evolve(inputs.graph, reducer=counting)), results)
    with_update = [node_id for node_id in inputs.ready if isinstance(results[node_id].state_change, Update)]
    assert counting.calls in ([], [with_update])
    if isinstance(found, BarrierPlan):
        assert counting.calls == ([with_update] if with_update else [])
        assert with_update or found.state == value(inputs.state)


@given(supersteps())
def test_GRA_06_successors_are_declared_ones(inputs: Superstepped) -> None:
    found = planned(inputs, inputs.results())
    if isinstance(found, BarrierPlan):
        declared = {
            to
            for node_id in inputs.ready
            for _, successors in inputs.graph.definition.node(node_id).successor_sets()
            for to in successors
        }
        assert set(found.ready_nodes) <= declared


anything_returned = (
    st.none()
    | updates
    | json_values
    | st.builds(Continue, updates | json_values)
    | st.builds(Finish, json_values, st.none() | updates)
    | st.builds(Route, st.sampled_from(["n0.r0", "n0.r1", "n1.r0", "x"]), st.none() | updates)
    | st.lists(st.integers(1, 3), max_size=2).map(lambda numbers: Suspend(*map(wait, numbers)))
)


@given(GRAPHS, st.data())
def test_GRA_07_an_accepted_result_passes_the_barrier_s_check(definition: CompiledGraph, data: st.DataObject) -> None:
    graph = executable(definition, REDUCER, schemas=SCHEMAS)
    node = data.draw(st.sampled_from(definition.nodes))
    returned = data.draw(anything_returned)
    try:
        result = check_result(graph, node_id=node.node_id, returned=returned, invocations={})
    except InvalidValueError:
        return
    inputs = Superstepped(
        graph=graph, state={}, ready=ReadyNodes((node.node_id,)), returned={node.node_id: returned}, superstep=1
    )
    found = planned(inputs, {node.node_id: result})
    assert isinstance(found, BarrierPlan) or found[0] in {"reducer_rejected", "reduced_state_rejected"}


def test_GRA_07_the_barrier_s_check_refuses_what_was_never_accepted() -> None:
    definition = graph_of(chain("a"), reducer=REDUCER, keywords=KEYWORDS)
    graph = executable(definition, REDUCER, schemas=SCHEMAS)
    accepted = check_result(graph, node_id=NodeId("a"), returned=Finish(1), invocations={})
    inputs = Superstepped(graph=graph, state={}, ready=ReadyNodes.of("a"), returned={}, superstep=0)
    assert isinstance(planned(inputs, {NodeId("a"): accepted}), BarrierPlan)
    with pytest.raises(CorruptDataError) as caught:
        planned(inputs, {NodeId("a"): evolve(accepted, state_change=Update(data=value({"worse": 1})))})
    assert caught.value.reason == "update_rejected"
