"""Ready sets and the shape of nodes."""

from __future__ import annotations

import pytest

from agentruns.domain.graph.definition import GraphNode, GraphRoute, ReadyNodes
from agentruns.domain.scalars import NodeId, RouteId
from agentruns.domain.wire import encode, from_wire, to_wire
from agentruns.errors import DefinitionError, InvalidValueError


def refused_shape(**members: object) -> tuple[str, NodeId | None, RouteId | None, int | None, int | None]:
    with pytest.raises(DefinitionError) as caught:
        GraphNode(node_id=NodeId("a"), **members)  # type: ignore[arg-type]  # members of a test
    error = caught.value
    assert error.kind == "graph"
    return error.reason, error.node_id, error.route_id, error.limit, error.actual  # type: ignore[return-value]  # ids


def route(name: str, *successors: str) -> GraphRoute:
    return GraphRoute(route_id=RouteId(name), successors=ReadyNodes.of(*successors))


def test_ready_nodes_are_sorted_by_bytes() -> None:
    ready = ReadyNodes.of("b", NodeId("a"), "B", "a.1")
    assert [str(each) for each in ready] == ["B", "a", "a.1", "b"]
    assert len(ready) == 4
    assert NodeId("a") in ready
    assert NodeId("c") not in ready
    assert "a" not in ready


def test_ready_nodes_stand_as_an_array() -> None:
    ready = ReadyNodes.of("b", "a")
    assert to_wire(ready) == ["a", "b"]
    assert encode(ready) == b'["a","b"]'
    assert from_wire(["a", "b"], ReadyNodes) == ready


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        (["a", "a"], "duplicate"),
        (["b", "a"], "unsorted"),
        ([1], "wrong_type"),
        ({"ids": ["a"]}, "not_an_array"),
        (["-"], "invalid_format"),
    ],
)
def test_ready_nodes_are_refused_on_the_wire(tree: object, reason: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        from_wire(tree, ReadyNodes)  # type: ignore[call-overload]  # a hostile tree
    assert caught.value.reason == reason


def test_ready_nodes_never_merge_a_duplicate() -> None:
    with pytest.raises(InvalidValueError) as caught:
        ReadyNodes.of("a", "b", "a")
    assert (caught.value.type_name, caught.value.reason) == ("ReadyNodes", "duplicate")


def test_ready_nodes_hold_at_most_1024() -> None:
    ids = [f"n{number:04}" for number in range(1025)]
    assert len(ReadyNodes.of(*ids[:1024])) == 1024
    with pytest.raises(InvalidValueError) as caught:
        ReadyNodes.of(*ids)
    assert caught.value.reason == "too_long"


@pytest.mark.parametrize("ids", [["a"], ("a",), (NodeId("a"), "b"), (RouteId("a"),)])
def test_ready_nodes_take_node_ids_only(ids: object) -> None:
    with pytest.raises(TypeError, match="ReadyNodes takes a tuple of NodeId"):
        ReadyNodes(ids)  # type: ignore[arg-type]  # what is refused


def test_a_node_declares_at_least_one_control() -> None:
    assert refused_shape() == ("no_control", NodeId("a"), None, None, None)


@pytest.mark.parametrize("control", ["continue_to", "wait_to"])
def test_an_empty_successor_set_is_refused(control: str) -> None:
    assert refused_shape(**{control: ReadyNodes()}) == ("empty_successors", NodeId("a"), None, None, None)


def test_an_empty_route_is_refused_by_name_before_their_number() -> None:
    routes = (*(route(f"r{number:03}", "a") for number in range(257)), route("s"))
    assert refused_shape(routes=routes) == ("empty_successors", NodeId("a"), RouteId("s"), None, None)


def test_a_node_has_at_most_256_routes() -> None:
    routes = tuple(route(f"r{number:03}", "a") for number in range(257))
    assert len(GraphNode(node_id=NodeId("a"), routes=routes[:256]).routes) == 256
    routes = (*routes, routes[0])
    assert refused_shape(routes=routes) == ("too_many_node_routes", NodeId("a"), None, 256, 258)


def test_a_route_id_is_unique_in_a_node() -> None:
    routes = (route("x", "a"), route("r", "a"), route("x", "b"))
    assert refused_shape(routes=routes) == ("duplicate_route", NodeId("a"), RouteId("x"), None, None)


def test_routes_are_never_sorted_in_silence() -> None:
    with pytest.raises(InvalidValueError) as caught:
        GraphNode(node_id=NodeId("a"), routes=(route("s", "a"), route("r", "a")))
    assert (caught.value.type_name, caught.value.reason) == ("GraphNode", "unsorted")


def test_members_have_exactly_their_classes() -> None:
    with pytest.raises(InvalidValueError) as caught:
        GraphNode(node_id=NodeId("a"), terminal=1)  # type: ignore[arg-type]  # what is refused
    assert (caught.value.reason, caught.value.path) == ("wrong_type", ("terminal",))
    with pytest.raises(InvalidValueError) as caught:
        GraphRoute(route_id=NodeId("a"), successors=ReadyNodes())  # type: ignore[arg-type]  # what is refused
    assert (caught.value.reason, caught.value.path) == ("wrong_type", ("route_id",))


def test_a_node_finds_its_routes_and_sets() -> None:
    node = GraphNode.of("a", continue_to=["c", "b"], routes={"s": ["d"], "r": ["e", "d"]}, wait_to=["f"])
    assert [each.route_id.text for each in node.routes] == ["r", "s"]
    assert node.route("r") == route("r", "d", "e")
    assert node.route(RouteId("s")) == route("s", "d")
    assert node.route("t") is None
    assert [(each and each.text, [str(to) for to in to_set]) for each, to_set in node.successor_sets()] == [
        (None, ["b", "c"]),
        ("r", ["d", "e"]),
        ("s", ["d"]),
        (None, ["f"]),
    ]


@pytest.mark.parametrize(
    ("node", "is_boundary"),
    [
        (GraphNode.of("a", continue_to=["a"]), False),
        (GraphNode.of("a", routes={"r": ["a"]}), False),
        (GraphNode.of("a", wait_to=["a"]), True),
        (GraphNode.of(NodeId("a"), terminal=True), True),
    ],
)
def test_a_boundary_is_an_end_or_a_wait(node: GraphNode, is_boundary: bool) -> None:  # noqa: FBT001  # a parameter
    assert node.is_boundary is is_boundary
    assert list(GraphNode.of("a", terminal=True).successor_sets()) == []
