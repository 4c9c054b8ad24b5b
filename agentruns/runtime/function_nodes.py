"""Executors around decorated functions: short names of routes, objects that dump themselves, and declared retries."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final, Protocol, cast

from attrs import evolve, field, frozen

from agentruns.domain.graph.executable import GraphNodeExecutor, GraphNodeScheduling
from agentruns.domain.graph.returns import Continue, Finish, Route, Suspend
from agentruns.domain.identity import GraphReference
from agentruns.domain.scalars import NodeId, RouteId
from agentruns.errors import NodeFailedError
from agentruns.runtime.node_declarations import NodeDeclaration, NodeFunction
from agentruns.runtime.node_retry import NodeRetry
from agentruns.runtime.node_shape import is_asynchronous

#: What a node says beside its update.
_SHAPES: Final = (Continue, Route, Suspend, Finish)
#: Members of these that may be objects which dump themselves.
_DUMPED: Final = ("update", "output")


class HasAttempt(Protocol):
    """What an executor needs to know of a context."""

    @property
    def attempt(self) -> int:
        """The number of the attempt, from 1."""
        ...


def executor_of(declaration: NodeDeclaration, *, graph: GraphReference) -> GraphNodeExecutor:
    """Bind a declared function to its graph: ``async def`` runs on the loop, a plain function in a thread."""
    executor_class = _AsynchronousNode if is_asynchronous(declaration.function) else _PlainNode
    return executor_class(
        graph=graph,
        node_id=declaration.node_id,
        scheduling=declaration.scheduling,
        function=declaration.function,
        routes=declaration.route_ids,
        retry=declaration.retry,
    )


@frozen(kw_only=True, eq=False)
class _FunctionNode:
    graph: GraphReference
    node_id: NodeId
    scheduling: GraphNodeScheduling
    function: NodeFunction = field(repr=False)
    routes: Mapping[str, RouteId] = field(repr=False)
    retry: NodeRetry | None = field(repr=False)

    def _declared(self, error: Exception, attempt: int) -> NodeFailedError | None:
        """Give the declared failure for an exception that the node's retry lists."""
        if self.retry is None or isinstance(error, NodeFailedError) or not isinstance(error, self.retry.on):
            return None
        return NodeFailedError(failure=self.retry.failure(error, attempt=attempt))

    def _translated(self, returned: object) -> object:
        """Dump objects that can do so, and spell a route's short name as the graph does."""
        shape = dumped(returned)
        if not isinstance(shape, _SHAPES):
            return shape
        values = {name: getattr(shape, name, None) for name in _DUMPED}
        changes = {name: plain for name, value in values.items() if (plain := dumped(value)) is not value}
        if isinstance(shape, Route):
            changes["route_id"] = self.routes.get(str(shape.route_id), shape.route_id)
        return _changed(shape, changes) if changes else shape


@frozen(kw_only=True, eq=False)
class _PlainNode(_FunctionNode):
    """Run a plain function, which the driver calls in a thread."""

    def execute(self, context: HasAttempt, /) -> object:
        try:
            returned = self.function(context)
        except Exception as error:
            if declared := self._declared(error, context.attempt):
                raise declared from error
            raise
        if inspect.iscoroutine(returned):
            returned.close()  # nobody awaits it; what was returned is refused as it stands
        return self._translated(returned)


@frozen(kw_only=True, eq=False)
class _AsynchronousNode(_FunctionNode):
    """Run a function made by ``async def``, on the loop."""

    async def execute(self, context: HasAttempt, /) -> object:
        try:
            returned = await cast("Any", self.function(context))
        except Exception as error:
            if declared := self._declared(error, context.attempt):
                raise declared from error
            raise
        return self._translated(returned)


def dumped(value: object) -> object:
    """Give the plain JSON of an object with ``model_dump``, and anything else as it is."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) and not isinstance(value, type) else value


def _changed(shape: Continue | Route | Suspend | Finish, changes: dict[str, Any]) -> object:
    if isinstance(shape, Suspend):  # its constructor takes the waits one by one
        return Suspend(*shape.waits, usage=shape.usage, bindings=shape.bindings, **changes)
    return evolve(shape, **changes)
