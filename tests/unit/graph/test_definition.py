"""Compiled graphs: their digest, their wire form and what they answer."""

from __future__ import annotations

from hashlib import sha256

import pytest
import rfc8785
from attrs import evolve

from agentruns.domain.graph.definition import CompiledGraph, GraphNode, ReadyNodes
from agentruns.domain.graph.reducers import GraphReducerReference, ReplaceReducer
from agentruns.domain.identity import GraphReference
from agentruns.domain.scalars import NodeId, RouteId
from agentruns.domain.wire import decode, encode, from_wire, to_wire
from agentruns.errors import DefinitionError, InvalidJsonError, InvalidValueError
from agentruns.testing.graphs import chain, graph_of
from agentruns.testing.samples import identity


def sample() -> CompiledGraph:
    node = GraphNode.of("b", continue_to=["c"], routes={"x": ["a", "b"], "w": ["c"]}, wait_to=["c"])
    return graph_of([node, GraphNode.of("a", continue_to=["b"]), GraphNode.of("c", terminal=True)])


def tree() -> dict[str, object]:
    wire = to_wire(sample())
    assert isinstance(wire, dict)
    return dict(wire)


def test_the_digest_is_that_of_all_other_members() -> None:
    members = tree()
    stated = members.pop("definition_digest")
    assert stated == f"sha256:{sha256(rfc8785.dumps(members)).hexdigest()}"  # type: ignore[arg-type]  # JSON
    assert str(sample().definition_digest) == stated


def test_the_wire_form_of_nodes() -> None:
    assert tree()["nodes"] == [
        {"node_id": "a", "continue_to": ["b"], "routes": [], "terminal": False},
        {
            "node_id": "b",
            "continue_to": ["c"],
            "routes": [{"route_id": "w", "successors": ["c"]}, {"route_id": "x", "successors": ["a", "b"]}],
            "wait_to": ["c"],
            "terminal": False,
        },
        {"node_id": "c", "routes": [], "terminal": True},
    ]
    assert tree()["limits"] == {"maximum_supersteps": "64", "maximum_parallelism": "16"}
    assert tree()["entry_nodes"] == ["a"]


def test_a_stored_graph_is_restored_from_bytes_and_from_a_tree() -> None:
    graph = sample()
    assert CompiledGraph.restore(encode(graph)) == graph
    assert CompiledGraph.restore(to_wire(graph)) == graph
    assert decode(graph.canonical, CompiledGraph) == graph
    assert graph.canonical == rfc8785.dumps(tree())  # type: ignore[arg-type]  # JSON


def test_a_wrong_digest_is_found_when_restoring() -> None:
    with pytest.raises(DefinitionError) as caught:
        CompiledGraph.restore(tree() | {"definition_digest": "sha256:" + "0" * 64})  # type: ignore[arg-type]  # JSON
    assert (caught.value.kind, caught.value.reason) == ("graph", "digest_mismatch")


def test_structure_is_checked_before_the_digest() -> None:
    with pytest.raises(DefinitionError) as caught:
        CompiledGraph.restore(tree() | {"entry_nodes": ["x"]})  # type: ignore[arg-type]  # JSON
    assert (caught.value.reason, caught.value.node_id) == ("missing_entry_node", NodeId("x"))


def test_a_node_s_shape_is_checked_first() -> None:
    nodes = [{"node_id": "a", "routes": [], "terminal": False}]
    with pytest.raises(DefinitionError) as caught:
        CompiledGraph.restore(tree() | {"nodes": nodes, "entry_nodes": []})  # type: ignore[arg-type]  # JSON
    assert (caught.value.reason, caught.value.node_id) == ("no_control", NodeId("a"))


def test_nodes_are_never_sorted_in_silence() -> None:
    nodes = tree()["nodes"]
    assert isinstance(nodes, list)
    with pytest.raises(InvalidValueError) as caught:
        CompiledGraph.restore(tree() | {"nodes": nodes[::-1]})  # type: ignore[arg-type]  # JSON
    assert caught.value.reason == "unsorted"


def test_a_document_is_closed_and_whole() -> None:
    with pytest.raises(InvalidValueError) as caught:
        from_wire(tree() | {"namespace": ""}, CompiledGraph)  # type: ignore[arg-type]  # JSON
    assert caught.value.reason == "unknown_member"
    members = tree()
    del members["definition_digest"]
    with pytest.raises(InvalidValueError) as caught:
        from_wire(members, CompiledGraph)  # type: ignore[arg-type]  # JSON
    assert (caught.value.reason, caught.value.path) == ("missing_member", ("definition_digest",))
    with pytest.raises(InvalidJsonError):
        CompiledGraph.restore(b" " + encode(sample()))


def test_a_member_of_another_class_is_refused() -> None:
    with pytest.raises(InvalidValueError) as caught:
        evolve(sample(), entry_nodes=(NodeId("a"),))  # type: ignore[arg-type]  # what is refused
    assert (caught.value.reason, caught.value.path) == ("wrong_type", ("entry_nodes",))
    with pytest.raises(InvalidValueError) as caught:
        GraphReducerReference(identity=identity(), definition_digest="")  # type: ignore[arg-type]  # what is refused
    assert (caught.value.reason, caught.value.path) == ("wrong_type", ("definition_digest",))


def test_an_admission_pins_the_reference() -> None:
    graph = sample()
    assert graph.reference == GraphReference(
        identity=identity("sample-graph"),
        definition_digest=graph.definition_digest,
        state_schema=graph.state_schema,
    )


def test_a_graph_knows_its_nodes() -> None:
    graph = sample()
    assert graph.node(NodeId("c")) == GraphNode.of("c", terminal=True)
    assert NodeId("b") in graph
    assert NodeId("bb") not in graph
    assert NodeId("x") not in graph
    assert RouteId("w") not in graph
    with pytest.raises(KeyError):
        graph.node(NodeId("d"))


def test_the_version_and_the_reducer_are_part_of_the_definition() -> None:
    digests = {
        graph_of(chain("a", "b")).definition_digest,
        graph_of(chain("a", "b"), version="1.0.1").definition_digest,
        graph_of(chain("a", "b"), reducer=ReplaceReducer()).definition_digest,
        graph_of(chain("a", "b"), maximum_supersteps=63).definition_digest,
        graph_of(chain("a", "b"), maximum_parallelism=15).definition_digest,
        graph_of(chain("a", "b"), entry=("a", "b")).definition_digest,
    }
    assert len(digests) == 6


def test_ready_sets_are_compared_by_their_ids() -> None:
    assert sample().entry_nodes == ReadyNodes((NodeId("a"),))
