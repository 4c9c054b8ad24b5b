from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from attrs import evolve, fields

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import plain_digest
from agentruns.domain.graph.nodes import GraphNode
from agentruns.domain.graph.results import TerminalControl, WaitControl
from agentruns.domain.ids import AttemptId, InvocationId, WaitId
from agentruns.domain.ledger.data import SHAPES, EventData, RegisteredWait
from agentruns.domain.ledger.effects import ToolEffect
from agentruns.domain.ledger.event import Event
from agentruns.domain.ledger.kinds import EventKind
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import InvocationNumber, RunRevision, Superstep
from agentruns.domain.scalars import NodeId
from agentruns.domain.status import RunStatus
from agentruns.domain.tool import ToolRisk
from agentruns.domain.usage import BudgetUsage
from agentruns.domain.waits import NodeWait
from agentruns.errors import AgentRunsError, CorruptDataError, RunNotRunnableError
from agentruns.testing.graphs import executable_of
from agentruns.testing.histories import as_stored
from agentruns.testing.samples import sample_id
from agentruns.testing.scripted_run import ScriptedRun

GRAPH = executable_of([GraphNode.of("a", wait_to=["a"], terminal=True, continue_to=["a"])])
DIGEST = plain_digest(b"somewhere else")
WAIT = sample_id(WaitId, 1)
DIGESTS = (
    "admission_digest",
    "submission_digest",
    "checkpoint_digest",
    "graph_digest",
    "input_digest",
    "policy_digest",
    "result_digest",
    "outcome_digest",
    "resolution_digest",
    "request_digest",
    "body_digest",
)

DRIVING = {
    "graph-node-attempt-started",
    "graph-node-attempt-succeeded",
    "graph-node-attempt-failed",
    "graph-barrier-continued",
    "graph-barrier-waiting",
    "graph-barrier-succeeded",
    "model-invocation-prepared",
    "tool-invocation-prepared",
    "model-attempt-started",
    "tool-attempt-started",
}
ENDING_CALLS = {
    "model-response-committed",
    "tool-result-committed",
    "model-error-committed",
    "tool-error-committed",
    "tool-result-reconciled",
    "tool-error-reconciled",
}
REQUESTS = {"agent-cancellation-requested", "agent-deadline-cancellation-requested"}
SETTLING = {"graph-interrupt-resolved", "graph-timer-fired"}
WORKER_FAILURE, CONTROL_FAILURE = "graph-run-failed by a worker", "graph-run-failed by the control plane"

#: The table of the specification, written down a second time.
PERMITTED = {
    RunStatus.PENDING: {"agent-admitted"},
    RunStatus.ACTIVE: DRIVING | ENDING_CALLS | REQUESTS | {WORKER_FAILURE},
    RunStatus.WAITING: SETTLING | REQUESTS | {CONTROL_FAILURE},
    RunStatus.CANCELLATION_REQUESTED: ENDING_CALLS | {"agent-cancellation-confirmed"},
    RunStatus.SUCCEEDED: set(),
    RunStatus.FAILED: set(),
    RunStatus.CANCELLED: set(),
}
REASONS = {
    RunStatus.PENDING: "transition",
    RunStatus.ACTIVE: "transition",
    RunStatus.WAITING: "waiting",
    RunStatus.CANCELLATION_REQUESTED: "cancelling",
    RunStatus.SUCCEEDED: "terminal",
    RunStatus.FAILED: "terminal",
    RunStatus.CANCELLED: "terminal",
}


def run_in(status: RunStatus) -> ScriptedRun:
    run = ScriptedRun(GRAPH)
    if status is RunStatus.WAITING:
        run.run_node("a", WaitControl(waits=(NodeWait.timer(due_in=timedelta(0), id=WAIT),)))
        run.suspend()
    elif status is RunStatus.SUCCEEDED:
        run.run_node("a", TerminalControl(output=BoundedJson.of(None)))
        run.succeed()
    elif status is RunStatus.FAILED:
        run.start("a")
        run.fail_attempt("a")
        run.fail()
    elif status in (RunStatus.CANCELLATION_REQUESTED, RunStatus.CANCELLED):
        run.request_cancellation()
    if status is RunStatus.CANCELLED:
        run.confirm_cancellation()
    return run


