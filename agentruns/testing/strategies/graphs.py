"""Hypothesis strategies of graphs."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve
from hypothesis import strategies as st

from agentruns.domain.graph.definition import CompiledGraph, GraphNode
from agentruns.domain.graph.reducers import GraphReducer
from agentruns.testing.graphs import Keywords, graph_of


@st.composite
def node_sets(draw: st.DrawFn, *, maximum_nodes: int = 5) -> list[GraphNode]:
    """Draw nodes whose successors exist, each with at least one control; routes are unique in all of them."""
    ids = [f"n{number}" for number in range(draw(st.integers(1, maximum_nodes)))]
    some = st.lists(st.sampled_from(ids), min_size=1, unique=True)
    nodes = []
    for each in ids:
        continue_to, wait_to = draw(st.none() | some), draw(st.none() | some)
        routes = draw(st.lists(some, max_size=2))
        has_control = bool(continue_to or wait_to or routes)
        nodes.append(
            GraphNode.of(
                each,
                continue_to=continue_to,
                wait_to=wait_to,
                routes={f"{each}.r{number}": successors for number, successors in enumerate(routes)},
                terminal=draw(st.booleans()) if has_control else True,
            )
        )
    return nodes


@st.composite
def compiled_graphs(
    draw: st.DrawFn,
    *,
    maximum_nodes: int = 5,
    maximum_supersteps: int = 64,
    reducer: GraphReducer | None = None,
    keywords: Keywords | None = None,
) -> CompiledGraph:
    """Draw graphs that compile: what nobody reaches begins, and what cannot come to rest may end."""
    nodes = draw(node_sets(maximum_nodes=maximum_nodes))
    entry = draw(st.lists(st.sampled_from([str(node.node_id) for node in nodes]), min_size=1, unique=True))
    while missing := _unreached(nodes, entry):
        entry.append(missing)
    while stuck := _stuck(nodes):
        nodes = [evolve(node, terminal=node.terminal or node.node_id == stuck.node_id) for node in nodes]
    return graph_of(
        nodes,
        entry=entry,
        reducer=reducer,
        maximum_supersteps=maximum_supersteps,
        maximum_parallelism=len(nodes),
        keywords=keywords,
    )


def successors_of(node: GraphNode) -> set[str]:
    """Name every node that may follow a node directly."""
    return {str(to) for _, successors in node.successor_sets() for to in successors}


def _reach(nodes: Sequence[GraphNode], start: str) -> set[str]:
    edges = {str(node.node_id): successors_of(node) for node in nodes}
    reached, pending = {start}, [start]
    while pending:
        new = edges[pending.pop()] - reached
        reached |= new
        pending += new
    return reached


def _unreached(nodes: Sequence[GraphNode], entry: Sequence[str]) -> str | None:
    reached = {to for start in entry for to in _reach(nodes, start)}
    return next((str(node.node_id) for node in nodes if str(node.node_id) not in reached), None)


def _stuck(nodes: Sequence[GraphNode]) -> GraphNode | None:
    ends = {str(node.node_id) for node in nodes if node.terminal or node.wait_to is not None}
    return next((node for node in nodes if not _reach(nodes, str(node.node_id)) & ends), None)
