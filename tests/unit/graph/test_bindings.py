"""Which calls a node may bind, and which it must."""

from __future__ import annotations

import pytest
from attrs import frozen

from agentruns.domain.graph.bindings import (
    InvocationBinding,
    InvocationKind,
    InvocationStatus,
    are_settled,
    settled_bindings,
)
from agentruns.domain.ids import InvocationId
from agentruns.domain.numbers import InvocationNumber
from agentruns.domain.scalars import NodeId
from agentruns.testing.samples import sample_id

MODEL, TOOL = InvocationKind.MODEL, InvocationKind.TOOL
PREPARED, EXECUTING, UNKNOWN = InvocationStatus.PREPARED, InvocationStatus.EXECUTING, InvocationStatus.UNKNOWN
COMMITTED, FAILED = InvocationStatus.COMMITTED, InvocationStatus.FAILED
NODE, OTHER = NodeId("a"), NodeId("b")


@frozen(kw_only=True)
class Call:
    kind: InvocationKind
    node_id: NodeId
    number: InvocationNumber
    status: InvocationStatus


def call(status: InvocationStatus, kind: InvocationKind = TOOL, node_id: NodeId = NODE, number: int = 2) -> Call:
    return Call(kind=kind, node_id=node_id, number=InvocationNumber(number), status=status)


def calls(*given: Call) -> dict[InvocationId, Call]:
    return {sample_id(InvocationId, number): each for number, each in enumerate(given)}


def binding(position: int, kind: InvocationKind = TOOL, number: int = 2) -> InvocationBinding:
    return InvocationBinding(
        kind=kind, invocation_id=sample_id(InvocationId, position), number=InvocationNumber(number)
    )


def test_settled_calls_of_the_node_are_bound_models_first() -> None:
    invocations = calls(
        call(COMMITTED),
        call(FAILED, MODEL),
        call(PREPARED),
        call(COMMITTED, node_id=OTHER),
        call(EXECUTING),
        call(UNKNOWN),
        call(COMMITTED, MODEL, number=7),
    )
    assert settled_bindings(NODE, invocations) == (binding(1, MODEL), binding(6, MODEL, 7), binding(0))


@pytest.mark.parametrize(
    ("bindings", "invocations", "expected"),
    [
        ((), calls(), True),
        ((), calls(call(COMMITTED)), True),
        ((binding(0),), calls(call(COMMITTED)), True),
        ((binding(0),), calls(call(FAILED)), True),
        ((), calls(call(PREPARED, node_id=OTHER), call(FAILED, node_id=OTHER)), True),
        ((binding(0),), calls(), False),
        ((binding(0),), calls(call(COMMITTED, node_id=OTHER)), False),
        ((binding(0, MODEL),), calls(call(COMMITTED)), False),
        ((binding(0, number=1),), calls(call(COMMITTED)), False),
        ((binding(0),), calls(call(PREPARED)), False),
        ((), calls(call(FAILED)), False),
        ((binding(0),), calls(call(COMMITTED), call(FAILED)), False),
        ((), calls(call(PREPARED)), False),
        ((), calls(call(EXECUTING)), False),
        ((), calls(call(UNKNOWN)), False),
    ],
)
def test_a_node_succeeds_on_settled_calls(
    bindings: tuple[InvocationBinding, ...],
    invocations: dict[InvocationId, Call],
    expected: bool,  # noqa: FBT001  # a parameter
) -> None:
    assert are_settled(NODE, bindings, invocations) is expected
