from __future__ import annotations

import json
from typing import Any

import pytest

from agentruns.domain.canonical import canonical_bytes
from agentruns.domain.digests import plain_digest
from agentruns.domain.ids import AttemptId, InvocationId, WaitId
from agentruns.domain.ledger.data import (
    SHAPES,
    AgentAdmitted,
    BarrierContinued,
    BarrierSucceeded,
    BarrierWaiting,
    CallAttemptStarted,
    CallCommitted,
    CancellationConfirmed,
    CancellationRequested,
    EventData,
    InterruptResolved,
    ModelErrorCommitted,
    ModelInvocationPrepared,
    NodeAttemptFailed,
    NodeAttemptStarted,
    NodeAttemptSucceeded,
    RegisteredWait,
    RunFailed,
    TimerFired,
    TokenReserve,
    ToolErrorCommitted,
    ToolInvocationPrepared,
    parse_data,
)
from agentruns.domain.ledger.effects import ToolEffect
from agentruns.domain.ledger.kinds import EventKind
from agentruns.domain.numbers import InvocationNumber, RunRevision, Superstep, TokenCount
from agentruns.domain.scalars import NodeId
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.tool import ToolRisk
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import InvalidValueError

DIGEST = plain_digest(b"{}")
TEXT = str(DIGEST)
STEP, REVISION, NODE = Superstep(2), RunRevision(3), NodeId("a")
INSTANT = Timestamp.parse("2026-01-02T03:04:05.000006Z")
ID = "01980000-0000-7000-8000-000000000001"
WAIT, ATTEMPT, CALL = WaitId(ID), AttemptId(ID), InvocationId(ID)
NUMBER = InvocationNumber(4)
CHARGED = BudgetUsage.of(tool_calls=2, input_tokens=5, known_costs={"EUR": 7, "USD": 1}, unpriced_cost_events=1)
CHARGED_TREE = {
    "input_tokens": "5",
    "known_costs": [{"currency": "EUR", "micro_units": "7"}, {"currency": "USD", "micro_units": "1"}],
    "tool_calls": "2",
    "unpriced_cost_events": "1",
}
CALL_TREE = {"invocation_id": ID, "number": "4", "attempt_id": ID, "body_digest": TEXT}

