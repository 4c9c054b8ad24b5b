"""What may be returned, and every reason for which a result or a declared failure is refused, in order."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve, frozen

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.failure import FailureCategory, NeverRetry, ReconcileFirst, SafeAfter
from agentruns.domain.graph.bindings import InvocationBinding, InvocationKind, InvocationStatus
from agentruns.domain.graph.check import check_failure, check_result, verify_result
from agentruns.domain.graph.definition import GraphNode
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.results import (
    ContinueControl,
    NodeFailure,
    NodeResult,
    RouteControl,
    TerminalControl,
    Unchanged,
    Update,
    WaitControl,
)
from agentruns.domain.graph.returns import Continue, Finish, Route, Suspend, take_return
from agentruns.domain.identity import SchemaReference
from agentruns.domain.ids import EventId, InvocationId, WaitId
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.numbers import DurationMillis, InvocationNumber
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scalars import JournalEventKind, NodeId, RouteId
from agentruns.domain.schema import JsonSchemaRegistry
from agentruns.domain.usage import BudgetUsage
from agentruns.domain.waits import NodeWait
from agentruns.errors import ExecutableGraphUnavailableError, InvalidValueError
from agentruns.testing.graphs import executable_of, schemas_of
from agentruns.testing.samples import failure, sample_id, schema_reference

NODES = [
    GraphNode.of("a", continue_to=["b"], routes={"pay": ["b"]}, wait_to=["b"], terminal=True),
    GraphNode.of("b", continue_to=["c"]),
    GraphNode.of("c", terminal=True),
]
#: Each level of a value doubles the work, so that the validator gives up on a deep one.
DOUBLING: dict[str, Any] = {
    "$ref": "#/$defs/each",
    "$defs": {"each": {"allOf": [{"items": {"$ref": "#/$defs/each"}}, {"items": {"$ref": "#/$defs/each"}}]}},
}
KEYWORDS: Mapping[str, Mapping[str, Any]] = {
    "update": {"type": ["object", "null", "string"], "properties": {"n": {"type": "integer"}}},
    "output": {"type": "string"},
}
USAGE = BudgetUsage.of(tool_calls=1)


@pytest.fixture(scope="module")
def graph() -> ExecutableGraph:
    return executable_of(NODES, keywords=KEYWORDS)


NODE, NUMBER = NodeId("a"), InvocationNumber(2)


@frozen(kw_only=True)
class Call:
    kind: InvocationKind = InvocationKind.MODEL
    node_id: NodeId = NODE
    number: InvocationNumber = NUMBER
    status: InvocationStatus = InvocationStatus.COMMITTED


CALL = sample_id(InvocationId, 1)
BOUND = InvocationBinding(kind=InvocationKind.MODEL, invocation_id=CALL, number=InvocationNumber(2))
WAIT = NodeWait.timer(due_in=timedelta(seconds=1))


def value(tree: Any) -> BoundedJson:
    return BoundedJson.of(tree, JsonLimits.MAXIMUM)


def checked(graph: ExecutableGraph, returned: object, *, node: str = "a", **context: Any) -> NodeResult:
    arguments: dict[str, Any] = {"invocations": {}} | context
    return check_result(graph, node_id=NodeId(node), returned=returned, **arguments)


def reason(graph: ExecutableGraph, returned: object, *, node: str = "a", **context: Any) -> str:
    with pytest.raises(InvalidValueError) as caught:
        checked(graph, returned, node=node, **context)
    error = caught.value
    assert type(error) is InvalidValueError
    assert error.type_name == "NodeResult"
    assert error.__cause__ is None
    assert error.__context__ is None
    return error.reason


def result(control: Any = None, change: Any = None, bindings: tuple[Any, ...] = (), usage: Any = None) -> NodeResult:
    return NodeResult(
        state_change=change or Unchanged(),
        control=control or ContinueControl(),
        bindings=bindings,
        usage=usage or BudgetUsage.zero(),
    )


def big_wait() -> NodeWait:
    payload = JournalPayload(
        schema=schema_reference("question"), kind=JournalEventKind("question"), data=value(["x" * 1_000_000] * 2)
    )
    return NodeWait.interrupt("input", request=payload)


class Words(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (None, result()),
        ({}, result(change=Update(data=value({})))),
        ({"n": 1}, result(change=Update(data=value({"n": 1})))),
        (Continue(), result()),
        (Continue({"n": 1}), result(change=Update(data=value({"n": 1})))),
        (Continue(update="x", usage=USAGE), result(change=Update(data=value("x")), usage=USAGE)),
        (Route("pay"), result(RouteControl(route_id=RouteId("pay")))),
        (Route(RouteId("pay"), {"n": 1}), result(RouteControl(route_id=RouteId("pay")), Update(data=value({"n": 1})))),
        (Suspend(WAIT), result(WaitControl(waits=(WAIT,)))),
        (Suspend(WAIT, update={}, usage=USAGE), result(WaitControl(waits=(WAIT,)), Update(data=value({})), (), USAGE)),
        (Finish("done"), result(TerminalControl(output=value("done")))),
        (Finish("done", {"n": 1}), result(TerminalControl(output=value("done")), Update(data=value({"n": 1})))),
    ],
)
def test_everything_that_may_be_returned(graph: ExecutableGraph, returned: object, expected: NodeResult) -> None:
    found = checked(graph, returned)
    assert found == expected
    verify_result(graph, node_id=NodeId("a"), result=found, invocations={})


@pytest.mark.parametrize(
    "returned",
    [
        "pay",
        [],
        1,
        True,
        (Continue(),),
        Continue,
        WAIT,
        result(),
        Route(NodeId("pay")),  # type: ignore[arg-type]  # what is refused
        Route(Words("pay")),
        Continue(bindings=5),  # type: ignore[arg-type]  # what is refused
        Continue(bindings={BOUND: BOUND}),  # type: ignore[arg-type]  # what is refused
    ],
)
def test_1_an_unknown_shape(graph: ExecutableGraph, returned: object) -> None:
    assert reason(graph, returned) == "unknown_shape"


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ({"x": (1, 2)}, "not_json"),
        ({1: 2}, "not_json"),
        ({"x": float("nan")}, "not_json"),
        ({"x": 2**53}, "not_json"),
        (Continue(Words("x")), "not_json"),
        (Finish(b"x"), "not_json"),  # type: ignore[arg-type]  # what is refused
        (Finish("\ud800"), "not_json"),
        ({"x": "y" * (1024 * 1024 + 1)}, "too_large"),
        ({"x": ["y" * 1_000_000] * 3}, "too_large"),
        (Finish("y" * 65_537), "too_large"),
        (Finish([*["y" * 60_000] * 5]), "too_large"),
        (Suspend(*(big_wait() for _ in range(9))), "too_large"),
    ],
)
def test_2_no_json_or_too_large(graph: ExecutableGraph, returned: object, expected: str) -> None:
    assert reason(graph, returned) == expected


def test_2_the_bound_of_a_body_is_exact(graph: ExecutableGraph) -> None:
    waits = [big_wait() for _ in range(8)]
    room = 16 * 1024 * 1024 - len(checked(graph, Suspend(*waits, update="")).canonical)
    assert len(checked(graph, Suspend(*waits, update="x" * room)).canonical) == 16 * 1024 * 1024
    assert reason(graph, Suspend(*waits, update="x" * (room + 1))) == "too_large"


@pytest.mark.parametrize(
    "returned", [{"n": "x"}, Continue(1), Route("nowhere", {"n": "x"}), Finish(5, {"n": "x"}), Suspend(update=[])]
)
def test_3_a_rejected_update(graph: ExecutableGraph, returned: object) -> None:
    assert reason(graph, returned) == "update_rejected"


@pytest.mark.parametrize(
    ("node", "returned"),
    [("c", None), ("b", Suspend()), ("b", Finish(5)), ("c", Continue(bindings=[5]))],  # type: ignore[list-item]  # what is refused
)
def test_4_an_undeclared_control(graph: ExecutableGraph, node: str, returned: object) -> None:
    assert reason(graph, returned, node=node) == "control_undeclared"


@pytest.mark.parametrize(("node", "name"), [("a", "other"), ("a", "no id!"), ("b", "pay"), ("a", "")])
def test_4_an_undeclared_route(graph: ExecutableGraph, node: str, name: str) -> None:
    assert reason(graph, Route(name), node=node) == "route_undeclared"


def test_5_a_rejected_output(graph: ExecutableGraph) -> None:
    returned = Finish(5, bindings=[5])  # type: ignore[list-item]  # what is refused, but later
    assert reason(graph, returned) == "output_rejected"


@pytest.mark.parametrize(
    "returned",
    [
        Suspend(),
        Suspend(*(NodeWait.timer(due_in=timedelta(0)) for _ in range(65))),
        Suspend(WAIT, WAIT),
        Suspend(WAIT, "x"),  # type: ignore[arg-type]  # what is refused
        Suspend(NodeWait(), bindings=[5]),  # type: ignore[list-item]  # what is refused
    ],
)
def test_6_an_invalid_batch_of_waits(graph: ExecutableGraph, returned: object) -> None:
    assert reason(graph, returned, used_wait_ids={WAIT.wait_id}) == "wait_batch_invalid"


def test_6_the_id_of_a_wait_that_the_run_has_used(graph: ExecutableGraph) -> None:
    returned = Suspend(WAIT, bindings=[5])  # type: ignore[list-item]  # what is refused, but later
    assert reason(graph, returned, used_wait_ids={WAIT.wait_id, sample_id(WaitId, 1)}) == "wait_id_reused"
    assert checked(graph, Suspend(WAIT), used_wait_ids={sample_id(WaitId, 1)}).control == WaitControl(waits=(WAIT,))


@pytest.mark.parametrize(
    ("bindings", "calls"),
    [
        ([5], {}),
        ([BOUND], {}),
        ([BOUND, BOUND], {CALL: Call()}),
        ([], {CALL: Call(status=InvocationStatus.FAILED)}),
        (None, {CALL: Call(status=InvocationStatus.EXECUTING)}),
    ],
)
def test_7_invalid_bindings(graph: ExecutableGraph, bindings: Any, calls: dict[InvocationId, Call]) -> None:
    returned = Continue(bindings=bindings, usage=5)  # type: ignore[arg-type]  # what is refused, but later
    assert reason(graph, returned, invocations=calls) == "binding_invalid"


def test_8_invalid_usage(graph: ExecutableGraph) -> None:
    assert reason(graph, Continue(usage={"tool_calls": 1})) == "usage_invalid"  # type: ignore[arg-type]  # what is refused


def test_a_node_binds_what_it_names_else_what_its_coordinator_settled(graph: ExecutableGraph) -> None:
    other = evolve(BOUND, invocation_id=sample_id(InvocationId, 2), kind=InvocationKind.TOOL)
    calls = {CALL: Call(), other.invocation_id: Call(kind=InvocationKind.TOOL)}
    assert checked(graph, None, invocations=calls).bindings == (BOUND, other)
    assert checked(graph, None, invocations=calls, default_bindings=[other]).bindings == (other,)
    assert checked(graph, Continue(bindings=()), invocations=calls, default_bindings=[other]).bindings == ()
    assert checked(graph, Continue(bindings=[other, BOUND]), invocations=calls).bindings == (BOUND, other)


def test_what_was_returned_is_taken_at_once(graph: ExecutableGraph) -> None:
    returned: dict[str, Any] = {"n": 1}
    taken = take_return(returned)
    returned["n"] = 2
    assert checked(graph, taken).state_change == Update(data=value({"n": 1}))


def test_a_schema_that_is_not_installed_is_no_verdict() -> None:
    executable = executable_of(NODES, keywords=KEYWORDS)
    bare = ExecutableGraph(
        definition=executable.definition, reducer=executable.reducer, executors={}, schemas=schemas_of()
    )
    with pytest.raises(ExecutableGraphUnavailableError) as caught:
        checked(bare, {"n": 1})
    assert (caught.value.reason, caught.value.graph) == ("schema", bare.digest)
    assert checked(bare, None) == result()


def test_a_validator_that_fails_rejects_what_is_returned_and_says_nothing_of_what_is_stored() -> None:
    tree: Any = 1
    for _ in range(20):
        tree = [tree]
    executable = executable_of(NODES, keywords={"update": DOUBLING})
    assert reason(executable, Continue(tree)) == "update_rejected"
    with pytest.raises(ExecutableGraphUnavailableError) as caught:
        verify_result(executable, node_id=NodeId("a"), result=result(change=Update(data=value(tree))), invocations={})
    assert (caught.value.reason, caught.value.graph) == ("validator", executable.digest)


@pytest.mark.parametrize(
    ("node", "stored", "calls", "expected"),
    [
        ("a", result(change=Update(data=value({"n": "x"}))), {}, "update_rejected"),
        ("c", result(), {}, "control_undeclared"),
        ("a", result(RouteControl(route_id=RouteId("other"))), {}, "route_undeclared"),
        ("a", result(TerminalControl(output=value(5))), {}, "output_rejected"),
        ("a", result(bindings=(BOUND,)), {}, "binding_invalid"),
        ("a", result(), {CALL: Call(status=InvocationStatus.FAILED)}, "binding_invalid"),
    ],
)
def test_a_stored_result_is_held_against_the_same_rules(
    graph: ExecutableGraph, node: str, stored: NodeResult, calls: dict[InvocationId, Call], expected: str
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        verify_result(graph, node_id=NodeId(node), result=stored, invocations=calls)
    assert caught.value.reason == expected


def test_what_has_accepted_a_result_need_not_again_but_nothing_else_is_believed(
    graph: ExecutableGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, returned = result(change=Update(data=value({"n": 1}))), checked(graph, {"n": 1})
    verify_result(graph, node_id=NODE, result=stored, invocations={})
    asked: list[BoundedJson] = []
    validate = JsonSchemaRegistry.validate

    def counted(registry: JsonSchemaRegistry, reference: SchemaReference, tree: BoundedJson) -> None:
        asked.append(tree)
        validate(registry, reference, tree)

    monkeypatch.setattr(JsonSchemaRegistry, "validate", counted)
    for each in (stored, returned):
        verify_result(graph, node_id=NODE, result=each, invocations={})
        assert not asked
        with pytest.raises(InvalidValueError, match="control_undeclared"):
            verify_result(graph, node_id=NodeId("c"), result=each, invocations={})
        with pytest.raises(InvalidValueError, match="binding_invalid"):
            verify_result(graph, node_id=NODE, result=each, invocations={CALL: Call(status=InvocationStatus.FAILED)})
        other = executable_of(NODES, keywords={"update": {"type": "null"}})
        with pytest.raises(InvalidValueError, match="update_rejected"):
            verify_result(other, node_id=NODE, result=each, invocations={})
        asked.clear()


def test_a_declared_failure_is_recorded() -> None:
    declared = failure(retry_advice=SafeAfter(delay=DurationMillis(5)))
    assert check_failure(declared) == NodeFailure(failure=declared, usage=BudgetUsage.zero())
    assert check_failure(declared, USAGE) == NodeFailure(failure=declared, usage=USAGE)


@pytest.mark.parametrize(
    ("members", "usage", "expected"),
    [
        (
            {
                "caused_by_event_id": sample_id(EventId, 1),
                "category": FailureCategory.AMBIGUOUS_EXTERNAL_OUTCOME,
                "retry_advice": ReconcileFirst(),
            },
            None,
            "already_caused",
        ),
        (
            {"category": FailureCategory.AMBIGUOUS_EXTERNAL_OUTCOME, "retry_advice": ReconcileFirst()},
            None,
            "reconcile_first",
        ),
        ({"category": FailureCategory.CANCELLED, "retry_advice": NeverRetry()}, 5, "category"),
        ({}, 5, "usage_invalid"),
    ],
)
def test_a_failure_that_no_node_may_declare(members: dict[str, Any], usage: Any, expected: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        check_failure(failure(**members), usage)
    assert (caught.value.type_name, caught.value.reason) == ("NodeFailure", expected)


@pytest.mark.parametrize("declared", ["card declined", None, {"code": "card.declined"}, ValueError("card declined")])
def test_what_is_no_failure_at_all_cannot_be_declared(declared: Any) -> None:
    with pytest.raises(InvalidValueError) as caught:
        check_failure(declared, 5)
    assert (caught.value.type_name, caught.value.reason) == ("NodeFailure", "unknown_shape")


def test_returns_do_not_show_their_data() -> None:
    secret: Any = {"secret": "canary"}
    for returned in (Continue(secret), Route("pay", secret), Suspend(WAIT, update=secret), Finish(secret, secret)):
        assert "canary" not in repr(returned)
    assert "canary" not in repr(take_return(Finish("canary", secret)))
