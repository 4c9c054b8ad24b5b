"""The calls of models and tools that a node's result stands on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import pairwise
from typing import Protocol

from attrs import frozen

from agentruns.domain.ids import InvocationId
from agentruns.domain.numbers import InvocationNumber
from agentruns.domain.scalars import NodeId

MAXIMUM_BINDINGS = 256


class InvocationKind(Enum):
    """Say what was called. Bindings list models before tools."""

    MODEL = "model"
    TOOL = "tool"


class InvocationStatus(Enum):
    """Say how far a call has come. ``unknown``: a tool's effect is not known."""

    PREPARED = "prepared"
    EXECUTING = "executing"
    COMMITTED = "committed"
    FAILED = "failed"
    UNKNOWN = "unknown"

    @property
    def is_settled(self) -> bool:
        """Whether it has an end, good or bad."""
        return self in (InvocationStatus.COMMITTED, InvocationStatus.FAILED)


@frozen(kw_only=True)
class InvocationBinding:
    """Name a settled call at the event that settled it.

    Attributes:
        number: that of the call's last event, counted from 0.
    """

    kind: InvocationKind
    invocation_id: InvocationId
    number: InvocationNumber

    @property
    def place(self) -> tuple[str, str]:
        """Where it stands among the bindings of a result."""
        return self.kind.value, self.invocation_id.text


class InvocationView(Protocol):
    """What a result's check needs to know of a call of this superstep."""

    @property
    def kind(self) -> InvocationKind:
        """What was called."""
        ...

    @property
    def node_id(self) -> NodeId:
        """The node that called."""
        ...

    @property
    def number(self) -> InvocationNumber:
        """Number of its last event, from 0."""
        ...

    @property
    def status(self) -> InvocationStatus:
        """How far it has come."""
        ...


Invocations = Mapping[InvocationId, InvocationView]


def are_in_order(bindings: Sequence[InvocationBinding]) -> bool:
    """Tell whether at most 256 distinct bindings stand in their order: models first, then by id."""
    return len(bindings) <= MAXIMUM_BINDINGS and all(left.place < right.place for left, right in pairwise(bindings))


def settled_bindings(node_id: NodeId, invocations: Invocations) -> tuple[InvocationBinding, ...]:
    """Bind every settled call of a node."""
    bindings = (
        InvocationBinding(kind=view.kind, invocation_id=invocation_id, number=view.number)
        for invocation_id, view in invocations.items()
        if view.node_id == node_id and view.status.is_settled
    )
    return tuple(sorted(bindings, key=lambda binding: binding.place))


def are_settled(node_id: NodeId, bindings: Sequence[InvocationBinding], invocations: Invocations) -> bool:
    """Tell whether a node may succeed with these bindings.

    Each names a settled call of the node at its last event; no call of the node is open, and none failed unbound.
    """
    if not bindings and not invocations:
        return True
    own = {each: view for each, view in invocations.items() if view.node_id == node_id}
    bound = {binding.invocation_id for binding in bindings}
    return all(_names(binding, own) for binding in bindings) and all(
        view.status is InvocationStatus.COMMITTED or (view.status is InvocationStatus.FAILED and each in bound)
        for each, view in own.items()
    )


def _names(binding: InvocationBinding, own: Invocations) -> bool:
    view = own.get(binding.invocation_id)
    return view is not None and view.kind is binding.kind and view.status.is_settled and view.number == binding.number
