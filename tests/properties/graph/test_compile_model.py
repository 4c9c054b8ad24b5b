"""Graphs against an independent model of what compiles, and their digest."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st

from agentruns.domain.graph.definition import CompiledGraph, GraphExecutionLimits, GraphNode, GraphRoute, ReadyNodes
from agentruns.domain.graph.reducers import MergeReducer
from agentruns.domain.scalars import NodeId, RouteId
from agentruns.domain.wire import decode, encode, from_wire, to_wire
from agentruns.errors import DefinitionError
from agentruns.testing.graphs import graph_of
from agentruns.testing.samples import identity, schema_reference
from agentruns.testing.strategies.graphs import compiled_graphs

NAMES = ("a", "b", "c", "d")


@frozen
class Node:
    name: str
    continue_to: tuple[str, ...] | None
    routes: tuple[tuple[str, tuple[str, ...]], ...]
    wait_to: tuple[str, ...] | None
    terminal: bool

    def sets(self) -> list[tuple[str, ...]]:
        sets = [successors for _, successors in self.routes]
        return [each for each in (self.continue_to, *sets, self.wait_to) if each is not None]


@frozen
class Parts:
    nodes: tuple[Node, ...]
    entry: tuple[str, ...]
    parallelism: int


def some(dice: random.Random, names: Sequence[str], *, flawed: bool) -> tuple[str, ...]:
    smallest = 0 if flawed and dice.random() < 0.05 else 1
    return tuple(sorted(dice.sample(names, dice.randint(min(smallest, len(names)), min(3, len(names))))))


def random_parts(seed: int) -> Parts:
    """Make parts that mostly compile, with now and then one of every flaw."""
    dice = random.Random(seed)
    flawed = dice.random() < 0.6
    names = dice.sample(NAMES, dice.randint(0 if flawed else 1, 4))
    known = [*names, "x"] if not names or (flawed and dice.random() < 0.3) else names
    if names and flawed and dice.random() < 0.2:
        names = [*names, dice.choice(names)]
    nodes = []
    for name in names:
        route_ids = [f"{name}1", f"{name}2", *(["same", f"{name}1"] if flawed else [])]
        chosen = sorted(dice.sample(route_ids, dice.choice([0, 0, 1, 2])))
        routes = tuple((each, some(dice, known, flawed=flawed)) for each in chosen)
        continue_to = dice.choice([None, some(dice, known, flawed=flawed)])
        wait_to = dice.choice([None, None, None, some(dice, known, flawed=flawed)])
        nodes.append(Node(name, continue_to, routes, wait_to, dice.random() < 0.4))
    return Parts(tuple(nodes), some(dice, known, flawed=flawed), dice.randint(1, 4))


def shape_reason(node: Node) -> str | None:
    if not node.sets() and not node.terminal:
        return "no_control"
    if any(not successors for successors in node.sets()):
        return "empty_successors"
    if len({name for name, _ in node.routes}) < len(node.routes):
        return "duplicate_route"
    return None


def closure(start: set[str], pairs: set[tuple[str, str]]) -> set[str]:
    found = set(start)
    while more := {after for before, after in pairs if before in found} - found:
        found |= more
    return found


def reasons(parts: Parts) -> Iterator[str | None]:
    """Give every check's verdict in the order of the specification."""
    names = [node.name for node in parts.nodes]
    yield from map(shape_reason, parts.nodes)
    route_ids = [name for node in parts.nodes for name, _ in node.routes]
    yield "duplicate_route" if len(set(route_ids)) < len(route_ids) else None
    yield "duplicate_node" if len(set(names)) < len(names) else None
    yield None if names else "empty_nodes"
    yield None if parts.entry else "empty_entry_nodes"
    yield "parallelism_exceeded" if len(parts.entry) > parts.parallelism else None
    yield None if set(parts.entry) <= set(names) else "missing_entry_node"
    for node in sorted(parts.nodes, key=lambda each: each.name):
        for successors in node.sets():
            yield "parallelism_exceeded" if len(successors) > parts.parallelism else None
            yield None if set(successors) <= set(names) else "missing_successor_node"
    pairs = {(node.name, to) for node in parts.nodes for successors in node.sets() for to in successors}
    yield None if closure(set(parts.entry), pairs) >= set(names) else "unreachable_node"
    rest = {node.name for node in parts.nodes if node.terminal or node.wait_to is not None}
    yield None if closure(rest, {(to, node) for node, to in pairs}) >= set(names) else "no_boundary_path"


