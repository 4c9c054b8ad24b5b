"""Every reason for which a graph does not compile, and the order of the checks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agentruns.domain.graph import compile as compiling
from agentruns.domain.graph.definition import GraphExecutionLimits, GraphNode
from agentruns.domain.scalars import NodeId, RouteId
from agentruns.errors import DefinitionError, InvalidValueError
from agentruns.testing.graphs import chain, graph_of


def refusal(nodes: Sequence[GraphNode], *, entry: Sequence[str] = ("a",), parallelism: int = 2) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        graph_of(nodes, entry=entry, maximum_parallelism=parallelism)
    assert caught.value.kind == "graph"
    return caught.value


def reason(nodes: Sequence[GraphNode], *, entry: Sequence[str] = ("a",), parallelism: int = 2) -> tuple[object, ...]:
    error = refusal(nodes, entry=entry, parallelism=parallelism)
    return tuple(
        each for each in (error.reason, error.node_id, error.route_id, error.limit, error.actual) if each is not None
    )


A = GraphNode.of("a", terminal=True)


def test_at_most_1024_nodes_before_duplicate_routes() -> None:
    nodes = [GraphNode.of(f"n{number:04}", routes={"same": ["n0000"]}) for number in range(1025)]
    assert reason(nodes) == ("too_many_nodes", 1024, 1025)
    assert reason(nodes[:1024]) == ("duplicate_route", NodeId("n0001"), RouteId("same"))


def test_too_many_routes_before_duplicate_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "MAXIMUM_ROUTES", 1)
    nodes = [GraphNode.of("a", routes={"r": ["a"]}), GraphNode.of("b", routes={"r": ["a"]})]
    assert reason(nodes) == ("too_many_routes", 1, 2)


def test_the_most_routes_are_those_of_1024_full_nodes() -> None:
    assert compiling.MAXIMUM_ROUTES == 1024 * 256


def test_a_route_is_unique_in_the_graph_before_nodes_are() -> None:
    nodes = [GraphNode.of("b", routes={"r": ["a"]}), A, A, GraphNode.of("c", routes={"r": ["a"]})]
    assert reason(nodes) == ("duplicate_route", NodeId("c"), RouteId("r"))


def test_a_node_is_unique_before_the_entries_are_looked_at() -> None:
    assert reason([A, A], entry=()) == ("duplicate_node", NodeId("a"))


def test_a_graph_has_a_node_before_it_has_an_entry() -> None:
    assert reason([], entry=()) == ("empty_nodes",)


def test_a_graph_has_an_entry() -> None:
    assert reason([A], entry=()) == ("empty_entry_nodes",)


def test_entries_fit_into_the_parallelism_before_they_exist() -> None:
    assert reason([A], entry=("a", "x", "y")) == ("parallelism_exceeded", 2, 3)
    assert refusal([A], entry=("a", "x", "y")).node_id is None


def test_entries_exist_before_successors_are_looked_at() -> None:
    assert reason([GraphNode.of("a", continue_to=["x"])], entry=("a", "b")) == ("missing_entry_node", NodeId("b"))


def test_successors_fit_and_exist_set_by_set_in_the_order_of_nodes() -> None:
    wide = GraphNode.of("b", continue_to=["a", "b", "x"])
    assert reason([wide, A]) == ("parallelism_exceeded", NodeId("b"), 2, 3)
    missing = GraphNode.of("a", routes={"r": ["a"], "s": ["x"]}, wait_to=["a", "b", "x"])
    error = refusal([wide, missing])
    assert (error.reason, error.node_id, error.route_id) == ("missing_successor_node", NodeId("a"), RouteId("s"))
    assert error.findings == ("no node is called x",)


def test_a_route_too_wide_is_named() -> None:
    node = GraphNode.of("a", routes={"r": ["a", "x", "y"]})
    assert reason([node]) == ("parallelism_exceeded", NodeId("a"), RouteId("r"), 2, 3)


def test_every_node_is_reached_before_it_can_end() -> None:
    nodes = [GraphNode.of("a", continue_to=["a"]), GraphNode.of("c", terminal=True), GraphNode.of("b", terminal=True)]
    assert reason(nodes) == ("unreachable_node", NodeId("b"))


@pytest.mark.parametrize("control", ["continue_to", "wait_to"])
def test_nodes_are_reached_over_every_set(control: str) -> None:
    nodes = [GraphNode.of("a", terminal=True, **{control: ["b"]}), GraphNode.of("b", terminal=True)]  # type: ignore[arg-type]  # a set
    assert len(graph_of(nodes).nodes) == 2


def test_every_node_can_come_to_rest() -> None:
    nodes = [
        GraphNode.of("a", routes={"in": ["b"], "out": ["d"]}),
        GraphNode.of("b", continue_to=["c"]),
        GraphNode.of("c", continue_to=["b"]),
        GraphNode.of("d", terminal=True),
    ]
    assert reason(nodes) == ("no_boundary_path", NodeId("b"))


def test_cycles_are_legal_with_one_way_out() -> None:
    nodes = [GraphNode.of("a", continue_to=["b"]), GraphNode.of("b", continue_to=["a"], wait_to=["a"])]
    assert len(graph_of(nodes).nodes) == 2


def test_a_long_chain_needs_no_recursion() -> None:
    ids = [f"n{number:04}" for number in range(1024)]
    assert len(graph_of(chain(*ids), entry=ids[:1]).nodes) == 1024


def test_a_definition_is_at_most_2_mib() -> None:
    ids = [f"n{number:04}".ljust(128, "x") for number in range(1000)]
    nodes = [GraphNode.of(each, continue_to=ids[:17], terminal=True) for each in ids]
    error = refusal(nodes, entry=ids, parallelism=1000)
    assert (error.reason, error.limit) == ("definition_too_large", 2_097_152)
    assert error.actual is not None
    assert error.actual > 2_097_152


@pytest.mark.parametrize(
    ("member", "value"),
    [("maximum_supersteps", 0), ("maximum_parallelism", 0), ("maximum_parallelism", 1025)],
)
def test_limits_are_bounded(member: str, value: int) -> None:
    with pytest.raises(InvalidValueError) as caught:
        GraphExecutionLimits.of(**({"maximum_supersteps": 1, "maximum_parallelism": 1} | {member: value}))
    assert (caught.value.reason, caught.value.path) == ("out_of_range", (member,))
