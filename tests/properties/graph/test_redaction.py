"""No error of the graph domain shows anything of a state, an update, an output or a payload."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve, field, frozen
from hypothesis import given
from hypothesis import strategies as st

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.graph.barrier import as_read, plan_barrier
from agentruns.domain.graph.check import check_result, verify_result
from agentruns.domain.graph.definition import GraphNode, GraphReducerReference, ReadyNodes
from agentruns.domain.graph.reducers import MergeReducer
from agentruns.domain.graph.results import NodeResult
from agentruns.domain.graph.returns import Continue, Finish, Route, Suspend
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.numbers import Superstep
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scalars import JournalEventKind, NodeId
from agentruns.domain.waits import NodeWait
from agentruns.errors import AgentRunsError, BarrierRejectedError, DeploymentError, ReducerRejectedError
from agentruns.testing.graphs import executable_of
from agentruns.testing.samples import schema_reference

A, B = NodeId("a"), NodeId("b")
STRICT: dict[str, dict[str, Any]] = {
    "state": {"type": "object", "additionalProperties": {"type": "array"}},
    "update": {"type": "object", "additionalProperties": {"type": ["array", "number"]}},
    "output": {"type": "integer"},
}
NODES = [GraphNode.of("a", continue_to=["b"], wait_to=["b"]), GraphNode.of("b", terminal=True)]
STRICT_GRAPH = executable_of(NODES, keywords=STRICT)
LAX_GRAPH = executable_of(NODES)

marks = st.text("abcdefghijklmnopqrstuvwxyz", min_size=12, max_size=12).map(lambda text: f"canary{text}")


@frozen
class Raising:
    """Raise what quotes the state, as user code may."""

    error: Callable[[str], Exception]
    reference: GraphReducerReference = field(factory=lambda: MergeReducer().reference)

    def reduce(self, state: Any, updates: Any) -> Any:
        raise self.error(f"{state} {updates[0].update}")


def value(tree: Any) -> BoundedJson:
    return BoundedJson.of(tree, JsonLimits.MAXIMUM)


def texts(error: BaseException) -> str:
    """Write an error in every way in which it may come to light."""
    chained = [error]
    while (more := chained[-1].__cause__ or chained[-1].__context__) is not None:
        chained.append(more)
    record = logging.LogRecord("x", logging.ERROR, "x", 1, "%s %r", (error, error), None)
    told = [f"{each!s} {each!r} {each.args!r}" for each in chained]
    return "\n".join([*told, *traceback.format_exception(error), record.getMessage()])


def refused(call: Callable[..., object], *arguments: Any, **members: Any) -> AgentRunsError:
    with pytest.raises(AgentRunsError) as caught:
        call(*arguments, **members)
    return caught.value


def returned_with(mark: str) -> list[Any]:
    payload = JournalPayload(
        schema=schema_reference("question"), kind=JournalEventKind("question"), data=value({mark: mark})
    )
    wait = NodeWait.interrupt("input", request=payload)
    return [
        {mark: mark},
        {mark: (mark,)},
        {mark: [float("nan")], "x": mark},
        {mark: "\ud800"},
        {mark: [mark * 100_000]},
        Continue(mark),
        Continue({}, bindings=[mark]),  # type: ignore[list-item]  # what is refused
        Continue({}, usage=mark),  # type: ignore[arg-type]  # what is refused
        Route(f"{mark} {mark}"),
        Route("x", {mark: mark}),
        Finish(mark),
        Suspend(wait, wait),
        Suspend(mark, update={}),  # type: ignore[arg-type]  # what is refused
        [mark],
    ]


def plan(graph: Any, state: Any, result: NodeResult) -> object:
    return plan_barrier(
        graph, superstep=Superstep(0), state=value(state), ready_nodes=ReadyNodes((A,)), results={A: result}
    )


@given(marks)
def test_GRA_08_refused_results_show_nothing(mark: str) -> None:
    for returned in returned_with(mark):
        error = refused(check_result, STRICT_GRAPH, node_id=A, returned=returned, invocations={})
        assert mark not in texts(error)


@given(marks)
def test_GRA_08_stored_results_show_nothing(mark: str) -> None:
    for returned in ({mark: mark}, Continue([mark])):
        result = check_result(LAX_GRAPH, node_id=A, returned=returned, invocations={})
        error = refused(verify_result, STRICT_GRAPH, node_id=A, result=result, invocations={})
        assert mark not in texts(error)
        assert mark not in texts(refused(plan, STRICT_GRAPH, {}, result))


@given(marks)
def test_GRA_08_states_show_nothing(mark: str) -> None:
    unchanged = check_result(STRICT_GRAPH, node_id=A, returned=None, invocations={})
    assert mark not in texts(refused(plan, STRICT_GRAPH, {mark: mark}, unchanged))
    rejected = check_result(STRICT_GRAPH, node_id=A, returned={mark: 5}, invocations={})
    assert mark not in texts(refused(plan, STRICT_GRAPH, {mark: [mark]}, rejected))
    assert mark not in texts(refused(plan, LAX_GRAPH, mark, rejected))


errors: list[Callable[[str], Exception]] = [
    ValueError,
    KeyError,
    lambda text: ReducerRejectedError(code=text),
    lambda text: DeploymentError(reason="down", detail=text),
    MemoryError,
    lambda text: BarrierRejectedError(reason=text),
]


@given(marks, st.sampled_from(errors))
def test_GRA_08_reducers_show_nothing(mark: str, error: Callable[[str], Exception]) -> None:
    graph = evolve(LAX_GRAPH, reducer=Raising(error))
    result = check_result(LAX_GRAPH, node_id=A, returned={mark: mark}, invocations={})
    found = refused(plan, graph, {mark: mark}, result)
    assert mark not in texts(found)
    if isinstance(found, BarrierRejectedError):
        assert mark not in texts(as_read(found, graph))
