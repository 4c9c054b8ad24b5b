"""The rules of model and tool calls, by the events that break them."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest

from agentruns.domain.digests import plain_digest
from agentruns.domain.graph.bindings import InvocationKind, InvocationStatus
from agentruns.domain.graph.nodes import GraphNode
from agentruns.domain.graph.results import ContinueControl, NodeResult, Unchanged
from agentruns.domain.ids import AttemptId, InvocationId
from agentruns.domain.ledger.classify import Deferred, Dispatchable, classify
from agentruns.domain.ledger.data import (
    CallAttemptStarted,
    CallCommitted,
    CancellationConfirmed,
    EventData,
    ModelErrorCommitted,
    ModelInvocationPrepared,
    NodeAttemptSucceeded,
    RunFailed,
    TokenReserve,
    ToolErrorCommitted,
    ToolInvocationPrepared,
)
from agentruns.domain.ledger.effects import ToolEffect
from agentruns.domain.ledger.kinds import EventKind
from agentruns.domain.ledger.outcomes import StoredCancellation, StoredFailure
from agentruns.domain.ledger.records import InvocationFacts
from agentruns.domain.numbers import FencingEpoch, InvocationNumber, Superstep, TokenCount
from agentruns.domain.scalars import NodeId
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.tool import ToolRisk
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import (
    CheckpointBlockedError,
    IdConflictError,
    NotYetAvailableError,
    RefusedError,
    RetryNotAuthorizedError,
)
from agentruns.testing.graphs import executable_of
from agentruns.testing.samples import failure, sample_id
from agentruns.testing.scripted_run import ScriptedRun, rows_of

GRAPH = executable_of(
    [GraphNode.of("a", continue_to=["a"], terminal=True), GraphNode.of("b", terminal=True)], entry="ab"
)
DIGEST = plain_digest(b"body")
CALL = sample_id(InvocationId, 1)
ZERO = BudgetUsage.zero()
WRITE, READ, RISKY = ToolRisk.IDEMPOTENT_WRITE, ToolRisk.READ_ONLY, ToolRisk.NON_IDEMPOTENT_WRITE


class Calls:
    """Drive the calls of one node."""

    def __init__(self, risk: ToolRisk | None = None) -> None:
        self.run = ScriptedRun(GRAPH)
        self.run.start("a")
        self.risk = risk
        self.attempts = count(1)
        self.attempt = sample_id(AttemptId, 1)

    @property
    def call(self) -> InvocationFacts:
        return self.run.state.invocations[CALL]

    @property
    def number(self) -> InvocationNumber:
        return self.call.number.next()

    def keep(self, data: EventData, *, epoch: int | None = None) -> InvocationFacts:
        self.run.append(data, epoch=int(self.run.epoch) if epoch is None else epoch)
        return self.call

    def prepared(self, *, node: str = "a", call: InvocationId = CALL, number: int = 0) -> EventData:
        members: dict[str, Any] = {
            "superstep": Superstep(0),
            "node_id": NodeId(node),
            "invocation_id": call,
            "number": InvocationNumber(number),
            "body_digest": DIGEST,
        }
        if self.risk is None:
            return ModelInvocationPrepared(**members)
        return ToolInvocationPrepared(**members, risk=self.risk)

    def started(self, *, number: int | None = None, kind: EventKind | None = None, again: bool = False) -> EventData:
        own = EventKind.MODEL_ATTEMPT_STARTED if self.risk is None else EventKind.TOOL_ATTEMPT_STARTED
        if not again:
            self.attempt = sample_id(AttemptId, next(self.attempts))
        return CallAttemptStarted(
            kind=kind or own,
            invocation_id=CALL,
            number=self.number if number is None else InvocationNumber(number),
            attempt_id=self.attempt,
        )

    def committed(self, *, kind: EventKind | None = None, attempt: int | None = None, charged: Any = ZERO) -> EventData:
        own = EventKind.MODEL_RESPONSE_COMMITTED if self.risk is None else EventKind.TOOL_RESULT_COMMITTED
        return CallCommitted(
            kind=kind or own,
            invocation_id=CALL,
            number=self.number,
            attempt_id=self.attempt if attempt is None else sample_id(AttemptId, attempt),
            body_digest=DIGEST,
            charged=charged,
        )

    def failed(
        self,
        effect: ToolEffect | None = None,
        *,
        kind: EventKind = EventKind.TOOL_ERROR_COMMITTED,
        gate: Timestamp | None = None,
        reserved: TokenReserve | None = None,
        charged: BudgetUsage = ZERO,
    ) -> EventData:
        members: dict[str, Any] = {
            "invocation_id": CALL,
            "number": self.number,
            "attempt_id": self.attempt,
            "body_digest": DIGEST,
            "charged": charged,
            "retry_not_before": gate,
        }
        if effect is None:
            return ModelErrorCommitted(**members, reserved=reserved)
        return ToolErrorCommitted(kind=kind, effect=effect, **members)

    def is_refused(self, data: EventData, *, epoch: int = 1) -> bool:
        refusal = self.run.refusal(data, epoch=epoch)
        assert type(refusal.error) is RefusedError
        return (refusal.component, refusal.error.reason) == ("invocation", "transition")


def test_a_call_from_its_preparation_to_its_response() -> None:
    calls = Calls()
    prepared = calls.keep(calls.prepared())
    assert (prepared.kind, prepared.status, int(prepared.number)) == (
        InvocationKind.MODEL,
        InvocationStatus.PREPARED,
        0,
    )
    assert (prepared.node_id, prepared.intent_digest, prepared.risk, prepared.attempt_ids) == (
        NodeId("a"),
        DIGEST,
        None,
        (),
    )
    started = calls.keep(calls.started())
    assert (started.status, int(started.number)) == (InvocationStatus.EXECUTING, 1)
    assert (started.attempt_ids, started.is_open) == ((sample_id(AttemptId, 1),), True)
    spent = BudgetUsage.of(model_attempts=1, model_turns=1, input_tokens=7, known_costs={"EUR": 3})
    before = calls.run.state.usage
    done = calls.keep(calls.committed(charged=spent))
    assert (done.status, int(done.number), done.body_digest) == (InvocationStatus.COMMITTED, 2, DIGEST)
    assert done.is_open is False
    after = calls.run.state.usage
    event_bytes = len(calls.run.commits[-1].events[0].data)
    assert after == before.accumulate(spent).accumulate(BudgetUsage.of(event_bytes=event_bytes))
    calls.run.complete("a")


def test_only_the_one_node_that_executes_prepares_a_call() -> None:
    calls = Calls()
    assert calls.is_refused(calls.prepared(number=1))
    assert calls.is_refused(calls.prepared(node="b"))
    assert calls.is_refused(calls.prepared(), epoch=2)
    calls.run.start("b")
    assert calls.is_refused(calls.prepared())
    calls.run.fail_attempt("b")
    calls.keep(calls.prepared())
    assert calls.is_refused(calls.prepared())


def test_a_call_starts_once_at_a_time_under_the_owners_fence() -> None:
    calls = Calls()
    assert calls.is_refused(calls.started(number=1))
    calls.keep(calls.prepared())
    assert calls.is_refused(calls.started(number=0))
    assert calls.is_refused(calls.started(number=2))
    assert calls.is_refused(calls.started(kind=EventKind.TOOL_ATTEMPT_STARTED))
    assert calls.is_refused(calls.started(), epoch=2)
    assert calls.is_refused(calls.committed())
    calls.keep(calls.started())
    assert calls.is_refused(calls.started())


def test_a_call_is_ended_by_its_own_attempt_and_its_own_kind() -> None:
    calls = Calls(WRITE)
    calls.keep(calls.prepared())
    calls.keep(calls.started())
    assert calls.is_refused(calls.committed(attempt=9))
    assert calls.is_refused(calls.committed(kind=EventKind.MODEL_RESPONSE_COMMITTED))
    assert calls.is_refused(calls.committed(kind=EventKind.TOOL_RESULT_RECONCILED), epoch=0)
    assert calls.is_refused(calls.failed(ToolEffect.NOT_APPLICABLE))
    calls.keep(calls.committed())
    assert calls.is_refused(calls.committed())
    assert calls.is_refused(calls.started())


def test_any_live_fence_and_the_control_plane_may_end_a_call() -> None:
    for epoch in (0, 3):
        calls = Calls()
        calls.keep(calls.prepared())
        calls.keep(calls.started())
        assert calls.keep(calls.failed(), epoch=epoch).status is InvocationStatus.FAILED


def exchanges(run: ScriptedRun) -> list[tuple[str, str, int, str]]:
    """List call, kind, number and attempt of every event of a call."""
    told = [(event.kind.text, json.loads(event.data)) for commit in run.commits for event in commit.events]
    return [
        (data["invocation_id"], kind, int(data["number"]), data.get("attempt_id", ""))
        for kind, data in told
        if "invocation_id" in data and "number" in data
    ]


@pytest.mark.parametrize("risk", [None, READ, WRITE])
def test_B8_a_call_keeps_its_id_over_the_attempts_of_every_fence(risk: ToolRisk | None) -> None:
    calls = Calls(risk)
    calls.keep(calls.prepared())
    effect = None if risk is None else ToolEffect.NOT_APPLICABLE if risk is READ else ToolEffect.APPLIED
    for epoch in (1, 2, 3):
        if epoch > 1:  # the worker died in the exchange: the next one settles it, and starts the node again
            calls.run.epoch = FencingEpoch(epoch)
            calls.keep(calls.failed(effect, gate=calls.run.now))
            calls.run.start("a")
            # What is asked for again is the call that is there, whoever asks.
            assert calls.is_refused(calls.prepared(), epoch=epoch)
        calls.keep(calls.started())
    done = calls.keep(calls.committed())
    assert (done.invocation_id, done.intent_digest, list(calls.run.state.invocations)) == (CALL, DIGEST, [CALL])
    events = exchanges(calls.run)
    assert {call for call, *_ in events} == {str(CALL)}
    assert [number for _, _, number, _ in events] == list(range(7))
    attempts = [str(sample_id(AttemptId, number)) for number in (1, 2, 3)]
    assert [attempt for *_, attempt in events] == ["", *(each for each in attempts for _ in range(2))]
    assert [str(each) for each in done.attempt_ids] == attempts


def test_G3_of_two_attempts_of_a_call_the_second_response_alone_is_the_result() -> None:
    calls = Calls()
    calls.keep(calls.prepared())
    calls.keep(calls.started())
    calls.keep(calls.failed(gate=calls.run.now))
    late = calls.committed()
    assert calls.is_refused(late)
    calls.keep(calls.started())
    # What the first attempt still brings is told apart by its id, before the second has ended and after it.
    assert calls.is_refused(calls.committed(attempt=1))
    done = calls.keep(calls.committed(attempt=2))
    assert calls.is_refused(calls.committed(attempt=1))
    assert (done.status, done.body_digest, done.attempt_ids[-1]) == (
        InvocationStatus.COMMITTED,
        DIGEST,
        sample_id(AttemptId, 2),
    )
    assert [kind for _, kind, _, _ in exchanges(calls.run)].count("model-response-committed") == 1


def test_reserves_are_kept_beside_usage() -> None:
    calls = Calls()
    calls.keep(calls.prepared())
    for total in (5, 10):
        calls.keep(calls.started())
        reserved = TokenReserve(input_tokens=TokenCount(5), output_tokens=TokenCount(1))
        calls.keep(calls.failed(gate=calls.run.now, reserved=reserved))
        assert int(calls.run.state.reserved.input_tokens) == total
        assert int(calls.run.state.usage.input_tokens) == 0


def test_a_reserve_that_overflows_is_a_finding() -> None:
    calls = Calls()
    calls.keep(calls.prepared())
    most = TokenReserve(output_tokens=TokenCount(TokenCount.highest))
    calls.keep(calls.started())
    calls.keep(calls.failed(gate=calls.run.now, reserved=most))
    calls.keep(calls.started())
    assert calls.run.refusal(calls.failed(reserved=most)).is_fault("usage", "overflow")


def retry_refusal(calls: Calls) -> Any:
    refusal = calls.run.refusal(calls.started())
    assert (refusal.component, refusal.reason) == ("invocation", "")
    return refusal.error


@pytest.mark.parametrize("risk", [None, READ, WRITE, RISKY])
def test_a_retry_needs_an_advice_and_its_time(risk: ToolRisk | None) -> None:
    effect = None if risk is None else ToolEffect.NOT_APPLICABLE if risk is READ else ToolEffect.NOT_APPLIED
    calls = Calls(risk)
    calls.keep(calls.prepared())
    calls.keep(calls.started())
    gate = calls.run.now.plus_micros(10)
    calls.keep(calls.failed(effect, gate=gate))
    error = retry_refusal(calls)
    assert isinstance(error, NotYetAvailableError)
    assert (error.reason, error.not_before) == ("retry_delay", gate)
    calls.run.now = gate
    conflict = calls.run.refusal(
        CallAttemptStarted(
            kind=EventKind.MODEL_ATTEMPT_STARTED if risk is None else EventKind.TOOL_ATTEMPT_STARTED,
            invocation_id=CALL,
            number=calls.number,
            attempt_id=calls.call.attempt_ids[0],
        )
    )
    assert isinstance(conflict.error, IdConflictError)
    assert (conflict.error.kind, conflict.error.id) == ("attempt", calls.call.attempt_ids[0])
    again = calls.keep(calls.started())
    assert (again.status, again.retry_not_before, again.effect) == (InvocationStatus.EXECUTING, None, None)
    assert len(again.attempt_ids) == 2
    calls.keep(calls.failed(effect))
    error = retry_refusal(calls)
    assert isinstance(error, RetryNotAuthorizedError)
    assert error.reason == "not_advised"


@pytest.mark.parametrize(("risk", "may_start"), [(WRITE, True), (RISKY, False)])
def test_a_retry_after_an_effect_that_was_applied(risk: ToolRisk, may_start: bool) -> None:  # noqa: FBT001
    calls = Calls(risk)
    calls.keep(calls.prepared())
    calls.keep(calls.started())
    calls.keep(calls.failed(ToolEffect.APPLIED, gate=calls.run.now))
    if may_start:
        assert calls.keep(calls.started()).status is InvocationStatus.EXECUTING
        return
    error = retry_refusal(calls)
    assert isinstance(error, RetryNotAuthorizedError)
    assert error.reason == "unsafe_effect"


def unknown_call() -> Calls:
    calls = Calls(RISKY)
    calls.keep(calls.prepared())
    calls.keep(calls.started())
    assert calls.keep(calls.failed(ToolEffect.UNKNOWN)).status is InvocationStatus.UNKNOWN
    return calls


def test_an_unknown_effect_is_only_reconciled() -> None:
    calls = unknown_call()
    assert calls.is_refused(calls.started(again=True))
    assert calls.is_refused(calls.committed())
    assert calls.is_refused(calls.failed(ToolEffect.APPLIED))
    still = calls.keep(calls.failed(ToolEffect.UNKNOWN, kind=EventKind.TOOL_ERROR_RECONCILED), epoch=0)
    assert (still.status, int(still.number)) == (InvocationStatus.UNKNOWN, 3)
    known = calls.keep(calls.failed(ToolEffect.APPLIED, kind=EventKind.TOOL_ERROR_RECONCILED), epoch=0)
    assert (known.status, known.effect) == (InvocationStatus.FAILED, ToolEffect.APPLIED)
    other = unknown_call()
    done = other.keep(other.committed(kind=EventKind.TOOL_RESULT_RECONCILED), epoch=0)
    assert (done.status, done.effect) == (InvocationStatus.COMMITTED, None)


def test_an_unknown_effect_holds_its_node_back_the_longer_the_longer_nobody_knows() -> None:
    calls = unknown_call()
    changed_at, epoch = calls.run.now, FencingEpoch(2)
    for age, delay in ((0, 1), (1, 1), (60, 60), (299, 299), (300, 300), (9000, 300)):
        now = changed_at.plus_micros(age * 1_000_000)
        first, second = classify(calls.run.state, epoch=epoch, now=now).nodes
        assert first == Deferred(node_id=NodeId("a"), not_before=now.plus_micros(delay * 1_000_000))
        assert isinstance(second, Dispatchable)


@pytest.mark.parametrize("status", [InvocationStatus.EXECUTING, InvocationStatus.UNKNOWN])
def test_LIF_16_no_end_over_a_call_that_is_open(status: InvocationStatus) -> None:
    calls = unknown_call() if status is InvocationStatus.UNKNOWN else Calls(RISKY)
    if status is InvocationStatus.EXECUTING:
        calls.keep(calls.prepared())
        calls.keep(calls.started())
    run = calls.run
    assert calls.call.status is status
    run.fail_attempt("a")
    failed = StoredFailure(failure=failure(), usage=ZERO)
    data: EventData = RunFailed(
        superstep=run.state.superstep,
        revision=run.state.revision.next(),
        outcome_digest=failed.digest,
        in_flight=0,
        failed=1,
        exhausted=0,
        abandoned=(),
    )
    check_blocked(run, data, failed)
    run.request_cancellation()
    cancelled = StoredCancellation(usage=ZERO)
    data = CancellationConfirmed(
        superstep=run.state.superstep, revision=run.state.revision.next(), outcome_digest=cancelled.digest
    )
    check_blocked(run, data, cancelled)
    reconciling = EventKind.TOOL_RESULT_RECONCILED if status is InvocationStatus.UNKNOWN else None
    calls.keep(calls.committed(kind=reconciling), epoch=0 if reconciling else 1)
    assert run.confirm_cancellation().state.status.value == "cancelled"


def check_blocked(run: ScriptedRun, data: EventData, outcome: StoredFailure | StoredCancellation) -> None:
    refusal = run.refusal(data, rows_of(outcome))
    assert refusal.component == "unsettled"
    assert isinstance(refusal.error, CheckpointBlockedError)
    assert refusal.error.invocation_ids == (CALL,)


def test_a_node_with_an_unsettled_or_unbound_call_cannot_succeed() -> None:
    calls = Calls()
    result = NodeResult(state_change=Unchanged(), control=ContinueControl(), bindings=(), usage=ZERO)
    data = NodeAttemptSucceeded(superstep=Superstep(0), node_id=NodeId("a"), attempt=1, result_digest=result.digest)
    for step in (calls.prepared, calls.started, calls.failed):
        calls.keep(step())
        assert calls.run.refusal(data, rows_of(result)).is_fault("result", "binding_invalid")
    assert calls.run.complete("a").results[0].status == "succeeded"
