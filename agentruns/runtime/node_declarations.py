"""What a decorated function declares about its node, and what can be wrong with it before a graph is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from attrs import field, frozen

from agentruns.domain.graph.executable import GraphNodeScheduling
from agentruns.domain.graph.nodes import GraphNode
from agentruns.domain.scalars import NodeId, RouteId
from agentruns.runtime.node_retry import NodeRetry
from agentruns.runtime.node_shape import flaw_of

Successors = str | Iterable[str]
NodeFunction = Callable[..., object]


@frozen(kw_only=True)
class NodeDeclaration:
    """Hold what a decorator was told. Names of routes are the node's own; in the graph they begin with its id.

    Attributes:
        entry: whether the graph begins here.
        then: what follows when it continues.
        routes: its named choices.
        wait_to: what is ready once its waits are settled.
        terminal: whether it may end the graph.
        retry: which exceptions are worth another attempt.
    """

    node_id: NodeId
    function: NodeFunction = field(repr=False)
    entry: bool = False
    then: tuple[str, ...] | None = None
    routes: Mapping[str, tuple[str, ...]] = field(factory=dict)
    wait_to: tuple[str, ...] | None = None
    terminal: bool = False
    scheduling: GraphNodeScheduling = GraphNodeScheduling.EXCLUSIVE
    retry: NodeRetry | None = None

    @property
    def route_ids(self) -> dict[str, RouteId]:
        """The id in the graph of each route, by its own name."""
        return {name: RouteId(f"{self.node_id}.{name}") for name in self.routes}

    def node(self) -> GraphNode:
        """Make the node of the definition."""
        routes = {str(self.route_ids[name]): successors for name, successors in self.routes.items()}
        return GraphNode.of(
            self.node_id, continue_to=self.then, routes=routes, wait_to=self.wait_to, terminal=self.terminal
        )

    def successor_sets(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Give each declared set of successors with the words by which it was declared."""
        if self.then is not None:
            yield "then", self.then
        for name, successors in self.routes.items():
            yield f"route {name}", successors
        if self.wait_to is not None:
            yield "wait_to", self.wait_to


@frozen(kw_only=True)
class NodeFinding:
    """Say what is wrong with one node."""

    reason: str
    node_id: NodeId
    detail: str

    def __str__(self) -> str:
        return f"{self.node_id}: {self.detail}"


_FLAWS = {
    "wrong_arity": "the function must take exactly one argument, the context",
    "generator": "the function is a generator; return a result instead",
    "returns_awaitable": "the plain function returns something to await; declare it with async def",
    "wrong_annotation": "the argument is not annotated as a context, or the result is none that a node may return",
}


def findings(declarations: Sequence[NodeDeclaration]) -> list[NodeFinding]:
    """Give everything that is wrong, node by node in the order of declaration."""
    known = {str(declaration.node_id) for declaration in declarations}
    seen: set[NodeId] = set()
    found: list[NodeFinding] = []
    for declaration in declarations:
        if declaration.node_id in seen:
            found.append(_finding(declaration, "duplicate_node", "two functions are called so; give one a name"))
        seen.add(declaration.node_id)
        found += _findings_of(declaration, known)
    return found


def _findings_of(declaration: NodeDeclaration, known: set[str]) -> Iterator[NodeFinding]:
    if flaw := flaw_of(declaration.function):
        yield _finding(declaration, flaw, _FLAWS[flaw])
    sets = dict(declaration.successor_sets())
    if not sets and not declaration.terminal:
        yield _finding(declaration, "no_control", "give it then, routes, wait_to or terminal")
    for words, successors in sets.items():
        if not successors:
            yield _finding(declaration, "empty_successors", f"{words} names no node")
        if len(set(successors)) != len(successors):
            yield _finding(declaration, "duplicate_successor", f"{words} names a node twice")
        for missing in dict.fromkeys(name for name in successors if name not in known):
            yield _finding(
                declaration, "missing_successor_node", f"{words} leads to {missing}, and no node is called so"
            )


def _finding(declaration: NodeDeclaration, reason: str, detail: str) -> NodeFinding:
    return NodeFinding(reason=reason, node_id=declaration.node_id, detail=detail)
