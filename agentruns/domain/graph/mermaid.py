"""A graph as Mermaid text, for people. It holds ids and nothing of a run's data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from agentruns.domain.scalars import NodeId, RouteId
from agentruns.errors import InvalidValueError

if TYPE_CHECKING:
    from agentruns.domain.graph.definition import CompiledGraph
    from agentruns.domain.graph.nodes import GraphNode

_DIRECTIONS: Final = ("TB", "TD", "BT", "LR", "RL")

_STYLES: Final = {
    "done": "fill:#d5f5e3,stroke:#1e8449",
    "running": "fill:#d6eaf8,stroke:#2471a3",
    "failed": "fill:#fadbd8,stroke:#b03a2e",
    "waiting": "fill:#fcf3cf,stroke:#b7950b",
    "next": "fill:#ebdef0,stroke:#76448a",
}


def flowchart(graph: CompiledGraph, *, direction: str, marks: Mapping[NodeId, str]) -> str:
    """Draw a graph. Equal graphs and marks give equal text.

    Args:
        graph: what to draw.
        direction: ``TB``, ``TD``, ``BT``, ``LR`` or ``RL``.
        marks: ``done``, ``running``, ``failed``, ``waiting`` or ``next`` for some of the nodes.

    Raises:
        InvalidValueError: ``unknown_direction``, ``unknown_node`` or ``unknown_mark``.
    """
    if direction not in _DIRECTIONS:
        raise InvalidValueError(type_name="flowchart", reason="unknown_direction")
    names = {node.node_id: f"n{index}" for index, node in enumerate(graph.nodes)}
    lines = [f"flowchart {direction}", *_nodes(graph, names), *_edges(graph, names), *_classes(marks, names)]
    return "\n    ".join(lines) + "\n"


def _nodes(graph: CompiledGraph, names: Mapping[NodeId, str]) -> Iterator[str]:
    yield 'start(("start"))'
    yield from (f"{name}[{_label(node_id)}]" for node_id, name in names.items())
    if any(node.terminal for node in graph.nodes):
        yield 'stop(("end"))'


def _edges(graph: CompiledGraph, names: Mapping[NodeId, str]) -> Iterator[str]:
    yield from (f"start --> {names[node_id]}" for node_id in graph.entry_nodes)
    for node in graph.nodes:
        yield from _edges_of(node, names)


def _edges_of(node: GraphNode, names: Mapping[NodeId, str]) -> Iterator[str]:
    name = names[node.node_id]
    yield from (f"{name} --> {names[to]}" for to in node.continue_to or ())
    for route in node.routes:
        yield from (f"{name} -->|{_label(route.route_id)}| {names[to]}" for to in route.successors)
    yield from (f'{name} -.->|"wait"| {names[to]}' for to in node.wait_to or ())
    if node.terminal:
        yield f"{name} --> stop"


def _classes(marks: Mapping[NodeId, str], names: Mapping[NodeId, str]) -> Iterator[str]:
    if not names.keys() >= marks.keys():
        raise InvalidValueError(type_name="flowchart", reason="unknown_node")
    if not _STYLES.keys() >= set(marks.values()):
        raise InvalidValueError(type_name="flowchart", reason="unknown_mark")
    for mark, style in _STYLES.items():
        marked = [name for node_id, name in names.items() if marks.get(node_id) == mark]
        if marked:
            yield f"classDef {mark} {style}"
            yield f"class {','.join(marked)} {mark}"


def _label(text: NodeId | RouteId) -> str:
    """Quote an id: its grammar holds neither quotes nor ``#``, so quoting is all the escape it needs."""
    return f'"{text}"'
