"""What a node may return, and the taking of it: bytes at once, so that nothing changes it later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from attrs import field, frozen

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import JsonTree
from agentruns.domain.graph.bindings import InvocationBinding
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.scalars import RouteId
from agentruns.domain.usage import BudgetUsage
from agentruns.domain.waits import NodeWait
from agentruns.errors import InvalidJsonError, InvalidValueError

__all__ = ["Continue", "Finish", "NodeReturn", "Route", "Suspend", "TakenReturn", "refused_result", "take_return"]


@frozen
class Continue:
    """Go on to the node's successors.

    Attributes:
        update: plain JSON for the reducer; ``None`` leaves the state as it is.
        usage: what this attempt used itself, outside calls of models and tools, which are charged on their own.
            What cannot be added to the run's usage without an overflow is refused, and the attempt has failed.
        bindings: the settled calls it stands on; by default those of this attempt's coordinator.
    """

    update: JsonTree = field(default=None, repr=False)
    usage: BudgetUsage = field(factory=BudgetUsage.zero, kw_only=True, repr=False)
    bindings: Sequence[InvocationBinding] | None = field(default=None, kw_only=True)


@frozen
class Route:
    """Go on along one of the node's routes.

    Attributes:
        route_id: as the graph declares it.
        update, usage, bindings: as in :class:`Continue`.
    """

    route_id: RouteId | str
    update: JsonTree = field(default=None, repr=False)
    usage: BudgetUsage = field(factory=BudgetUsage.zero, kw_only=True, repr=False)
    bindings: Sequence[InvocationBinding] | None = field(default=None, kw_only=True)


@frozen(init=False)
class Suspend:
    """Let the run wait, and go on to the node's ``wait_to`` once every wait is settled. The node is not run again.

    Attributes:
        waits: 1..64 waits with distinct ids, in their order.
        update, usage, bindings: as in :class:`Continue`.
    """

    waits: tuple[NodeWait, ...]
    update: JsonTree = field(repr=False)
    usage: BudgetUsage = field(repr=False)
    bindings: Sequence[InvocationBinding] | None

    def __init__(
        self,
        *waits: NodeWait,
        update: JsonTree = None,
        usage: BudgetUsage | None = None,
        bindings: Sequence[InvocationBinding] | None = None,
    ) -> None:
        used = BudgetUsage.zero() if usage is None else usage
        self.__attrs_init__(waits=waits, update=update, usage=used, bindings=bindings)


@frozen
class Finish:
    """End the graph with an output, as the only node of its superstep.

    Attributes:
        output: plain JSON within the default limits; what is larger is an artifact.
        update: lands in the final state.
        usage, bindings: as in :class:`Continue`.
    """

    output: JsonTree = field(repr=False)
    update: JsonTree = field(default=None, repr=False)
    usage: BudgetUsage = field(factory=BudgetUsage.zero, kw_only=True, repr=False)
    bindings: Sequence[InvocationBinding] | None = field(default=None, kw_only=True)


NodeReturn: TypeAlias = Continue | Route | Suspend | Finish | dict[str, JsonTree] | None


@frozen(kw_only=True)
class TakenReturn:
    """Hold what a node returned, with its JSON as bytes. What stands beside the JSON is not checked yet.

    Attributes:
        control: one of the four classes that a node returns.
        route_id: of a ``Route``.
        waits: of a ``Suspend``.
        output: of a ``Finish``.
        bindings: ``None`` where the node left them to its coordinator.
    """

    control: type[Continue | Route | Suspend | Finish]
    update: BoundedJson | None
    route_id: str = ""
    waits: tuple[object, ...] = ()
    output: BoundedJson | None = None
    bindings: tuple[object, ...] | None
    usage: object = field(repr=False)


def take_return(returned: object) -> TakenReturn:
    """Take what a node returned, synchronously, when its function returns.

    Raises:
        InvalidValueError: ``unknown_shape``, ``not_json`` or ``too_large``; nothing of what was returned is in it.
    """
    shape = _shape(returned)
    return TakenReturn(
        control=type(shape),
        update=None if shape.update is None else _json(shape.update, JsonLimits.MAXIMUM),
        route_id=_route_id(shape.route_id) if isinstance(shape, Route) else "",
        waits=shape.waits if isinstance(shape, Suspend) else (),
        output=_json(shape.output, JsonLimits.DEFAULT) if isinstance(shape, Finish) else None,
        bindings=None if shape.bindings is None else _entries(shape.bindings),
        usage=shape.usage,
    )


def refused_result(reason: str) -> InvalidValueError:
    """Say why a result cannot stand: one of the closed reasons, for a failed attempt's details."""
    return InvalidValueError(type_name="NodeResult", reason=reason)


def _shape(returned: object) -> Continue | Route | Suspend | Finish:
    if type(returned) in (Continue, Route, Suspend, Finish):
        return returned  # type: ignore[return-value]  # one of the four, by its exact class
    if returned is None or type(returned) is dict:
        return Continue(returned)
    raise refused_result("unknown_shape")


def _route_id(route_id: object) -> str:
    if type(route_id) not in (str, RouteId):
        raise refused_result("unknown_shape")
    return str(route_id)


def _entries(bindings: object) -> tuple[object, ...]:
    if type(bindings) is not tuple and type(bindings) is not list:
        raise refused_result("unknown_shape")
    return tuple(bindings)


def _json(tree: JsonTree, limits: JsonLimits) -> BoundedJson:
    """Take a tree's bytes. An error about JSON leads to private places, so ours is raised where it is out of sight."""
    try:
        return BoundedJson.of(tree, limits)
    except InvalidJsonError as error:
        reason = "not_json" if error.limit is None else "too_large"
    raise refused_result(reason)
