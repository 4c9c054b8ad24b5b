"""What an attempt leaves behind: the result of a success, or the failure."""

from __future__ import annotations

from typing import ClassVar, Final, TypeAlias

from attrs import field, frozen

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import DigestPurpose
from agentruns.domain.failure import Failure
from agentruns.domain.graph.bindings import InvocationBinding, InvocationKind, are_in_order
from agentruns.domain.json_bounds import check_json
from agentruns.domain.json_limits import MIB, JsonLimits
from agentruns.domain.kept import KeptBytes
from agentruns.domain.members import check_members
from agentruns.domain.scalars import RouteId
from agentruns.domain.usage import BudgetUsage
from agentruns.domain.waits import InterruptWait, TimerWait, check_batch
from agentruns.domain.wire import register_union
from agentruns.errors import InvalidValueError

__all__ = [
    "ContinueControl",
    "InvocationBinding",
    "InvocationKind",
    "NodeControl",
    "NodeFailure",
    "NodeResult",
    "RouteControl",
    "StateChange",
    "TerminalControl",
    "Unchanged",
    "Update",
    "WaitControl",
]

MAXIMUM_RESULT_BYTES: Final = 16 * MIB
MAXIMUM_FAILURE_BYTES: Final = MIB


@frozen(kw_only=True)
class Unchanged:
    """Leave the state as it is."""


@frozen(kw_only=True)
class Update:
    """Hand an update to the reducer.

    Attributes:
        data: JSON within the maximum limits, under the graph's update schema.
    """

    data: BoundedJson = field(repr=False, metadata={"limits": JsonLimits.MAXIMUM})

    def __attrs_post_init__(self) -> None:
        check_members(self)


StateChange: TypeAlias = Unchanged | Update


@frozen(kw_only=True)
class ContinueControl:
    """Go on to the node's successors."""


@frozen(kw_only=True)
class RouteControl:
    """Go on along one of the node's routes."""

    route_id: RouteId

    def __attrs_post_init__(self) -> None:
        check_members(self)


@frozen(kw_only=True)
class WaitControl:
    """Let the run wait.

    Attributes:
        waits: 1..64 with distinct ids, in their order; relative instants are still relative.
    """

    waits: tuple[InterruptWait | TimerWait, ...]

    def __attrs_post_init__(self) -> None:
        check_members(self)
        check_batch(self.waits)


@frozen(kw_only=True)
class TerminalControl:
    """End the graph.

    Attributes:
        output: JSON within the default limits, under the graph's output schema.
    """

    output: BoundedJson = field(repr=False, metadata={"limits": JsonLimits.DEFAULT})

    def __attrs_post_init__(self) -> None:
        check_members(self)
        check_json(self, self.output, JsonLimits.DEFAULT)


NodeControl: TypeAlias = ContinueControl | RouteControl | WaitControl | TerminalControl

register_union(StateChange, tag="kind", variants={"unchanged": Unchanged, "update": Update})
register_union(
    NodeControl,
    tag="kind",
    variants={
        "continue": ContinueControl,
        "route": RouteControl,
        "wait": WaitControl,
        "terminal": TerminalControl,
    },
)


class _KeptAcceptance(KeptBytes):
    """Keep, outside equality, the last node of a graph under whose rules a result was found: it never changes."""

    __slots__ = ("_accepted_by",)
    _accepted_by: tuple[object, object]

    def is_accepted_by(self, graph: object, node: object) -> bool:
        """Tell whether this very graph and node have accepted this very record."""
        kept = getattr(self, "_accepted_by", (None, None))
        return kept[0] is graph and kept[1] is node

    def keep_acceptance(self, graph: object, node: object) -> None:
        """Take note of who has accepted it."""
        object.__setattr__(self, "_accepted_by", (graph, node))


@frozen(kw_only=True)
class NodeResult(_KeptAcceptance):
    """Hold what a node decided. It names no node, fence or journal position: equal results have equal digests.

    Attributes:
        state_change: what becomes of the state.
        control: what follows.
        bindings: the settled calls it stands on, at most 256, models first, then by id.
        usage: what the attempt used itself, outside those calls.
    """

    digest_purpose: ClassVar = DigestPurpose.NODE_RESULT
    max_wire_bytes: ClassVar = MAXIMUM_RESULT_BYTES

    state_change: StateChange
    control: NodeControl
    bindings: tuple[InvocationBinding, ...]
    usage: BudgetUsage

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if not are_in_order(self.bindings):
            raise InvalidValueError(type_name="NodeResult", reason="binding_invalid")
        if isinstance(self.control, WaitControl):
            _ = self.canonical  # refuses what is too large; only the requests of waits are large enough together


@frozen(kw_only=True)
class NodeFailure(KeptBytes):
    """Hold what a failed attempt leaves.

    Attributes:
        failure: why it failed, and whether it may be repeated.
        usage: what the attempt used itself.
    """

    digest_purpose: ClassVar = DigestPurpose.NODE_FAILURE
    max_wire_bytes: ClassVar = MAXIMUM_FAILURE_BYTES

    failure: Failure
    usage: BudgetUsage

    def __attrs_post_init__(self) -> None:
        check_members(self)