EXAMPLES: list[tuple[EventData, dict[str, Any]]] = [
    (
        AgentAdmitted(
            admission_digest=DIGEST,
            submission_digest=DIGEST,
            checkpoint_digest=DIGEST,
            graph_digest=DIGEST,
            input_digest=DIGEST,
            policy_digest=DIGEST,
        ),
        {
            "operation": "agent_admitted",
            "admission_digest": TEXT,
            "submission_digest": TEXT,
            "checkpoint_digest": TEXT,
            "graph_digest": TEXT,
            "input_digest": TEXT,
            "policy_digest": TEXT,
        },
    ),
    (
        NodeAttemptStarted(superstep=STEP, node_id=NODE, attempt=64, attempt_id=ATTEMPT),
        {
            "operation": "graph_node_attempt_started",
            "superstep": "2",
            "node_id": "a",
            "attempt": "64",
            "attempt_id": ID,
        },
    ),
    (
        NodeAttemptSucceeded(superstep=STEP, node_id=NODE, attempt=1, result_digest=DIGEST),
        {
            "operation": "graph_node_attempt_succeeded",
            "superstep": "2",
            "node_id": "a",
            "attempt": "1",
            "result_digest": TEXT,
        },
    ),
    (
        NodeAttemptFailed(superstep=STEP, node_id=NODE, attempt=1, result_digest=DIGEST),
        {
            "operation": "graph_node_attempt_failed",
            "superstep": "2",
            "node_id": "a",
            "attempt": "1",
            "result_digest": TEXT,
        },
    ),
    (
        NodeAttemptFailed(superstep=STEP, node_id=NODE, attempt=1, result_digest=DIGEST, retry_not_before=INSTANT),
        {
            "operation": "graph_node_attempt_failed",
            "superstep": "2",
            "node_id": "a",
            "attempt": "1",
            "result_digest": TEXT,
            "retry_not_before": str(INSTANT),
        },
    ),
    (
        BarrierContinued(superstep=STEP, checkpoint_digest=DIGEST),
        {"operation": "graph_barrier_continued", "superstep": "2", "checkpoint_digest": TEXT},
    ),
    (
        BarrierWaiting(
            superstep=STEP,
            checkpoint_digest=DIGEST,
            revision=REVISION,
            waits=(RegisteredWait(wait_id=WAIT, digest=DIGEST),),
        ),
        {
            "operation": "graph_barrier_waiting",
            "superstep": "2",
            "checkpoint_digest": TEXT,
            "revision": "3",
            "waits": [{"wait_id": ID, "digest": TEXT}],
        },
    ),
    (
        BarrierSucceeded(superstep=STEP, checkpoint_digest=DIGEST, revision=REVISION, outcome_digest=DIGEST),
        {
            "operation": "graph_barrier_succeeded",
            "superstep": "2",
            "checkpoint_digest": TEXT,
            "revision": "3",
            "outcome_digest": TEXT,
        },
    ),
    (
        RunFailed(
            superstep=STEP,
            revision=REVISION,
            outcome_digest=DIGEST,
            in_flight=0,
            failed=1,
            exhausted=1024,
            abandoned=(WAIT,),
        ),
        {
            "operation": "graph_run_failed",
            "superstep": "2",
            "revision": "3",
            "outcome_digest": TEXT,
            "in_flight": "0",
            "failed": "1",
            "exhausted": "1024",
            "abandoned": [ID],
        },
    ),
    (
        InterruptResolved(wait_id=WAIT, revision=REVISION, resolution_digest=DIGEST),
        {"operation": "graph_interrupt_resolved", "wait_id": ID, "revision": "3", "resolution_digest": TEXT},
    ),
    (
        TimerFired(wait_id=WAIT, revision=REVISION),
        {"operation": "graph_timer_fired", "wait_id": ID, "revision": "3"},
    ),
    (
        CancellationRequested(superstep=STEP, revision=REVISION, request_digest=DIGEST, abandoned=()),
        {
            "operation": "agent_cancellation_requested",
            "superstep": "2",
            "revision": "3",
            "request_digest": TEXT,
            "abandoned": [],
        },
    ),
    (
        CancellationRequested(
            kind=EventKind.DEADLINE_CANCELLATION_REQUESTED,
            superstep=STEP,
            revision=REVISION,
            request_digest=DIGEST,
            abandoned=(WAIT,),
        ),
        {
            "operation": "agent_deadline_cancellation_requested",
            "superstep": "2",
            "revision": "3",
            "request_digest": TEXT,
            "abandoned": [ID],
        },
    ),
    (
        CancellationConfirmed(superstep=STEP, revision=REVISION, outcome_digest=DIGEST),
        {"operation": "agent_cancellation_confirmed", "superstep": "2", "revision": "3", "outcome_digest": TEXT},
    ),
    (
        ModelInvocationPrepared(superstep=STEP, node_id=NODE, invocation_id=CALL, number=NUMBER, body_digest=DIGEST),
        {
            "operation": "model_invocation_prepared",
            "superstep": "2",
            "node_id": "a",
            "invocation_id": ID,
            "number": "4",
            "body_digest": TEXT,
        },
    ),
    (
        ToolInvocationPrepared(
            superstep=STEP,
            node_id=NODE,
            invocation_id=CALL,
            number=NUMBER,
            body_digest=DIGEST,
            risk=ToolRisk.IDEMPOTENT_WRITE,
        ),
        {
            "operation": "tool_invocation_prepared",
            "superstep": "2",
            "node_id": "a",
            "invocation_id": ID,
            "number": "4",
            "body_digest": TEXT,
            "risk": "idempotent_write",
        },
    ),
    *(
        (
            CallAttemptStarted(kind=kind, invocation_id=CALL, number=NUMBER, attempt_id=ATTEMPT),
            {"operation": kind.operation, "invocation_id": ID, "number": "4", "attempt_id": ID},
        )
        for kind in (EventKind.MODEL_ATTEMPT_STARTED, EventKind.TOOL_ATTEMPT_STARTED)
    ),
    *(
        (
            CallCommitted(
                kind=kind,
                invocation_id=CALL,
                number=NUMBER,
                attempt_id=ATTEMPT,
                body_digest=DIGEST,
                charged=BudgetUsage.zero(),
            ),
            {"operation": kind.operation, **CALL_TREE, "charged": {}},
        )
        for kind in (EventKind.MODEL_RESPONSE_COMMITTED, EventKind.TOOL_RESULT_RECONCILED)
    ),
    (
        CallCommitted(
            kind=EventKind.TOOL_RESULT_COMMITTED,
            invocation_id=CALL,
            number=NUMBER,
            attempt_id=ATTEMPT,
            body_digest=DIGEST,
            charged=CHARGED,
        ),
        {"operation": "tool_result_committed", **CALL_TREE, "charged": CHARGED_TREE},
    ),
    (
        ModelErrorCommitted(
            invocation_id=CALL,
            number=NUMBER,
            attempt_id=ATTEMPT,
            body_digest=DIGEST,
            charged=CHARGED,
            retry_not_before=INSTANT,
            reserved=TokenReserve(input_tokens=TokenCount(3)),
        ),
        {
            "operation": "model_error_committed",
            **CALL_TREE,
            "charged": CHARGED_TREE,
            "retry_not_before": str(INSTANT),
            "reserved": {"input_tokens": "3"},
        },
    ),
    *(
        (
            ToolErrorCommitted(
                kind=kind,
                invocation_id=CALL,
                number=NUMBER,
                attempt_id=ATTEMPT,
                body_digest=DIGEST,
                charged=CHARGED,
                effect=ToolEffect.NOT_STARTED,
            ),
            {"operation": kind.operation, **CALL_TREE, "charged": CHARGED_TREE, "effect": "not_started"},
        )
        for kind in (EventKind.TOOL_ERROR_COMMITTED, EventKind.TOOL_ERROR_RECONCILED)
    ),
]
NAMES = [data.kind.value for data, _ in EXAMPLES]