def expected_reason(parts: Parts) -> str | None:
    return next((reason for reason in reasons(parts) if reason is not None), None)


def compiled(parts: Parts) -> CompiledGraph:
    nodes = [
        GraphNode(
            node_id=NodeId(node.name),
            continue_to=None if node.continue_to is None else ReadyNodes.of(*node.continue_to),
            routes=tuple(
                GraphRoute(route_id=RouteId(name), successors=ReadyNodes.of(*successors))
                for name, successors in node.routes
            ),
            wait_to=None if node.wait_to is None else ReadyNodes.of(*node.wait_to),
            terminal=node.terminal,
        )
        for node in parts.nodes
    ]
    return graph_of(nodes, entry=parts.entry, maximum_parallelism=parts.parallelism)


@given(st.integers(0, 2**32))
def test_GRA_02_the_compiler_agrees_with_a_model(seed: int) -> None:
    parts = random_parts(seed)
    expected = expected_reason(parts)
    if expected is None:
        assert len(compiled(parts).nodes) == len(parts.nodes)
        return
    with pytest.raises(DefinitionError) as caught:
        compiled(parts)
    assert (caught.value.kind, caught.value.reason) == ("graph", expected)


def test_GRA_02_the_parts_have_every_flaw() -> None:
    """Hold the generator to its purpose: what it never makes would be tested by nobody."""
    assert {expected_reason(random_parts(seed)) for seed in range(3000)} == {
        None,
        "no_control",
        "empty_successors",
        "duplicate_route",
        "duplicate_node",
        "empty_nodes",
        "empty_entry_nodes",
        "parallelism_exceeded",
        "missing_entry_node",
        "missing_successor_node",
        "unreachable_node",
        "no_boundary_path",
    }


@given(compiled_graphs(), st.randoms(use_true_random=False))
def test_GRA_01_a_graph_is_restored_from_its_wire_form(graph: CompiledGraph, shuffler: random.Random) -> None:
    assert CompiledGraph.restore(to_wire(graph)) == graph
    assert CompiledGraph.restore(encode(graph)) == graph
    assert from_wire(to_wire(graph), CompiledGraph) == graph
    assert encode(decode(encode(graph), CompiledGraph)) == encode(graph)
    tree = to_wire(graph)
    assert isinstance(tree, dict)
    shuffled = list(tree.items())
    shuffler.shuffle(shuffled)
    assert CompiledGraph.restore(dict(shuffled)) == graph


@given(compiled_graphs(), st.randoms(use_true_random=False))
def test_GRA_01_the_order_of_nodes_does_not_matter(graph: CompiledGraph, shuffler: random.Random) -> None:
    nodes = list(graph.nodes)
    shuffler.shuffle(nodes)
    again = graph_of(
        nodes,
        entry=[str(each) for each in graph.entry_nodes],
        maximum_parallelism=int(graph.limits.maximum_parallelism),
    )
    assert again == graph
    assert again.definition_digest == graph.definition_digest


@given(compiled_graphs())
def test_GRA_01_every_member_counts(graph: CompiledGraph) -> None:
    other = schema_reference("other")
    limits = GraphExecutionLimits.of(
        maximum_supersteps=int(graph.limits.maximum_supersteps) + 1,
        maximum_parallelism=int(graph.limits.maximum_parallelism) + 1,
    )
    first, *rest = graph.nodes
    more = evolve(first, routes=(*first.routes, GraphRoute(route_id=RouteId("zz"), successors=graph.entry_nodes)))
    members = {
        "identity": identity("other-graph"),
        "input_schema": other,
        "state_schema": other,
        "update_schema": other,
        "output_schema": other,
        "reducer": MergeReducer(default="last").reference,
        "limits": limits,
        "nodes": (more, *rest),
    }
    changed = [_compiled_with(graph, name, member) for name, member in members.items()]
    every = ReadyNodes(tuple(node.node_id for node in graph.nodes))
    if every != graph.entry_nodes:
        changed.append(_compiled_with(graph, "entry_nodes", every))
    digests = {each.definition_digest for each in changed} | {graph.definition_digest}
    assert len(digests) == len(changed) + 1


def _compiled_with(graph: CompiledGraph, name: str, member: object) -> CompiledGraph:
    names = ("identity", "input_schema", "state_schema", "update_schema", "output_schema", "reducer", "limits")
    members = {each: getattr(graph, each) for each in (*names, "entry_nodes", "nodes")}
    return CompiledGraph.compile(**(members | {name: member}))
