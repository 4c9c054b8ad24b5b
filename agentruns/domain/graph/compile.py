"""What a graph must satisfy before anybody runs it. The first violated check wins; no node's source is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agentruns.domain.graph.nodes import GraphNode, ReadyNodes
from agentruns.domain.scalars import NodeId, RouteId
from agentruns.errors import DefinitionError

MAXIMUM_NODES = 1024
MAXIMUM_ROUTES = 262_144


def check_structure(nodes: Sequence[GraphNode], *, entry_nodes: ReadyNodes, maximum_parallelism: int) -> None:
    """Check nodes that are in the order of their ids, duplicates included.

    Raises:
        DefinitionError: kind ``graph``, with the first reason that applies.
    """
    _check_counts(nodes)
    _check_routes(nodes)
    known = _check_nodes(nodes)
    _check_entries(known, entry_nodes=entry_nodes, maximum_parallelism=maximum_parallelism)
    for node in nodes:
        _check_successors(node, known=known, maximum_parallelism=maximum_parallelism)
    _check_paths(known, entry_nodes=entry_nodes)


def refusal(
    reason: str,
    *,
    node_id: NodeId | None = None,
    route_id: RouteId | None = None,
    limit: int | None = None,
    actual: int | None = None,
    findings: tuple[str, ...] = (),
) -> DefinitionError:
    """Make the error of a graph's definition."""
    return DefinitionError(
        kind="graph", reason=reason, node_id=node_id, route_id=route_id, limit=limit, actual=actual, findings=findings
    )


def _check_counts(nodes: Sequence[GraphNode]) -> None:
    if len(nodes) > MAXIMUM_NODES:
        raise refusal("too_many_nodes", limit=MAXIMUM_NODES, actual=len(nodes))
    routes = sum(len(node.routes) for node in nodes)
    if routes > MAXIMUM_ROUTES:
        raise refusal("too_many_routes", limit=MAXIMUM_ROUTES, actual=routes)


def _check_routes(nodes: Sequence[GraphNode]) -> None:
    seen: set[RouteId] = set()
    for node in nodes:
        for route in node.routes:
            if route.route_id in seen:
                raise refusal("duplicate_route", node_id=node.node_id, route_id=route.route_id)
            seen.add(route.route_id)


def _check_nodes(nodes: Sequence[GraphNode]) -> dict[NodeId, GraphNode]:
    known: dict[NodeId, GraphNode] = {}
    for node in nodes:
        if node.node_id in known:
            raise refusal("duplicate_node", node_id=node.node_id)
        known[node.node_id] = node
    if not known:
        raise refusal("empty_nodes")
    return known


def _check_entries(known: Mapping[NodeId, GraphNode], *, entry_nodes: ReadyNodes, maximum_parallelism: int) -> None:
    if not entry_nodes:
        raise refusal("empty_entry_nodes")
    if len(entry_nodes) > maximum_parallelism:
        raise refusal("parallelism_exceeded", limit=maximum_parallelism, actual=len(entry_nodes))
    for node_id in entry_nodes:
        if node_id not in known:
            raise refusal("missing_entry_node", node_id=node_id)


def _check_successors(node: GraphNode, *, known: Mapping[NodeId, GraphNode], maximum_parallelism: int) -> None:
    for route_id, successors in node.successor_sets():
        if len(successors) > maximum_parallelism:
            raise refusal(
                "parallelism_exceeded",
                node_id=node.node_id,
                route_id=route_id,
                limit=maximum_parallelism,
                actual=len(successors),
            )
        for missing in successors:
            if missing not in known:
                raise refusal(
                    "missing_successor_node",
                    node_id=node.node_id,
                    route_id=route_id,
                    findings=(f"no node is called {missing}",),
                )


def _check_paths(known: Mapping[NodeId, GraphNode], *, entry_nodes: ReadyNodes) -> None:
    """Insist that every node can be reached, and that from each of them a run can come to rest."""
    onward = {
        node.node_id: tuple(to for _, successors in node.successor_sets() for to in successors)
        for node in known.values()
    }
    _check_all(known, _reached(entry_nodes, onward), "unreachable_node")
    backward: dict[NodeId, list[NodeId]] = {node_id: [] for node_id in known}
    for node_id, successors in onward.items():
        for successor in successors:
            backward[successor].append(node_id)
    boundaries = [node.node_id for node in known.values() if node.is_boundary]
    _check_all(known, _reached(boundaries, backward), "no_boundary_path")


def _check_all(known: Iterable[NodeId], reached: Mapping[NodeId, None], reason: str) -> None:
    for node_id in known:
        if node_id not in reached:
            raise refusal(reason, node_id=node_id)


def _reached(starts: Iterable[NodeId], edges: Mapping[NodeId, Sequence[NodeId]]) -> dict[NodeId, None]:
    reached = dict.fromkeys(starts)
    pending = list(reached)
    while pending:
        for node_id in edges[pending.pop()]:
            if node_id not in reached:
                reached[node_id] = None
                pending.append(node_id)
    return reached