@pytest.mark.parametrize(("data", "tree"), EXAMPLES, ids=NAMES)
def test_data_is_written_canonically_and_read_back(data: EventData, tree: dict[str, Any]) -> None:
    assert data.encode() == canonical_bytes(tree)
    assert parse_data(data.kind, data.encode()) == data


@pytest.mark.parametrize(("data", "tree"), EXAMPLES, ids=NAMES)
def test_every_member_is_required_or_optional_and_no_other_is_known(data: EventData, tree: dict[str, Any]) -> None:
    optional = {"retry_not_before", "reserved"}
    for name in tree:
        smaller = canonical_bytes({each: value for each, value in tree.items() if each != name})
        if name in optional:
            assert parse_data(data.kind, smaller).encode() == smaller
        else:
            assert refusal(data.kind, smaller) == "missing_member"
    assert refusal(data.kind, canonical_bytes({**tree, "zz": "1"})) == "unknown_member"


@pytest.mark.parametrize(("data", "tree"), EXAMPLES, ids=NAMES)
def test_no_member_takes_a_value_of_another_type(data: EventData, tree: dict[str, Any]) -> None:
    for name in tree:
        for foreign in FOREIGN:
            with pytest.raises(InvalidValueError):
                parse_data(data.kind, canonical_bytes({**tree, name: foreign}))


FOREIGN: list[Any] = [None, 1, True, [1], {"a": "b"}, "~", ["~"], {"input_tokens": 1}]


def refusal(kind: EventKind, data: bytes) -> str:
    with pytest.raises(InvalidValueError) as caught:
        parse_data(kind, data)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return caught.value.reason


FIRED = EventKind.TIMER_FIRED
FIRED_DATA = TimerFired(wait_id=WAIT, revision=REVISION).encode()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not_json"),
        (b"{", "not_json"),
        (b"\xff", "not_json"),
        (b"[" * 9_000, "not_json"),
        (b"[]", "wrong_type"),
        (b'"x"', "wrong_type"),
        (b" " + FIRED_DATA, "not_canonical"),
        (FIRED_DATA.replace(b'"3"', b'"03"'), "not_canonical"),
        (FIRED_DATA.replace(b"{", b'{"revision":"3",', 1), "not_canonical"),
        (FIRED_DATA.replace(b'"graph_timer_fired"', b'"graph_timer"'), "wrong_operation"),
        (FIRED_DATA + b" " * 16_384, "too_large"),
        (b'{"operation":NaN}', "missing_member"),
    ],
)
def test_only_the_canonical_form_is_read(data: bytes, reason: str) -> None:
    assert refusal(FIRED, data) == reason


