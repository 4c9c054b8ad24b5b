"""Find the nodes of a graph that can reach themselves: Tarjan's strongly connected components, without recursion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import define, field


def on_cycles(successors: Sequence[Sequence[int]]) -> frozenset[int]:
    """Give every node that lies on a cycle; ``successors[n]`` are the nodes to which *n* leads."""
    search = _Search(successors=successors)
    for root in range(len(successors)):
        search.from_root(root)
    return frozenset(search.found)


@define(kw_only=True)
class _Search:
    successors: Sequence[Sequence[int]]
    found: set[int] = field(factory=set)
    _order: dict[int, int] = field(factory=dict)
    _lowest: dict[int, int] = field(factory=dict)
    _open: dict[int, None] = field(factory=dict)
    _path: list[tuple[int, Iterator[int]]] = field(factory=list)

    def from_root(self, root: int) -> None:
        if root not in self._order:
            self._enter(root)
        while self._path:
            self._step()

    def _enter(self, node: int) -> None:
        self._order[node] = self._lowest[node] = len(self._order)
        self._open[node] = None
        self._path.append((node, iter(self.successors[node])))

    def _step(self) -> None:
        node, rest = self._path[-1]
        for successor in rest:
            if successor not in self._order:
                self._enter(successor)
                return
            if successor in self._open:
                self._lowest[node] = min(self._lowest[node], self._order[successor])
        self._leave(node)

    def _leave(self, node: int) -> None:
        self._path.pop()
        if self._path:
            parent = self._path[-1][0]
            self._lowest[parent] = min(self._lowest[parent], self._lowest[node])
        if self._lowest[node] == self._order[node]:
            self._close(node)

    def _close(self, node: int) -> None:
        component = {self._open.popitem()[0]}
        while node not in component:
            component.add(self._open.popitem()[0])
        if len(component) > 1 or node in self.successors[node]:
            self.found |= component