def data_of(kind: EventKind, state: RunState) -> EventData:
    """Make data whose position is the state's, and of which nothing else is true."""
    values: dict[str, Any] = {
        **dict.fromkeys(DIGESTS, DIGEST),
        "kind": kind,
        "superstep": state.superstep,
        "revision": state.revision.next(),
        "node_id": NodeId("a"),
        "attempt": 9,
        "attempt_id": sample_id(AttemptId, 1),
        "waits": (RegisteredWait(wait_id=WAIT, digest=DIGEST),),
        "wait_id": sample_id(WaitId, 99),
        "abandoned": (),
        **dict.fromkeys(("in_flight", "failed", "exhausted"), 0),
        "invocation_id": sample_id(InvocationId, 1),
        "number": InvocationNumber(1),
        "risk": ToolRisk.READ_ONLY,
        "effect": ToolEffect.NOT_APPLICABLE,
        "charged": BudgetUsage.zero(),
        **dict.fromkeys(("retry_not_before", "reserved")),
    }
    shape: Any = SHAPES[kind]
    return shape(**{each.name: values[each.name] for each in fields(shape)})  # type: ignore[no-any-return]


SOURCES = [(kind, epoch) for kind in EventKind for epoch in (0, 1) if kind.source.allows(epoch)]


@pytest.mark.parametrize(("status", "source"), list(product(RunStatus, SOURCES)), ids=str)
def test_LED_08_SUB_25_every_status_permits_exactly_the_kinds_of_its_row(
    status: RunStatus, source: tuple[EventKind, int]
) -> None:
    """Each event is wrong in its body, so what its status permits is refused by a later rule and nothing else is."""
    kind, epoch = source
    run = run_in(status)
    state = RunState.empty(run.state.tenant_id, run.state.run_id) if status is RunStatus.PENDING else run.state
    assert state.status is status
    event = following(run, state, data_of(kind, state), epoch)
    with pytest.raises(CorruptDataError) as caught:
        state.apply(as_stored(event), {}, GRAPH)
    with pytest.raises(AgentRunsError) as refused:
        state.extend(event, {}, GRAPH)
    name = kind.value
    if kind is EventKind.RUN_FAILED:
        name = WORKER_FAILURE if epoch else CONTROL_FAILURE
    if name in PERMITTED[status]:
        assert caught.value.component not in {"chain", "kind", "source", "order", "status", "position"}
        assert not isinstance(refused.value, RunNotRunnableError)
    else:
        assert caught.value.component in {"order", "status"}
        assert isinstance(refused.value, RunNotRunnableError)
        assert refused.value.reason == REASONS[status]
        assert (refused.value.status, refused.value.revision) == (state.status, state.revision)


def following(run: ScriptedRun, state: RunState, data: EventData, epoch: int) -> Event:
    return Event.following(
        state.head,
        tenant_id=state.tenant_id,
        run_id=state.run_id,
        event_id=run.event_id(),
        recorded_at=run.now,
        epoch=epoch,
        data=data,
    )


@pytest.mark.parametrize("status", [RunStatus.ACTIVE, RunStatus.WAITING, RunStatus.CANCELLATION_REQUESTED])
@pytest.mark.parametrize("kind", EventKind)
def test_an_event_states_the_position_of_the_run(status: RunStatus, kind: EventKind) -> None:
    run = run_in(status)
    state = run.state
    data = data_of(kind, state)
    for member, wrong in (("superstep", Superstep(7)), ("revision", RunRevision(9))):
        if not hasattr(data, member) or kind.value not in PERMITTED[status]:
            continue
        moved: Any = evolve(data, **{member: wrong})  # type: ignore[misc]  # every shape is an attrs class
        event = run.event(moved, epoch=int(kind.source.allows(1)))
        with pytest.raises(CorruptDataError) as caught:
            state.apply(as_stored(event), {}, GRAPH)
        assert caught.value.component == "position"