def test_members_out_of_order_are_not_canonical() -> None:
    tree = json.loads(FIRED_DATA)
    swapped = json.dumps(dict(reversed(tree.items())), separators=(",", ":")).encode()
    assert refusal(FIRED, swapped) == "not_canonical"


def test_charges_of_zero_are_not_stated() -> None:
    tree = dict(EXAMPLES[18][1]) | {"charged": {"tool_calls": "0"}}
    assert refusal(EventKind.MODEL_RESPONSE_COMMITTED, canonical_bytes(tree)) == "not_canonical"
    tree["charged"] = {"known_costs": []}
    assert refusal(EventKind.MODEL_RESPONSE_COMMITTED, canonical_bytes(tree)) == "not_canonical"
    tree["charged"] = {"known_costs": [{"currency": "EUR"}]}
    assert refusal(EventKind.MODEL_RESPONSE_COMMITTED, canonical_bytes(tree)) == "missing_member"
    tree["charged"] = {"write_calls": "1"}
    assert refusal(EventKind.MODEL_RESPONSE_COMMITTED, canonical_bytes(tree)) == "subset_exceeds_inclusive"


def test_a_wait_states_both_members() -> None:
    tree = dict(EXAMPLES[6][1]) | {"waits": [{"wait_id": ID}]}
    assert refusal(EventKind.BARRIER_WAITING, canonical_bytes(tree)) == "missing_member"


@pytest.mark.parametrize("attempt", [0, 65])
def test_attempts_are_numbered_1_to_64(attempt: int) -> None:
    for make in (
        lambda: NodeAttemptStarted(superstep=STEP, node_id=NODE, attempt=attempt, attempt_id=ATTEMPT),
        lambda: NodeAttemptSucceeded(superstep=STEP, node_id=NODE, attempt=attempt, result_digest=DIGEST),
        lambda: NodeAttemptFailed(superstep=STEP, node_id=NODE, attempt=attempt, result_digest=DIGEST),
    ):
        with pytest.raises(InvalidValueError, match="out_of_range"):
            make()


@pytest.mark.parametrize("name", ["in_flight", "failed", "exhausted"])
def test_counts_are_at_most_1024(name: str) -> None:
    counts = {"in_flight": 0, "failed": 0, "exhausted": 0, name: 1025}
    with pytest.raises(InvalidValueError, match="out_of_range"):
        RunFailed(superstep=STEP, revision=REVISION, outcome_digest=DIGEST, abandoned=(), **counts)


def test_at_most_64_waits() -> None:
    entry = RegisteredWait(wait_id=WAIT, digest=DIGEST)
    for waits in ((), (entry,) * 65):
        with pytest.raises(InvalidValueError, match="out_of_range"):
            BarrierWaiting(superstep=STEP, checkpoint_digest=DIGEST, revision=REVISION, waits=waits)
    with pytest.raises(InvalidValueError, match="out_of_range"):
        CancellationRequested(superstep=STEP, revision=REVISION, request_digest=DIGEST, abandoned=(WAIT,) * 65)
    with pytest.raises(InvalidValueError, match="out_of_range"):
        RunFailed(
            superstep=STEP,
            revision=REVISION,
            outcome_digest=DIGEST,
            in_flight=0,
            failed=0,
            exhausted=0,
            abandoned=(WAIT,) * 65,
        )


def test_a_shape_refuses_a_kind_of_another_shape() -> None:
    with pytest.raises(InvalidValueError, match="wrong_kind"):
        CallAttemptStarted(kind=FIRED, invocation_id=CALL, number=NUMBER, attempt_id=ATTEMPT)


def test_every_kind_has_one_shape() -> None:
    assert set(SHAPES) == set(EventKind)
    assert {data.kind for data, _ in EXAMPLES} == set(EventKind)
