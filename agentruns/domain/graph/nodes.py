"""The nodes of a graph: which sets of successors each of them may choose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import ClassVar

from attrs import frozen

from agentruns.domain.members import check_members
from agentruns.domain.scalars import NodeId, RouteId
from agentruns.errors import DefinitionError, InvalidValueError

MAXIMUM_NODE_ROUTES = 256


@frozen
class ReadyNodes:
    """Hold distinct node ids in the order of their bytes, 0..1024. A duplicate is an error, never merged.

    Attributes:
        ids: strictly ascending; :meth:`of` sorts.
    """

    ids: tuple[NodeId, ...] = ()

    largest: ClassVar[int] = 1024
    #: On the wire it is the array of its ids.
    is_array: ClassVar[bool] = True

    def __attrs_post_init__(self) -> None:
        if type(self.ids) is not tuple or not all(type(node_id) is NodeId for node_id in self.ids):
            raise TypeError("ReadyNodes takes a tuple of NodeId")
        if len(self.ids) > self.largest:
            raise InvalidValueError(type_name="ReadyNodes", reason="too_long")
        check_ascending("ReadyNodes", self.ids)

    @classmethod
    def of(cls, *ids: NodeId | str) -> ReadyNodes:
        """Sort ids or their texts.

        Raises:
            InvalidValueError: ``duplicate``, ``too_long``, or what the grammar of ids refuses.
        """
        return cls(tuple(sorted(each if isinstance(each, NodeId) else NodeId(each) for each in ids)))

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, node_id: object) -> bool:
        return node_id in self.ids


@frozen(kw_only=True)
class GraphRoute:
    """Give a node's choice a name. One route may fan out.

    Attributes:
        route_id: unique in the whole graph.
        successors: the nodes that are ready next, at least one.
    """

    route_id: RouteId
    successors: ReadyNodes

    def __attrs_post_init__(self) -> None:
        check_members(self)


@frozen(kw_only=True)
class GraphNode:
    """Declare what a node may decide: at least one of its four controls.

    Attributes:
        continue_to: what follows when it continues, if it may.
        routes: named choices, ascending by id, at most 256.
        wait_to: what is ready after its waits are settled, if it may suspend.
        terminal: whether it may end the graph.
    """

    node_id: NodeId
    continue_to: ReadyNodes | None = None
    routes: tuple[GraphRoute, ...] = ()
    wait_to: ReadyNodes | None = None
    terminal: bool = False

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if self.continue_to is None and not self.routes and self.wait_to is None and not self.terminal:
            raise self._refusal("no_control")
        for route_id, successors in self.successor_sets():
            if not successors:
                raise self._refusal("empty_successors", route_id=route_id)
        if len(self.routes) > MAXIMUM_NODE_ROUTES:
            raise self._refusal("too_many_node_routes", limit=MAXIMUM_NODE_ROUTES, actual=len(self.routes))
        self._check_routes()

    @classmethod
    def of(
        cls,
        node_id: NodeId | str,
        *,
        continue_to: Iterable[NodeId | str] | None = None,
        routes: Mapping[str, Iterable[NodeId | str]] | None = None,
        wait_to: Iterable[NodeId | str] | None = None,
        terminal: bool = False,
    ) -> GraphNode:
        """Declare a node by texts, in any order.

        Raises:
            DefinitionError: the node's shape is refused.
        """
        choices = [
            GraphRoute(route_id=RouteId(name), successors=ReadyNodes.of(*to)) for name, to in (routes or {}).items()
        ]
        return cls(
            node_id=node_id if isinstance(node_id, NodeId) else NodeId(node_id),
            continue_to=None if continue_to is None else ReadyNodes.of(*continue_to),
            routes=tuple(sorted(choices, key=lambda route: route.route_id)),
            wait_to=None if wait_to is None else ReadyNodes.of(*wait_to),
            terminal=terminal,
        )

    def route(self, route_id: RouteId | str) -> GraphRoute | None:
        """Find the route of that id, or ``None`` when the node has not declared it."""
        name = str(route_id)
        return next((route for route in self.routes if route.route_id.text == name), None)

    def successor_sets(self) -> Iterator[tuple[RouteId | None, ReadyNodes]]:
        """Give every declared set: that of Continue, of each route, and of Wait."""
        if self.continue_to is not None:
            yield None, self.continue_to
        for route in self.routes:
            yield route.route_id, route.successors
        if self.wait_to is not None:
            yield None, self.wait_to

    @property
    def is_boundary(self) -> bool:
        """Whether a run may come to rest here: it may end, or wait."""
        return self.terminal or self.wait_to is not None

    def _check_routes(self) -> None:
        ids = [route.route_id for route in self.routes]
        if repeated := next((left for left, right in pairwise(sorted(ids)) if left == right), None):
            raise self._refusal("duplicate_route", route_id=repeated)
        check_ascending("GraphNode", ids)

    def _refusal(
        self, reason: str, *, route_id: RouteId | None = None, limit: int | None = None, actual: int | None = None
    ) -> DefinitionError:
        return DefinitionError(
            kind="graph", reason=reason, node_id=self.node_id, route_id=route_id, limit=limit, actual=actual
        )


def check_ascending(type_name: str, ids: Iterable[NodeId] | Iterable[RouteId]) -> None:
    """Refuse ids that are repeated or out of order.

    Raises:
        InvalidValueError: ``duplicate`` or ``unsorted``.
    """
    for left, right in pairwise(each.text for each in ids):
        if left >= right:
            raise InvalidValueError(type_name=type_name, reason="duplicate" if left == right else "unsorted")
