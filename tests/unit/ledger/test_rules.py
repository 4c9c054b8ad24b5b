"""Every rule of the fold by the events that break it, stored and being built."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import Digest, DigestPurpose, digest_body, plain_digest
from agentruns.domain.failure import FailureCategory, ReconcileFirst, SafeAfter
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.nodes import GraphNode
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
from agentruns.domain.ids import AttemptId, EventId, RunId, WaitId
from agentruns.domain.ledger.bodies import BodyRow
from agentruns.domain.ledger.checkpoint import state_digest
from agentruns.domain.ledger.data import (
    AgentAdmitted,
    BarrierContinued,
    BarrierSucceeded,
    BarrierWaiting,
    CancellationConfirmed,
    CancellationRequested,
    EventData,
    InterruptResolved,
    NodeAttemptFailed,
    NodeAttemptStarted,
    NodeAttemptSucceeded,
    RegisteredWait,
    RunFailed,
    TimerFired,
)
from agentruns.domain.ledger.drafts import AdmissionDraft, FiringDraft, ResolutionDraft
from agentruns.domain.ledger.event import Event
from agentruns.domain.ledger.kinds import EventKind
from agentruns.domain.ledger.outcomes import CancellationRequest, StoredCancellation, StoredFailure, StoredSuccess
from agentruns.domain.ledger.records import WaitSettlement
from agentruns.domain.ledger.state import RunState
from agentruns.domain.ledger.superstep import successor
from agentruns.domain.numbers import DurationMillis, FencingEpoch, Superstep
from agentruns.domain.scalars import JournalEventKind, NodeId, RouteId, TenantId
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.usage import BudgetUsage
from agentruns.domain.waits import NodeWait, WaitResolution, WaitResolver
from agentruns.errors import (
    AgentAdmissionRejectedError,
    AgentRunsError,
    BarrierRejectedError,
    CorruptDataError,
    ExecutableGraphUnavailableError,
    InvariantError,
    NotFoundError,
    ResolverNotPermittedError,
    WaitAlreadySettledError,
)
from agentruns.testing.graphs import executable_of
from agentruns.testing.histories import DEADLINE, as_stored, bodies_of, sample_request
from agentruns.testing.history_waits import payload
from agentruns.testing.samples import cancellation, failure, principal, sample_id
from agentruns.testing.scripted_run import ScriptedRun

NODES = [
    GraphNode.of("a", continue_to=["b", "c"], routes={"a.on": ["b"]}, wait_to=["b"], terminal=True),
    GraphNode.of("b", continue_to=["a"], terminal=True, wait_to=["a"]),
    GraphNode.of("c", continue_to=["a"], wait_to=["a"]),
]
GRAPH = executable_of(NODES, maximum_supersteps=3)
NOTHING = BudgetUsage.zero()
A = NodeId("a")
ZERO = Superstep(0)


def refused(
    run: ScriptedRun,
    data: EventData,
    bodies: Mapping[Digest, BodyRow] | None = None,
    *,
    epoch: int = 1,
    graph: ExecutableGraph | None = GRAPH,
) -> tuple[str, str, AgentRunsError]:
    """Show that an event is refused stored and while it is built, and that the state stays as it was."""
    state, rows = run.state, bodies or {}
    before = evolve(state)
    event = run.event(data, epoch=epoch)
    with pytest.raises(CorruptDataError) as found:
        state.apply(as_stored(event), {digest: evolve(row, record=None) for digest, row in rows.items()}, graph)
    with pytest.raises(AgentRunsError) as refusal:
        state.extend(event, rows, graph)
    assert state == before
    assert (found.value.tenant_id, found.value.run_id) == (state.tenant_id, state.run_id)
    return found.value.component, found.value.reason, refusal.value


def check_invariant(answer: tuple[str, str, AgentRunsError], component: str, reason: str = "") -> None:
    assert answer[:2] == (component, reason)
    assert isinstance(answer[2], InvariantError)
    assert answer[2].reason == (f"{component}:{reason}" if reason else component)


def result(control: Any = None, *, update: Any = None) -> NodeResult:
    return NodeResult(
        state_change=Unchanged() if update is None else Update(data=BoundedJson.of(update)),
        control=control or ContinueControl(),
        bindings=(),
        usage=NOTHING,
    )


def rows_of(*records: Any) -> dict[Digest, BodyRow]:
    return {record.digest: BodyRow.of(record) for record in records}


def finish() -> TerminalControl:
    return TerminalControl(output=BoundedJson.of("out"))


# --- every event ----------------------------------------------------------------------------------------------------


def test_chain() -> None:
    run = ScriptedRun(GRAPH)
    event = as_stored(run.start("a").events[0])
    state = run.commits[0].state
    assert state.apply(event, {}, GRAPH) == run.state
    for change, reason in (
        ({"tenant_id": TenantId("tenant-b")}, ""),
        ({"run_id": sample_id(RunId, 77)}, ""),
        ({"sequence": event.sequence.next()}, "sequence"),
        ({"recorded_at": event.recorded_at.plus_micros(-1)}, "recorded_at"),
        ({"epoch": 2}, "digest"),
    ):
        changed: Any = change
        with pytest.raises(CorruptDataError) as caught:
            state.apply(evolve(event, **changed), {}, GRAPH)
        assert (caught.value.component, caught.value.reason) == ("chain", reason)


def test_kind() -> None:
    run = ScriptedRun(GRAPH)
    head = run.state.head
    event = as_stored(run.event(started(), epoch=1))
    for change, reason in (
        ({"kind": JournalEventKind("unheard-of")}, "unsupported_schema"),
        ({"schema_digest": plain_digest(b"{}")}, "unsupported_schema"),
        ({"data": b"{}"}, "missing_member"),
        ({"data": event.data + b" "}, "not_canonical"),
    ):
        changed: Any = change
        wrong = evolve(event, **changed)
        assert head is not None
        wrong = evolve(wrong, digest=digest_body(DigestPurpose.EVENT, head.digest.raw, wrong.envelope))
        with pytest.raises(CorruptDataError) as caught:
            run.state.apply(wrong, {}, GRAPH)
        assert (caught.value.component, caught.value.reason) == ("kind", reason)


def started(attempt: int = 1, *, node: str = "a", superstep: int = 0, number: int = 1) -> NodeAttemptStarted:
    return NodeAttemptStarted(
        superstep=Superstep(superstep),
        node_id=NodeId(node),
        attempt=attempt,
        attempt_id=sample_id(AttemptId, number),
    )


def test_source() -> None:
    run = ScriptedRun(GRAPH)
    run.epoch = FencingEpoch(5)
    run.start("a")
    run.epoch = FencingEpoch(6)
    run.start("a")
    check_invariant(run.refusal(started(3), epoch=5), "source")
    assert run.state.epoch == 6
    head = run.state.head
    assert head is not None
    event = as_stored(run.event(started(3), epoch=7))
    unfenced = evolve(event, epoch=0)
    unfenced = evolve(unfenced, digest=digest_body(DigestPurpose.EVENT, head.digest.raw, unfenced.envelope))
    with pytest.raises(CorruptDataError, match="source"):
        run.state.apply(unfenced, {}, GRAPH)


def test_bodies_are_there_verified_and_readable() -> None:
    run = ScriptedRun(GRAPH)
    run.start("a")
    good = result()
    data = NodeAttemptSucceeded(superstep=ZERO, node_id=A, attempt=1, result_digest=good.digest)
    check_invariant(run.refusal(data), "body", "missing_artifact")
    check_invariant(run.refusal(data, {good.digest: BodyRow(data=b"{}")}), "body")
    strange = b'{"from":"the future"}'
    digest = digest_body(DigestPurpose.NODE_RESULT, strange)
    data = evolve(data, result_digest=digest)
    check_invariant(run.refusal(data, {digest: BodyRow(data=strange)}), "body", "unsupported_schema")
    failed = NodeFailure(failure=failure(), usage=NOTHING)
    data = evolve(data, result_digest=failed.digest)
    check_invariant(run.refusal(data, rows_of(failed)), "body")


def test_a_graph_is_needed_and_is_the_runs() -> None:
    run = ScriptedRun(GRAPH)
    event = run.event(started(), epoch=1)
    for graph in (None, executable_of(NODES, name="another")):
        with pytest.raises(InvariantError, match="graph"):
            run.state.apply(event, {}, graph)


# --- admission ------------------------------------------------------------------------------------------------------


def admission(**changes: Any) -> tuple[RunState, AgentAdmitted, dict[Digest, BodyRow], Event]:
    """Make the first event with a changed pin, and the rows of the sample admission."""
    request = sample_request(GRAPH)
    draft = AdmissionDraft.of(request, GRAPH)
    commit = draft.build(DEADLINE.plus_micros(-1))
    data = evolve(draft.data, **changes)
    seed = RunState.empty(request.tenant_id, request.intent.provenance.run_id)
    event = Event.following(
        None,
        tenant_id=seed.tenant_id,
        run_id=seed.run_id,
        event_id=request.admission_event_id,
        recorded_at=DEADLINE.plus_micros(-1),
        epoch=0,
        data=data,
    )
    return seed, data, dict(bodies_of(commit)), event


def test_an_admission_begins_a_run() -> None:
    seed, data, rows, event = admission()
    state = seed.apply(as_stored(event), rows, GRAPH)
    assert state.status.value == "active"
    assert (int(state.revision), state.changed_at, int(state.lifecycle_sequence or 0)) == (1, event.recorded_at, 1)
    assert state.admission is not None
    assert state.admission.deadline == DEADLINE
    assert state.admission.admitted_at == event.recorded_at
    assert state.checkpoint is not None
    assert state.checkpoint.digest == data.checkpoint_digest
    assert state.checkpoint.state == BoundedJson.of({})
    assert state.usage == BudgetUsage.of(
        graph_depth=1, fan_out=1, input_bytes=4, checkpoint_bytes=2, event_bytes=len(event.data)
    )


@pytest.mark.parametrize("pin", ["graph_digest", "input_digest", "policy_digest"])
def test_an_admission_has_the_digests_that_the_event_states(pin: str) -> None:
    seed, _, rows, event = admission(**{pin: plain_digest(b"x")})
    with pytest.raises(CorruptDataError) as caught:
        seed.apply(as_stored(event), rows, GRAPH)
    assert (caught.value.component, caught.value.reason) == ("admission", "")


def test_an_admission_of_another_run_or_graph() -> None:
    seed, _, rows, event = admission()
    elsewhere = RunState.empty(seed.tenant_id, sample_id(RunId, 9))
    moved = Event.following(
        None,
        tenant_id=elsewhere.tenant_id,
        run_id=elsewhere.run_id,
        event_id=event.event_id,
        recorded_at=event.recorded_at,
        epoch=0,
        data=admission()[1],
    )
    with pytest.raises(CorruptDataError) as caught:
        elsewhere.apply(as_stored(moved), rows, GRAPH)
    assert (caught.value.component, caught.value.reason) == ("admission", "cross_tenant_reference")
    with pytest.raises(CorruptDataError) as caught:
        seed.apply(as_stored(event), rows, executable_of(NODES, name="another"))
    assert (caught.value.component, caught.value.reason) == ("admission", "graph")


def test_an_admission_at_its_deadline_is_too_late() -> None:
    draft = AdmissionDraft.of(sample_request(GRAPH), GRAPH)
    with pytest.raises(AgentAdmissionRejectedError, match="deadline"):
        draft.build(DEADLINE)


def test_checkpoint_0_is_the_one_that_the_event_names() -> None:
    seed, data, rows, event = admission()
    row = rows[data.checkpoint_digest]
    for changed in (evolve(row, checkpoint_id=None), evolve(row, data=b"[]")):
        with pytest.raises(CorruptDataError) as caught:
            seed.apply(as_stored(event), {**rows, data.checkpoint_digest: changed}, GRAPH)
        assert (caught.value.component, caught.value.reason) == ("body", "")


def test_a_state_that_is_no_canonical_json() -> None:
    strange = b"{ }"
    request = sample_request(GRAPH)
    draft = AdmissionDraft.of(request, GRAPH)
    checkpoint = GRAPH.definition.entry_nodes
    from agentruns.domain.ledger.checkpoint import Checkpoint

    named = Checkpoint.initial(
        request.initial_checkpoint_id,
        graph_digest=GRAPH.digest,
        entry_nodes=checkpoint,
        state_digest=state_digest(strange),
    )
    seed, data, rows, event = admission(checkpoint_digest=named.digest)
    rows[named.digest] = BodyRow(data=strange, checkpoint_id=request.initial_checkpoint_id)
    assert data.admission_digest == draft.data.admission_digest
    with pytest.raises(CorruptDataError) as caught:
        seed.apply(as_stored(event), rows, GRAPH)
    assert (caught.value.component, caught.value.reason) == ("body", "unsupported_schema")


@pytest.mark.parametrize(
    ("keywords", "outcome"),
    [({"state": {"type": "array"}}, CorruptDataError), ({"state": {"$ref": "#/$defs/x"}}, None)],
)
def test_the_state_schema_accepts_the_state(keywords: Any, outcome: Any) -> None:
    if outcome is None:
        pytest.skip("an unresolvable reference cannot be registered")
    graph = executable_of(NODES, keywords=keywords)
    with pytest.raises(InvariantError, match="state"):
        AdmissionDraft.of(sample_request(graph), graph).build(DEADLINE.plus_micros(-1))


# --- nodes ----------------------------------------------------------------------------------------------------------


def test_starts_that_break_the_history() -> None:
    run = ScriptedRun(GRAPH)
    check_invariant(run.refusal(started(node="b")), "attempt_history")
    check_invariant(run.refusal(started(2)), "attempt_history")
    commit = run.start("a")
    check_invariant(run.refusal(started(2)), "attempt_history")
    check_invariant(run.refusal(started(1), epoch=2), "attempt_history")
    same = sample_id(AttemptId, 1)
    assert commit.starts[0].attempt_id != same
    again = NodeAttemptStarted(superstep=ZERO, node_id=A, attempt=2, attempt_id=commit.starts[0].attempt_id)
    check_invariant(run.refusal(again, epoch=2), "attempt_history")
    run.complete("a", finish())
    check_invariant(run.refusal(started(2), epoch=2), "attempt_history")


def test_a_retry_waits_for_its_gate_and_a_final_failure_has_none() -> None:
    run = ScriptedRun(GRAPH)
    run.start("a")
    commit = run.fail_attempt("a", retry_after=2)
    gate = run.now.plus_micros(2000)
    assert commit.results[0].retry_not_before == gate
    run.now = gate.plus_micros(-1)
    check_invariant(run.refusal(started(2)), "attempt_history")
    run.now = gate
    assert run.start("a").gate == gate
    run.fail_attempt("a")
    check_invariant(run.refusal(started(3), epoch=9), "attempt_history")


def test_no_start_at_the_last_superstep() -> None:
    run = ScriptedRun(executable_of(NODES, maximum_supersteps=1))
    run.run_node("a", RouteControl(route_id=RouteId("a.on")))
    run.go_on()
    check_invariant(run.refusal(started(node="b", superstep=1)), "attempt_history")
    assert run.fail().state.status.value == "failed"


def test_no_65th_attempt() -> None:
    run = ScriptedRun(GRAPH)
    for _ in range(64):
        run.start("a")
        run.epoch = run.epoch.next()
    assert run.state.nodes[A].attempt == 64
    assert int(run.state.usage.retries) == 63
    assert run.fail().events[0].data.count(b'"exhausted":"1"') == 1


def test_completions_that_break_the_history() -> None:
    run = ScriptedRun(GRAPH)
    rows = rows_of(result())
    data = NodeAttemptSucceeded(superstep=ZERO, node_id=A, attempt=1, result_digest=result().digest)
    check_invariant(run.refusal(data, rows), "attempt_history")
    run.start("a")
    check_invariant(run.refusal(evolve(data, attempt=2), rows), "attempt_history")
    check_invariant(run.refusal(data, rows, epoch=2), "attempt_history")
    run.complete("a")
    check_invariant(run.refusal(data, rows), "attempt_history")


def test_a_result_satisfies_the_graph() -> None:
    run = ScriptedRun(executable_of(NODES, keywords={"update": {"type": "object"}}))
    run.start("a")
    for control, update, reason in (
        (RouteControl(route_id=RouteId("other")), None, "route_undeclared"),
        (None, 5, "update_rejected"),
    ):
        wrong = result(control, update=update)
        data = NodeAttemptSucceeded(superstep=ZERO, node_id=A, attempt=1, result_digest=wrong.digest)
        check_invariant(run.refusal(data, rows_of(wrong)), "result", reason)


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
        check_invariant(run.refusal(data, rows_of(body)), "failure")


# --- barriers -------------------------------------------------------------------------------------------------------


def continued(run: ScriptedRun, **changes: Any) -> tuple[BarrierContinued, dict[Digest, BodyRow]]:
    plan = run.state.barrier(run.graph)
    checkpoint = successor(run.state, plan, run.checkpoint_id())
    data = BarrierContinued(superstep=run.state.superstep, checkpoint_digest=checkpoint.digest)
    row = evolve(BodyRow.of_state(checkpoint.checkpoint_id, plan.state), **changes)
    return data, {checkpoint.digest: row}


def test_a_barrier_is_the_plans() -> None:
    run = ScriptedRun(GRAPH)
    data = BarrierContinued(superstep=ZERO, checkpoint_digest=plain_digest(b"x"))
    check_invariant(run.refusal(data), "barrier", "result_set_mismatch")
    run.run_node("a", update={"n": 1})
    check_invariant(run.refusal(data), "body", "missing_artifact")
    for change, reason in (
        ({"checkpoint_id": None}, "state"),
        ({"data": b"{}"}, "state"),
        ({"checkpoint_id": run.checkpoint_id()}, "checkpoint"),
    ):
        check_invariant(run.refusal(*continued(run, **change)), "barrier", reason)
    outcome = StoredSuccess(output=BoundedJson.of(None), artifacts=(), usage=NOTHING)
    ended = BarrierSucceeded(
        superstep=ZERO,
        checkpoint_digest=data.checkpoint_digest,
        revision=run.state.revision.next(),
        outcome_digest=outcome.digest,
    )
    check_invariant(run.refusal(ended, rows_of(outcome)), "barrier", "disposition")
    state = run.go_on().state
    assert (int(state.superstep), state.nodes, state.results, int(state.revision)) == (1, {}, {}, 1)
    assert state.checkpoint is not None
    assert state.checkpoint.state == BoundedJson.of({"n": 1})
    assert [str(node) for node in state.checkpoint.ready_nodes] == ["b", "c"]


def test_a_rejected_plan_is_a_refusal_while_building_and_corrupt_when_stored() -> None:
    run = ScriptedRun(GRAPH)
    run.run_node("a")
    run.go_on()
    run.run_node("b", finish())
    run.run_node("c")
    data = BarrierContinued(superstep=Superstep(1), checkpoint_digest=plain_digest(b"x"))
    component, reason, refusal = run.refusal(data)
    assert (component, reason) == ("barrier", "terminal_not_exclusive")
    assert isinstance(refusal, BarrierRejectedError)
    assert (refusal.reason, refusal.run_id) == ("terminal_not_exclusive", run.state.run_id)
    assert run.fail().state.status.value == "failed"


class Raising:
    """Reduce nothing, ever."""

    def __init__(self) -> None:
        from agentruns.domain.graph.reducers import MergeReducer

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
        check_invariant(run.refusal(evolve(waiting, waits=wrong), every), "waits")
    check_invariant(run.refusal(waiting, rows), "body", "missing_artifact")
    tampered = {**every, registered[0].digest: BodyRow(data=b"{}")}
    check_invariant(run.refusal(waiting, tampered), "body")
    check_invariant(run.refusal(data, every), "barrier", "disposition")
    commit = run.suspend()
    assert [row.due_at for row in commit.waits] == [run.now.plus_micros(1_000_000), run.now.plus_micros(2_000_000)]
    assert [str(each.wait_id) for each in commit.state.waits] == [str(wait.wait_id), str(other.wait_id)]


def test_a_success_has_the_plans_output() -> None:
    run = ScriptedRun(GRAPH)
    run.run_node("a", finish())
    plan = run.state.barrier(GRAPH)
    checkpoint = successor(run.state, plan, run.checkpoint_id())
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
        check_invariant(run.refusal(data, state_row | rows_of(wrong)), "outcome")
    state = run.succeed().state
    assert state.outcome is not None
    assert state.outcome.body == StoredSuccess(output=BoundedJson.of("out"), artifacts=(), usage=state.usage)
    assert state.checkpoint is not None
    assert len(state.checkpoint.ready_nodes) == 0


# --- ends -----------------------------------------------------------------------------------------------------------


def run_failed(run: ScriptedRun, outcome: Any, **changes: Any) -> RunFailed:
    members: dict[str, Any] = {"in_flight": 0, "failed": 0, "exhausted": 0, "abandoned": ()}
    return RunFailed(
        superstep=run.state.superstep,
        revision=run.state.revision.next(),
        outcome_digest=outcome.digest,
        **(members | changes),
    )


FAILED = StoredFailure(failure=failure(), usage=NOTHING)


def test_a_worker_fails_a_run_on_a_ground_only() -> None:
    run = ScriptedRun(GRAPH)
    rows = rows_of(FAILED, StoredCancellation(usage=NOTHING))
    check_invariant(run.refusal(run_failed(run, FAILED), rows), "outcome", "ground")
    run.start("a")
    check_invariant(run.refusal(run_failed(run, FAILED, in_flight=1), rows), "outcome", "ground")
    run.fail_attempt("a")
    check_invariant(run.refusal(run_failed(run, FAILED), rows), "outcome", "ground")
    check_invariant(run.refusal(run_failed(run, FAILED, failed=1, exhausted=1), rows), "outcome", "ground")
    unknown_wait = run_failed(run, FAILED, failed=1, abandoned=(sample_id(WaitId, 1),))
    check_invariant(run.refusal(unknown_wait, rows), "outcome", "abandoned")
    other_kind = run_failed(run, StoredCancellation(usage=NOTHING), failed=1)
    check_invariant(run.refusal(other_kind, rows), "outcome")
    assert run.fail().state.outcome is not None


def test_every_result_is_a_ground_too() -> None:
    run = ScriptedRun(GRAPH)
    run.run_node("a", finish())
    assert run.fail().state.status.value == "failed"


def waiting_run(*waits: Any) -> ScriptedRun:
    run = ScriptedRun(GRAPH)
    run.run_node("a", WaitControl(waits=waits))
    run.suspend()
    return run


def interrupt(number: int = 1, **members: Any) -> Any:
    return NodeWait.interrupt("approval", request=payload(), id=sample_id(WaitId, number), **members)


def timer(number: int = 2, seconds: int = 1) -> Any:
    return NodeWait.timer(due_in=timedelta(seconds=seconds), id=sample_id(WaitId, number))


def test_LIF_9_the_control_plane_fails_a_run_over_an_expired_interrupt_only() -> None:
    run = waiting_run(interrupt(expires_in=timedelta(seconds=1)), timer())
    abandoned = tuple(wait.wait_id for wait in run.state.waits)
    rows = rows_of(FAILED)
    run.now = run.now.plus_micros(999_999)
    early = run_failed(run, FAILED, abandoned=abandoned)
    check_invariant(run.refusal(early, rows, epoch=0), "outcome", "ground")
    run.now = run.now.plus_micros(1)
    counted = run_failed(run, FAILED, abandoned=abandoned, failed=1)
    check_invariant(run.refusal(counted, rows, epoch=0), "outcome", "ground")
    commit = run.fail(by_worker=False)
    assert [(row.wait_id, row.status) for row in commit.settlements] == [
        (each, WaitSettlement.ABANDONED) for each in abandoned
    ]
    assert commit.state.waits == ()
    assert [each.how for each in commit.state.settled] == [WaitSettlement.ABANDONED] * 2


def request(run: ScriptedRun, body: CancellationRequest, **changes: Any) -> CancellationRequested:
    members: dict[str, Any] = {"abandoned": tuple(wait.wait_id for wait in run.state.waits)}
    return CancellationRequested(
        superstep=run.state.superstep,
        revision=run.state.revision.next(),
        request_digest=body.digest,
        **(members | changes),
    )


def test_a_request_states_a_cancellation_and_abandons_every_wait() -> None:
    run = waiting_run(timer())
    for wrong in (failure(), evolve(cancellation(), caused_by_event_id=sample_id(EventId, 1))):
        body = CancellationRequest(failure=wrong)
        check_invariant(run.refusal(request(run, body), rows_of(body), epoch=0), "cancellation", "failure")
    body = CancellationRequest(failure=cancellation())
    none_left = request(run, body, abandoned=())
    check_invariant(run.refusal(none_left, rows_of(body), epoch=0), "cancellation", "abandoned")
    state = run.request_cancellation().state
    assert state.cancellation is not None
    assert (state.cancellation.failure, state.cancellation.by_deadline) == (cancellation(), False)
    assert state.cancellation.requested_at == run.now
    assert state.waits == ()


def test_LIF_15_a_deadline_request_needs_the_deadline_and_its_code() -> None:
    run = ScriptedRun(GRAPH)
    expired = failure(category=FailureCategory.CANCELLED, code="agent.deadline.expired")
    kind = EventKind.DEADLINE_CANCELLATION_REQUESTED
    run.now = DEADLINE.plus_micros(-1)
    body = CancellationRequest(failure=expired)
    early = request(run, body, kind=kind)
    check_invariant(run.refusal(early, rows_of(body), epoch=0), "cancellation", "deadline")
    run.now = DEADLINE
    other = CancellationRequest(failure=cancellation())
    wrong_code = request(run, other, kind=kind)
    check_invariant(run.refusal(wrong_code, rows_of(other), epoch=0), "cancellation", "deadline")
    state = run.append(request(run, body, kind=kind), rows_of(body), epoch=0).state
    assert state.cancellation is not None
    assert state.cancellation.by_deadline


def test_a_request_may_name_its_own_event_as_cause() -> None:
    run = ScriptedRun(GRAPH)
    event_id = sample_id(EventId, 1000)
    body = CancellationRequest(failure=evolve(cancellation(), caused_by_event_id=event_id))
    commit = run.append(request(run, body), rows_of(body), epoch=0)
    assert commit.events[0].event_id == event_id


def test_a_confirmation_is_a_cancellation() -> None:
    run = ScriptedRun(GRAPH)
    run.request_cancellation()
    data = CancellationConfirmed(superstep=ZERO, revision=run.state.revision.next(), outcome_digest=FAILED.digest)
    check_invariant(run.refusal(data, rows_of(FAILED)), "outcome")
    assert run.confirm_cancellation().state.status.value == "cancelled"


# --- waits ----------------------------------------------------------------------------------------------------------


def resolution(*scopes: str, by: str = "somebody") -> WaitResolution:
    return WaitResolution(
        resolver=WaitResolver(principal=principal(by), scopes=ScopeSet.of(*scopes)), payload=payload("yes")
    )


def resolved(run: ScriptedRun, body: WaitResolution, number: int = 1) -> InterruptResolved:
    return InterruptResolved(
        wait_id=sample_id(WaitId, number), revision=run.state.revision.next(), resolution_digest=body.digest
    )


def wait_refusal(run: ScriptedRun, data: EventData, *bodies: Any) -> AgentRunsError:
    component, reason, refusal = run.refusal(data, rows_of(*bodies), epoch=0)
    assert (component, reason) == ("waits", "")
    return refusal


def test_only_who_may_resolves_an_interrupt() -> None:
    run = waiting_run(interrupt(principal=principal("boss"), scopes=["pay"]), timer())
    for body in (resolution("pay"), resolution(by="boss"), resolution("other", by="boss")):
        refusal = wait_refusal(run, resolved(run, body), body)
        assert isinstance(refusal, ResolverNotPermittedError)
        assert refusal.wait_id == sample_id(WaitId, 1)
    body = resolution("pay", "more", by="boss")
    draft = ResolutionDraft(state=run.state, event_id=run.event_id(), wait_id=sample_id(WaitId, 1), resolution=body)
    commit = draft.build(run.now)
    assert commit.state.status.value == "waiting"
    assert [(row.status, row.resolution, row.resolution_digest) for row in commit.settlements] == [
        (WaitSettlement.RESOLVED, body.canonical, body.digest)
    ]


def test_what_is_no_outstanding_wait_of_its_class_is_not_found() -> None:
    run = waiting_run(interrupt(), timer(seconds=0))
    body = resolution()
    for data in (resolved(run, body, 9), resolved(run, body, 2), fired(run, 1), fired(run, 9)):
        refusal = wait_refusal(run, data, body)
        assert isinstance(refusal, NotFoundError)
        assert (refusal.kind, refusal.id) == ("wait", data.wait_id)


def fired(run: ScriptedRun, number: int = 2) -> TimerFired:
    return TimerFired(wait_id=sample_id(WaitId, number), revision=run.state.revision.next())


def test_LIF_8_a_wait_is_settled_once() -> None:
    run = waiting_run(interrupt(), timer(seconds=0), timer(3, seconds=9))
    run.append(fired(run), epoch=0)
    refusal = wait_refusal(run, fired(run))
    assert isinstance(refusal, WaitAlreadySettledError)
    assert refusal.reason == "fired"
    body = resolution()
    run.append(resolved(run, body), rows_of(body), epoch=0)
    refusal = wait_refusal(run, resolved(run, body), body)
    assert isinstance(refusal, WaitAlreadySettledError)
    assert refusal.reason == "resolved"
    assert [each.wait_id for each in run.state.settled] == [sample_id(WaitId, 1), sample_id(WaitId, 2)]


def test_LIF_9_equality_is_expired_and_due() -> None:
    run = waiting_run(interrupt(expires_in=timedelta(seconds=1)), timer())
    body = resolution()
    begin = run.now
    run.now = begin.plus_micros(999_999)
    check_invariant(run.refusal(fired(run), epoch=0), "waits", "early")
    in_time = run.event(resolved(run, body), epoch=0)
    assert run.state.extend(in_time, rows_of(body)).status.value == "waiting"
    run.now = begin.plus_micros(1_000_000)
    refusal = wait_refusal(run, resolved(run, body), body)
    assert isinstance(refusal, WaitAlreadySettledError)
    assert refusal.reason == "expired"
    draft = FiringDraft(state=run.state, event_id=run.event_id(), wait_id=sample_id(WaitId, 2))
    assert draft.build(run.now).state.status.value == "waiting"


def test_LIF_10_the_last_settled_wait_makes_the_run_active() -> None:
    run = waiting_run(timer(1, seconds=0), timer(2, seconds=0))
    assert run.append(fired(run, 2), epoch=0).state.status.value == "waiting"
    state = run.append(fired(run, 1), epoch=0).state
    assert state.status.value == "active"
    assert int(state.revision) == 4
    assert state.checkpoint is not None
    assert [str(node) for node in state.checkpoint.ready_nodes] == ["b"]
    run.run_node("b", finish())
    assert [each.how.value for each in run.state.settled] == ["fired", "fired"]
