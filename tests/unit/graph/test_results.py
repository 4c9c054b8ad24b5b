"""The bodies that attempts leave: wire forms, digests and bounds."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
import rfc8785

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.graph.results import (
    ContinueControl,
    InvocationBinding,
    InvocationKind,
    NodeFailure,
    NodeResult,
    RouteControl,
    TerminalControl,
    Unchanged,
    Update,
    WaitControl,
)
from agentruns.domain.ids import InvocationId
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.numbers import InvocationNumber
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scalars import JournalEventKind, RouteId
from agentruns.domain.usage import BudgetUsage
from agentruns.domain.waits import NodeWait
from agentruns.domain.wire import decode, from_wire, to_wire
from agentruns.errors import InvalidJsonError, InvalidValueError
from agentruns.testing.samples import failure, sample_id, schema_reference

BINDING = {"kind": "tool", "invocation_id": str(sample_id(InvocationId, 1)), "number": "2"}
USAGE = BudgetUsage.of(input_tokens=3, known_costs={"EUR": 5})


def value(tree: Any) -> BoundedJson:
    return BoundedJson.of(tree, JsonLimits.MAXIMUM)


def binding(kind: InvocationKind = InvocationKind.TOOL, number: int = 1) -> InvocationBinding:
    return InvocationBinding(kind=kind, invocation_id=sample_id(InvocationId, number), number=InvocationNumber(2))


def result(**members: Any) -> NodeResult:
    defaults: dict[str, Any] = {
        "state_change": Unchanged(),
        "control": ContinueControl(),
        "bindings": (),
        "usage": BudgetUsage.zero(),
    }
    return NodeResult(**(defaults | members))


@pytest.mark.parametrize(
    ("change", "control", "tree"),
    [
        (Unchanged(), ContinueControl(), [{"kind": "unchanged"}, {"kind": "continue"}]),
        (
            Update(data=value({"b": 1, "a": [None]})),
            RouteControl(route_id=RouteId("pay")),
            [{"kind": "update", "data": {"a": [None], "b": 1}}, {"kind": "route", "route_id": "pay"}],
        ),
        (
            Update(data=value(None)),
            TerminalControl(output=value("é")),
            [{"kind": "update", "data": None}, {"kind": "terminal", "output": "é"}],
        ),
    ],
)
def test_the_wire_form(change: Unchanged | Update, control: Any, tree: list[Any]) -> None:
    found = result(state_change=change, control=control, bindings=(binding(),), usage=USAGE)
    whole = {"state_change": tree[0], "control": tree[1], "bindings": [BINDING], "usage": to_wire(USAGE)}
    assert to_wire(found) == whole
    assert from_wire(whole, NodeResult) == found
    assert found.canonical == rfc8785.dumps(whole)
    assert decode(found.canonical, NodeResult) == found


def test_waits_stay_relative() -> None:
    wait = NodeWait.timer(due_in=timedelta(seconds=30))
    control = WaitControl(waits=(wait,))
    assert to_wire(control) == {"kind": "wait", "waits": [to_wire(wait)]}
    assert decode(result(control=control).canonical, NodeResult).control == control


def test_digests_are_separated_by_purpose() -> None:
    found = result()
    assert found.digest.hex == sha256(b"agentruns/node-result/v1\0" + found.canonical).hexdigest()
    failed = NodeFailure(failure=failure(), usage=USAGE)
    assert failed.canonical == rfc8785.dumps({"failure": to_wire(failure()), "usage": to_wire(USAGE)})
    assert failed.digest.hex == sha256(b"agentruns/node-failure/v1\0" + failed.canonical).hexdigest()
    assert decode(failed.canonical, NodeFailure) == failed


def test_bindings_are_in_order() -> None:
    model = binding(InvocationKind.MODEL, 9)
    ordered = (model, binding(number=1), binding(number=2))
    assert result(bindings=ordered).bindings == ordered
    for bindings in ((binding(), model), (model, model), (binding(number=2), binding(number=1))):
        with pytest.raises(InvalidValueError) as caught:
            result(bindings=bindings)
        assert caught.value.reason == "binding_invalid"


def test_a_result_has_at_most_256_bindings() -> None:
    bindings = tuple(binding(number=number) for number in range(257))
    assert len(result(bindings=bindings[:256]).bindings) == 256
    with pytest.raises(InvalidValueError) as caught:
        result(bindings=bindings)
    assert caught.value.reason == "binding_invalid"


@pytest.mark.parametrize("member", ["state_change", "control", "bindings", "usage"])
def test_members_have_exactly_their_classes(member: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        result(**{member: []})
    assert (caught.value.reason, caught.value.path) == ("wrong_type", (member,))


@pytest.mark.parametrize(
    ("cls", "members"),
    [
        (Update, {"data": {}}),
        (RouteControl, {"route_id": "pay"}),
        (WaitControl, {"waits": [NodeWait.timer(due_in=timedelta(0))]}),
        (TerminalControl, {"output": {}}),
        (NodeFailure, {"failure": None, "usage": USAGE}),
    ],
)
def test_parts_have_exactly_their_classes(cls: Any, members: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError) as caught:
        cls(**members)
    assert caught.value.reason == "wrong_type"


def test_an_output_is_within_the_default_limits() -> None:
    TerminalControl(output=value("x" * 65_536))
    with pytest.raises(InvalidJsonError) as caught:
        TerminalControl(output=value(["x" * 65_536] * 4))
    assert (caught.value.reason, caught.value.limit) == ("too_large", 262_144)


def test_a_body_is_at_most_16_mib() -> None:
    data = value(["x" * 1_000_000] * 2)
    payload = JournalPayload(schema=schema_reference("question"), kind=JournalEventKind("question"), data=data)
    waits = tuple(NodeWait.interrupt("input", request=payload) for _ in range(9))
    assert len(result(control=WaitControl(waits=waits[:8])).canonical) < 16 * 1024 * 1024
    with pytest.raises(InvalidValueError) as caught:
        result(control=WaitControl(waits=waits))
    assert (caught.value.type_name, caught.value.reason) == ("NodeResult", "too_large")


def test_an_update_of_depth_64_fits_into_its_result() -> None:
    tree: Any = 1
    for _ in range(64):
        tree = [tree]
    found = result(state_change=Update(data=value(tree)))
    assert decode(found.canonical, NodeResult) == found


def test_nothing_of_the_data_is_shown() -> None:
    found = result(state_change=Update(data=value({"canary": 1})), control=TerminalControl(output=value("canary")))
    assert "canary" not in repr(found)
    assert "BoundedJson" not in repr(found)
