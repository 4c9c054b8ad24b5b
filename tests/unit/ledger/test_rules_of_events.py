"""The rules of every event and of the admission, by the events that break them."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import Digest, DigestPurpose, digest_body, plain_digest
from agentruns.domain.graph.nodes import GraphNode
from agentruns.domain.graph.results import (
    ContinueControl,
    NodeFailure,
    NodeResult,
    TerminalControl,
    Unchanged,
    Update,
)
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.ledger.bodies import BodyRow
from agentruns.domain.ledger.checkpoint import Checkpoint, state_digest
from agentruns.domain.ledger.data import (
    AgentAdmitted,
    NodeAttemptStarted,
    NodeAttemptSucceeded,
)
from agentruns.domain.ledger.drafts import AdmissionDraft
from agentruns.domain.ledger.event import Event
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import FencingEpoch, Superstep
from agentruns.domain.scalars import JournalEventKind, NodeId, TenantId
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import (
    AgentAdmissionRejectedError,
    CorruptDataError,
    InvariantError,
)
from agentruns.testing.graphs import executable_of
from agentruns.testing.histories import DEADLINE, as_stored, bodies_of, sample_request
from agentruns.testing.samples import failure, sample_id
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


def test_LEA_20_source() -> None:
    run = ScriptedRun(GRAPH)
    run.epoch = FencingEpoch(5)
    run.start("a")
    run.epoch = FencingEpoch(6)
    run.start("a")
    assert run.refusal(started(3), epoch=5).is_fault("source")
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
    assert run.refusal(data).is_fault("body", "missing_artifact")
    assert run.refusal(data, {good.digest: BodyRow(data=b"{}")}).is_fault("body")
    strange = b'{"from":"the future"}'
    digest = digest_body(DigestPurpose.NODE_RESULT, strange)
    data = evolve(data, result_digest=digest)
    assert run.refusal(data, {digest: BodyRow(data=strange)}).is_fault("body", "unsupported_schema")
    failed = NodeFailure(failure=failure(), usage=NOTHING)
    data = evolve(data, result_digest=failed.digest)
    assert run.refusal(data, rows_of(failed)).is_fault("body")


def test_a_graph_is_needed_and_is_the_runs() -> None:
    run = ScriptedRun(GRAPH)
    event = run.event(started(), epoch=1)
    for graph in (None, executable_of(NODES, name="another")):
        with pytest.raises(InvariantError, match="graph"):
            run.state.apply(event, {}, graph)


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
    named = Checkpoint.initial(
        request.initial_checkpoint_id,
        graph_digest=GRAPH.digest,
        entry_nodes=GRAPH.definition.entry_nodes,
        state_digest=state_digest(strange),
    )
    seed, _, rows, event = admission(checkpoint_digest=named.digest)
    rows[named.digest] = BodyRow(data=strange, checkpoint_id=request.initial_checkpoint_id)
    with pytest.raises(CorruptDataError) as caught:
        seed.apply(as_stored(event), rows, GRAPH)
    assert (caught.value.component, caught.value.reason) == ("body", "unsupported_schema")


def test_the_state_schema_accepts_the_state() -> None:
    graph = executable_of(NODES, keywords={"state": {"type": "array"}})
    with pytest.raises(InvariantError, match="state"):
        AdmissionDraft.of(sample_request(graph), graph).build(DEADLINE.plus_micros(-1))
