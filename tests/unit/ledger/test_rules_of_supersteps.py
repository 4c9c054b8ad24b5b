"""The rules of attempts and barriers, by the events that break them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import Digest, plain_digest
from agentruns.domain.failure import FailureCategory, ReconcileFirst, SafeAfter
from agentruns.domain.graph.nodes import GraphNode
from agentruns.domain.graph.reducers import MergeReducer
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
from agentruns.domain.ids import AttemptId, EventId, WaitId
from agentruns.domain.ledger.bodies import BodyRow
from agentruns.domain.ledger.data import (
    BarrierContinued,
    BarrierSucceeded,
    BarrierWaiting,
    NodeAttemptFailed,
    NodeAttemptStarted,
    NodeAttemptSucceeded,
    RegisteredWait,
)
from agentruns.domain.ledger.outcomes import StoredCancellation, StoredSuccess
from agentruns.domain.numbers import DurationMillis, Superstep
from agentruns.domain.scalars import NodeId, RouteId
from agentruns.domain.usage import BudgetUsage
from agentruns.domain.waits import NodeWait
from agentruns.errors import (
    BarrierRejectedError,
    ExecutableGraphUnavailableError,
)
from agentruns.testing.graphs import executable_of
from agentruns.testing.histories import as_stored
from agentruns.testing.samples import cancellation, failure, sample_id
from agentruns.testing.scripted_run import ScriptedRun, rows_of

NODES = [
    GraphNode.of("a", continue_to=["b", "c"], routes={"a.on": ["b"]}, wait_to=["b"], terminal=True),
    GraphNode.of("b", continue_to=["a"], terminal=True, wait_to=["a"]),
    GraphNode.of("c", continue_to=["a"], wait_to=["a"]),
]
GRAPH = executable_of(NODES, maximum_supersteps=3)
NOTHING = BudgetUsage.zero()
A = NodeId("a")
ZERO = Superstep(0)


def result(control: Any = None, *, update: Any = None) -> NodeResult:
    return NodeResult(
        state_change=Unchanged() if update is None else Update(data=BoundedJson.of(update)),
        control=control or ContinueControl(),
        bindings=(),
        usage=NOTHING,
    )


def finish() -> TerminalControl:
    return TerminalControl(output=BoundedJson.of("out"))


def started(attempt: int = 1, *, node: str = "a", superstep: int = 0, number: int = 1) -> NodeAttemptStarted:
    return NodeAttemptStarted(
        superstep=Superstep(superstep),
        node_id=NodeId(node),
        attempt=attempt,
        attempt_id=sample_id(AttemptId, number),
    )


def test_LEA_18_starts_that_break_the_history() -> None:
    run = ScriptedRun(GRAPH)
    assert run.refusal(started(node="b")).is_fault("attempt_history")
    assert run.refusal(started(2)).is_fault("attempt_history")
    commit = run.start("a")
    assert run.refusal(started(2)).is_fault("attempt_history")
    assert run.refusal(started(1), epoch=2).is_fault("attempt_history")
    same = sample_id(AttemptId, 1)
    assert commit.starts[0].attempt_id != same
    again = NodeAttemptStarted(superstep=ZERO, node_id=A, attempt=2, attempt_id=commit.starts[0].attempt_id)
    assert run.refusal(again, epoch=2).is_fault("attempt_history")
    run.complete("a", finish())
    assert run.refusal(started(2), epoch=2).is_fault("attempt_history")


def test_LEA_19_a_retry_waits_for_its_gate_and_a_final_failure_has_none() -> None:
    run = ScriptedRun(GRAPH)
    run.start("a")
    commit = run.fail_attempt("a", retry_after=2)
    gate = run.now.plus_micros(2000)
    assert commit.results[0].retry_not_before == gate
    run.now = gate.plus_micros(-1)
    assert run.refusal(started(2)).is_fault("attempt_history")
    run.now = gate
    assert run.start("a").gate == gate
    run.fail_attempt("a")
    assert run.refusal(started(3), epoch=9).is_fault("attempt_history")


def test_no_start_at_the_last_superstep() -> None:
    run = ScriptedRun(executable_of(NODES, maximum_supersteps=1))
    run.run_node("a", RouteControl(route_id=RouteId("a.on")))
    run.go_on()
    assert run.refusal(started(node="b", superstep=1)).is_fault("attempt_history")
    assert run.fail().state.status.value == "failed"


def test_no_65th_attempt() -> None:
    run = ScriptedRun(GRAPH)
    for _ in range(64):
        run.start("a")
        run.epoch = run.epoch.next()
    assert run.state.nodes[A].attempt == 64
    assert int(run.state.usage.retries) == 63
    assert run.fail().events[0].data.count(b'"exhausted":"1"') == 1


def test_LEA_16_LEA_17_completions_that_break_the_history() -> None:
    run = ScriptedRun(GRAPH)
    rows = rows_of(result())
    data = NodeAttemptSucceeded(superstep=ZERO, node_id=A, attempt=1, result_digest=result().digest)
    assert run.refusal(data, rows).is_fault("attempt_history")
    run.start("a")
    assert run.refusal(evolve(data, attempt=2), rows).is_fault("attempt_history")
    assert run.refusal(data, rows, epoch=2).is_fault("attempt_history")
    run.complete("a")
    assert run.refusal(data, rows).is_fault("attempt_history")


def test_a_result_satisfies_the_graph() -> None:
    run = ScriptedRun(executable_of(NODES, keywords={"update": {"type": "object"}}))
    run.start("a")
    for control, update, reason in (
        (RouteControl(route_id=RouteId("other")), None, "route_undeclared"),
        (None, 5, "update_rejected"),
    ):
        wrong = result(control, update=update)
        data = NodeAttemptSucceeded(superstep=ZERO, node_id=A, attempt=1, result_digest=wrong.digest)
        assert run.refusal(data, rows_of(wrong)).is_fault("result", reason)


def test_a_failure_advises_what_its_event_says() -> None:
    run = ScriptedRun(GRAPH)
    run.start("a")
    gate = run.now.plus_micros(5000)
    later = failure(retry_advice=SafeAfter(delay=DurationMillis(5)))
    ambiguous = failure(category=FailureCategory.AMBIGUOUS_EXTERNAL_OUTCOME, retry_advice=ReconcileFirst())
    for because, not_before in (
        (failure(), gate),
        (later, None),
        (later, gate.plus_micros(1)),
        (ambiguous, None),
        (cancellation(), None),
        (failure(caused_by_event_id=sample_id(EventId, 1)), None),
    ):
        body = NodeFailure(failure=because, usage=NOTHING)
        data = NodeAttemptFailed(
            superstep=ZERO, node_id=A, attempt=1, result_digest=body.digest, retry_not_before=not_before
        )
        assert run.refusal(data, rows_of(body)).is_fault("failure")


def continued(run: ScriptedRun, **changes: Any) -> tuple[BarrierContinued, dict[Digest, BodyRow]]:
    plan = run.state.barrier(run.graph)
    checkpoint = run.state.successor(plan, run.checkpoint_id())
    data = BarrierContinued(superstep=run.state.superstep, checkpoint_digest=checkpoint.digest)
    row = evolve(BodyRow.of_state(checkpoint.checkpoint_id, plan.state), **changes)
    return data, {checkpoint.digest: row}


def test_a_successor_is_described_once_for_a_plan_and_an_id() -> None:
    run = ScriptedRun(GRAPH)
    run.run_node("a", update={"n": 1})
    plan, first, second = run.state.barrier(run.graph), run.checkpoint_id(), run.checkpoint_id()
    made = run.state.successor(plan, first)
    assert run.state.successor(plan, first) is made
    assert run.state.successor(plan, second) == evolve(made, checkpoint_id=second)
    assert run.state.successor(evolve(plan), second) == evolve(made, checkpoint_id=second)


def test_a_barrier_is_the_plans() -> None:
    run = ScriptedRun(GRAPH)
    data = BarrierContinued(superstep=ZERO, checkpoint_digest=plain_digest(b"x"))
    assert run.refusal(data).is_fault("barrier", "result_set_mismatch")
    run.run_node("a", update={"n": 1})
    assert run.refusal(data).is_fault("body", "missing_artifact")
    for change, reason in (
        ({"checkpoint_id": None}, "state"),
        ({"data": b"{}"}, "state"),
        ({"checkpoint_id": run.checkpoint_id()}, "checkpoint"),
    ):
        assert run.refusal(*continued(run, **change)).is_fault("barrier", reason)
    outcome = StoredSuccess(output=BoundedJson.of(None), artifacts=(), usage=NOTHING)
    ended = BarrierSucceeded(
        superstep=ZERO,
        checkpoint_digest=data.checkpoint_digest,
        revision=run.state.revision.next(),
        outcome_digest=outcome.digest,
    )
    assert run.refusal(ended, rows_of(outcome)).is_fault("barrier", "disposition")
    state = run.go_on().state
    assert (int(state.superstep), state.nodes, state.results, int(state.revision)) == (1, {}, {}, 1)
    assert state.checkpoint is not None
    assert state.checkpoint.state == BoundedJson.of({"n": 1})
    assert [str(node) for node in state.checkpoint.ready_nodes] == ["b", "c"]
    later = run.refusal(BarrierContinued(superstep=Superstep(1), checkpoint_digest=data.checkpoint_digest))
    assert (later.is_fault("barrier", "result_set_mismatch"), later.superstep) == (True, 1)


def test_a_rejected_plan_is_a_refusal_while_building_and_corrupt_when_stored() -> None:
    run = ScriptedRun(GRAPH)
    run.run_node("a")
    run.go_on()
    run.run_node("b", finish())
    run.run_node("c")
    data = BarrierContinued(superstep=Superstep(1), checkpoint_digest=plain_digest(b"x"))
    refusal = run.refusal(data)
    assert (refusal.component, refusal.reason, refusal.superstep) == ("barrier", "terminal_not_exclusive", 1)
    assert isinstance(refusal.error, BarrierRejectedError)
    assert (refusal.error.reason, refusal.error.run_id) == ("terminal_not_exclusive", run.state.run_id)
    assert run.fail().state.status.value == "failed"


class Raising:
    """Reduce nothing, ever."""

    def __init__(self) -> None:
        self.reference = MergeReducer().reference
        self.calls = 0

    def reduce(self, _state: object, _updates: object) -> Any:
        self.calls += 1
        raise ZeroDivisionError


def test_LED_12_a_reducer_that_raises_is_called_once_and_says_nothing_about_what_is_stored() -> None:
    reducer = Raising()
    graph = executable_of(NODES, reducer=reducer)
    run = ScriptedRun(graph)
    run.run_node("a", update={"n": 1})
    state = run.state
    for _ in range(3):
        with pytest.raises(BarrierRejectedError, match="reducer_raised"):
            state.barrier(graph)
    assert reducer.calls == 1
    event = as_stored(run.event(BarrierContinued(superstep=ZERO, checkpoint_digest=plain_digest(b"x")), epoch=1))
    with pytest.raises(ExecutableGraphUnavailableError, match="reducer"):
        state.apply(event, {}, graph)
    assert reducer.calls == 1
    with pytest.raises(BarrierRejectedError):
        evolve(state).barrier(graph)
    assert reducer.calls == 2


def test_waits_are_the_plans_made_absolute() -> None:
    run = ScriptedRun(GRAPH)
    wait = NodeWait.timer(due_in=timedelta(seconds=1), id=sample_id(WaitId, 1))
    other = NodeWait.timer(due_in=timedelta(seconds=2), id=sample_id(WaitId, 2))
    run.run_node("a", WaitControl(waits=(wait, other)))
    registered = [each.registered_at(run.now) for each in (wait, other)]
    data, rows = continued(run)
    entries = tuple(RegisteredWait(wait_id=each.wait_id, digest=each.digest) for each in registered)
    waiting = BarrierWaiting(
        superstep=ZERO,
        checkpoint_digest=data.checkpoint_digest,
        revision=run.state.revision.next(),
        waits=entries,
    )
    every = rows | rows_of(*registered)
    for wrong in (entries[:1], entries[::-1], (entries[0], evolve(entries[1], digest=entries[0].digest))):
        assert run.refusal(evolve(waiting, waits=wrong), every).is_fault("waits")
    assert run.refusal(waiting, rows).is_fault("body", "missing_artifact")
    tampered = {**every, registered[0].digest: BodyRow(data=b"{}")}
    assert run.refusal(waiting, tampered).is_fault("body")
    assert run.refusal(data, every).is_fault("barrier", "disposition")
    commit = run.suspend()
    assert [row.due_at for row in commit.waits] == [run.now.plus_micros(1_000_000), run.now.plus_micros(2_000_000)]
    assert [str(each.wait_id) for each in commit.state.waits] == [str(wait.wait_id), str(other.wait_id)]


def test_a_success_has_the_plans_output() -> None:
    run = ScriptedRun(GRAPH)
    run.run_node("a", finish())
    plan = run.state.barrier(GRAPH)
    checkpoint = run.state.successor(plan, run.checkpoint_id())
    state_row = {checkpoint.digest: BodyRow.of_state(checkpoint.checkpoint_id, plan.state)}
    wrong: Any
    for wrong in (
        StoredSuccess(output=BoundedJson.of("other"), artifacts=(), usage=NOTHING),
        StoredCancellation(usage=NOTHING),
    ):
        data = BarrierSucceeded(
            superstep=ZERO,
            checkpoint_digest=checkpoint.digest,
            revision=run.state.revision.next(),
            outcome_digest=wrong.digest,
        )
        assert run.refusal(data, state_row | rows_of(wrong)).is_fault("outcome")
    state = run.succeed().state
    assert state.outcome is not None
    assert state.outcome.body == StoredSuccess(output=BoundedJson.of("out"), artifacts=(), usage=state.usage)
    assert state.checkpoint is not None
    assert len(state.checkpoint.ready_nodes) == 0
