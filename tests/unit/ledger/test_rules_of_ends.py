"""The rules of ends and waits, by the events that break them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from attrs import evolve

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.failure import FailureCategory
from agentruns.domain.graph.nodes import GraphNode
from agentruns.domain.graph.results import (
    ContinueControl,
    NodeResult,
    TerminalControl,
    Unchanged,
    Update,
    WaitControl,
)
from agentruns.domain.ids import EventId, WaitId
from agentruns.domain.ledger.data import (
    CancellationConfirmed,
    CancellationRequested,
    EventData,
    InterruptResolved,
    RunFailed,
    TimerFired,
)
from agentruns.domain.ledger.drafts import FiringDraft, ResolutionDraft
from agentruns.domain.ledger.kinds import EventKind
from agentruns.domain.ledger.outcomes import CancellationRequest, StoredCancellation, StoredFailure
from agentruns.domain.ledger.records import WaitSettlement
from agentruns.domain.numbers import Superstep
from agentruns.domain.scalars import NodeId
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.usage import BudgetUsage
from agentruns.domain.waits import NodeWait, WaitResolution, WaitResolver
from agentruns.errors import (
    AgentRunsError,
    NotFoundError,
    ResolverNotPermittedError,
    WaitAlreadySettledError,
)
from agentruns.testing.graphs import executable_of
from agentruns.testing.histories import DEADLINE
from agentruns.testing.history_waits import payload
from agentruns.testing.samples import cancellation, failure, principal, sample_id
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
    assert run.refusal(run_failed(run, FAILED), rows).is_fault("outcome", "ground")
    run.start("a")
    assert run.refusal(run_failed(run, FAILED, in_flight=1), rows).is_fault("outcome", "ground")
    run.fail_attempt("a")
    assert run.refusal(run_failed(run, FAILED), rows).is_fault("outcome", "ground")
    assert run.refusal(run_failed(run, FAILED, failed=1, exhausted=1), rows).is_fault("outcome", "ground")
    unknown_wait = run_failed(run, FAILED, failed=1, abandoned=(sample_id(WaitId, 1),))
    assert run.refusal(unknown_wait, rows).is_fault("outcome", "abandoned")
    other_kind = run_failed(run, StoredCancellation(usage=NOTHING), failed=1)
    assert run.refusal(other_kind, rows).is_fault("outcome")
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


def test_LIF_09_the_control_plane_fails_a_run_over_an_expired_interrupt_only() -> None:
    run = waiting_run(interrupt(expires_in=timedelta(seconds=1)), timer())
    abandoned = tuple(wait.wait_id for wait in run.state.waits)
    rows = rows_of(FAILED)
    run.now = run.now.plus_micros(999_999)
    early = run_failed(run, FAILED, abandoned=abandoned)
    assert run.refusal(early, rows, epoch=0).is_fault("outcome", "ground")
    run.now = run.now.plus_micros(1)
    counted = run_failed(run, FAILED, abandoned=abandoned, failed=1)
    assert run.refusal(counted, rows, epoch=0).is_fault("outcome", "ground")
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
        assert run.refusal(request(run, body), rows_of(body), epoch=0).is_fault("cancellation", "failure")
    body = CancellationRequest(failure=cancellation())
    none_left = request(run, body, abandoned=())
    assert run.refusal(none_left, rows_of(body), epoch=0).is_fault("cancellation", "abandoned")
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
    assert run.refusal(early, rows_of(body), epoch=0).is_fault("cancellation", "deadline")
    run.now = DEADLINE
    other = CancellationRequest(failure=cancellation())
    wrong_code = request(run, other, kind=kind)
    assert run.refusal(wrong_code, rows_of(other), epoch=0).is_fault("cancellation", "deadline")
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
    assert run.refusal(data, rows_of(FAILED)).is_fault("outcome")
    assert run.confirm_cancellation().state.status.value == "cancelled"


def resolution(*scopes: str, by: str = "somebody") -> WaitResolution:
    return WaitResolution(
        resolver=WaitResolver(principal=principal(by), scopes=ScopeSet.of(*scopes)), payload=payload("yes")
    )


def resolved(run: ScriptedRun, body: WaitResolution, number: int = 1) -> InterruptResolved:
    return InterruptResolved(
        wait_id=sample_id(WaitId, number), revision=run.state.revision.next(), resolution_digest=body.digest
    )


def wait_refusal(run: ScriptedRun, data: EventData, *bodies: Any) -> AgentRunsError:
    refusal = run.refusal(data, rows_of(*bodies), epoch=0)
    assert (refusal.component, refusal.reason) == ("waits", "")
    return refusal.error


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


def test_LIF_08_a_wait_is_settled_once() -> None:
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


def test_LIF_09_equality_is_expired_and_due() -> None:
    run = waiting_run(interrupt(expires_in=timedelta(seconds=1)), timer())
    body = resolution()
    begin = run.now
    run.now = begin.plus_micros(999_999)
    assert run.refusal(fired(run), epoch=0).is_fault("waits", "early")
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
