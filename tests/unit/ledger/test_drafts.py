"""Commits as they are built: fused or alone, they leave the same events and rows."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.graph.nodes import GraphNode
from agentruns.domain.graph.reducers import MergeReducer
from agentruns.domain.graph.results import ContinueControl, NodeFailure, NodeResult, Unchanged, Update, WaitControl
from agentruns.domain.ids import CheckpointId, EventId, WaitId
from agentruns.domain.ledger.bodies import BodyRow
from agentruns.domain.ledger.classify import (
    classify,
)
from agentruns.domain.ledger.data import NodeAttemptSucceeded
from agentruns.domain.ledger.drafts import (
    AdmissionDraft,
    BarrierIds,
    CancellationRequestDraft,
    Completion,
    FiringDraft,
    Start,
    SuperstepDraft,
)
from agentruns.domain.ledger.findings import quarantine_cause, quarantine_component
from agentruns.domain.ledger.outcomes import CancellationRequest, StoredFailure
from agentruns.domain.ledger.rows import CheckpointRow, ResultRow, RunProjection, StartRow
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import FencingEpoch, JournalSequence, Superstep
from agentruns.domain.quarantine import QuarantineCause
from agentruns.domain.scalars import NodeId
from agentruns.domain.usage import BudgetUsage
from agentruns.domain.waits import NodeWait
from agentruns.errors import (
    CorruptDataError,
    ExecutableGraphUnavailableError,
    InvalidValueError,
    InvariantError,
    RunNotRunnableError,
    SchemaUnavailableError,
)
from agentruns.testing.graphs import executable_of
from agentruns.testing.histories import BEGIN, sample_request
from agentruns.testing.samples import cancellation, failure, sample_id
from agentruns.testing.scripted_run import ScriptedRun, rows_of

NODES = [
    GraphNode.of("a", continue_to=["b", "c"]),
    GraphNode.of("b", terminal=True, continue_to=["a"]),
    GraphNode.of("c", continue_to=["a"], wait_to=["a"]),
]
GRAPH = executable_of(NODES)
A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
ZERO = BudgetUsage.zero()


def result(control: Any = None, update: Any = None) -> NodeResult:
    return NodeResult(
        state_change=Unchanged() if update is None else Update(data=BoundedJson.of(update)),
        control=control or ContinueControl(),
        bindings=(),
        usage=ZERO,
    )


def test_LED_07_a_fused_commit_leaves_what_separate_ones_leave() -> None:
    fused, alone = ScriptedRun(GRAPH), ScriptedRun(GRAPH)
    for run in (fused, alone):
        run.start("a")
    assert fused.state == alone.state
    alone.complete("a", update={"n": 1})
    alone.go_on()
    alone.start("b")
    alone.start("c")
    ids = [event.event_id for commit in alone.commits[2:] for event in commit.events]
    draft = SuperstepDraft(
        state=fused.state,
        graph=GRAPH,
        epoch=fused.epoch,
        completions=(Completion(node_id=A, event_id=ids[0], body=result(update={"n": 1})),),
        barrier=BarrierIds(event_id=ids[1], checkpoint_id=checkpoint_of(alone).checkpoint_id),
        starts=tuple(
            Start(node_id=row.node_id, event_id=event_id, attempt_id=row.attempt_id)
            for row, event_id in zip(starts_of(alone), ids[2:], strict=True)
        ),
    )
    commit = draft.build(fused.now)
    assert commit.state == alone.state
    assert list(commit.events) == [event for part in alone.commits[2:] for event in part.events]
    assert (commit.before, commit.is_transition, commit.gate, commit.wait_ids) == (fused.state, False, None, ())
    assert list(commit.starts) == starts_of(alone)
    assert commit.results == alone.commits[2].results
    assert commit.checkpoint == alone.commits[3].checkpoint
    assert commit.projection == RunProjection.of(alone.state)
    planned = evolve(draft, plan=draft.planned())
    assert planned.build(fused.now) == commit
    assert planned.planned() is planned.plan


def starts_of(run: ScriptedRun) -> list[StartRow]:
    return [row for commit in run.commits[2:] for row in commit.starts]


def checkpoint_of(run: ScriptedRun) -> CheckpointRow:
    return next(commit.checkpoint for commit in run.commits[2:] if commit.checkpoint is not None)


def test_rows_of_a_superstep() -> None:
    run = ScriptedRun(GRAPH)
    commit = run.start("a")
    assert commit.starts == (
        StartRow(
            superstep=Superstep(0),
            node_id=A,
            attempt=1,
            attempt_id=commit.starts[0].attempt_id,
            sequence=JournalSequence(2),
        ),
    )
    body = result(update={"n": 1})
    assert run.complete("a", update={"n": 1}).results == (
        ResultRow(
            superstep=Superstep(0),
            node_id=A,
            attempt=1,
            status="succeeded",
            body=body.canonical,
            digest=body.digest,
            retry_not_before=None,
            sequence=JournalSequence(3),
        ),
    )
    row = run.go_on().checkpoint
    assert row is not None
    assert (row.superstep, row.ready, row.state, row.sequence) == (
        Superstep(1),
        b'["b","c"]',
        b'{"n":1}',
        JournalSequence(4),
    )
    assert run.state.checkpoint is not None
    assert row.digest == run.state.checkpoint.digest


def test_the_plan_does_not_depend_on_the_stamp_and_the_reducer_runs_once() -> None:
    calls = []

    class Counted:
        reference = MergeReducer().reference

        def reduce(self, state: Any, updates: Any) -> Any:
            calls.append(updates)
            return MergeReducer().reduce(state, updates)

    graph = executable_of(NODES, reducer=Counted())
    run = ScriptedRun(graph)
    run.start("a")
    draft = SuperstepDraft(
        state=run.state,
        graph=graph,
        epoch=run.epoch,
        completions=(Completion(node_id=A, event_id=sample_id(EventId, 1), body=result(update={"n": 1})),),
        barrier=BarrierIds(event_id=sample_id(EventId, 2), checkpoint_id=sample_id(CheckpointId, 3)),
    )
    draft = evolve(draft, plan=draft.planned())
    assert len(calls) == 1
    first = draft.build(run.now)
    second = draft.build(run.now.plus_micros(1))
    assert len(calls) == 1
    assert first.checkpoint is not None
    assert second.checkpoint is not None
    assert first.checkpoint == second.checkpoint
    assert [event.data for event in first.events] == [event.data for event in second.events]
    assert draft.build(run.now) == first


def test_without_completions_the_states_own_plan_is_used() -> None:
    run = ScriptedRun(GRAPH)
    run.run_node("a")
    draft = SuperstepDraft(state=run.state, graph=GRAPH, epoch=run.epoch)
    assert draft.planned() is run.state.barrier(GRAPH)


def test_a_barrier_that_does_not_continue_is_never_fused() -> None:
    run = ScriptedRun(GRAPH)
    run.run_node("a")
    run.go_on()
    run.run_node("b")
    run.start("c")
    waits = WaitControl(waits=(NodeWait.timer(due_in=timedelta(0), id=sample_id(WaitId, 5)),))
    draft = SuperstepDraft(
        state=run.state,
        graph=GRAPH,
        epoch=run.epoch,
        completions=(Completion(node_id=C, event_id=run.event_id(), body=result(waits)),),
        barrier=BarrierIds(event_id=run.event_id(), checkpoint_id=run.checkpoint_id()),
    )
    with pytest.raises(InvariantError, match="disposition"):
        draft.build(run.now)
    commit = evolve(draft, barrier=None).build(run.now)
    assert commit.wait_ids == (sample_id(WaitId, 5),)
    assert draft.planned().disposition.value == "wait"


def test_a_completion_needs_an_attempt() -> None:
    run = ScriptedRun(GRAPH)
    draft = SuperstepDraft(
        state=run.state,
        graph=GRAPH,
        epoch=run.epoch,
        completions=(Completion(node_id=A, event_id=run.event_id(), body=result()),),
    )
    with pytest.raises(InvariantError, match="attempt_history"):
        draft.build(run.now)
    seed = RunState.empty(run.state.tenant_id, run.state.run_id)
    with pytest.raises(InvariantError, match="checkpoint"):
        evolve(draft, state=seed).planned()


def test_the_gate_of_a_commit_is_the_latest_of_its_starts() -> None:
    run = ScriptedRun(GRAPH)
    run.run_node("a")
    run.go_on()
    for node, delay in (("b", 7), ("c", 3)):
        run.start(node)
        run.fail_attempt(node, retry_after=delay)
    latest = run.now.plus_micros(7000)
    run.now = run.now.plus_micros(9000)
    starts = tuple(Start(node_id=node, event_id=run.event_id(), attempt_id=run.attempt_id()) for node in (B, C))
    draft = SuperstepDraft(state=run.state, graph=GRAPH, epoch=run.epoch, starts=starts)
    commit = draft.build(run.now)
    assert commit.gate == latest
    assert [row.attempt for row in commit.starts] == [2, 2]


def test_a_state_made_from_the_ends_can_be_cancelled() -> None:
    run = ScriptedRun(GRAPH)
    full = run.state
    ends = RunState(
        tenant_id=full.tenant_id,
        run_id=full.run_id,
        head=full.head,
        status=full.status,
        revision=full.revision,
        changed_at=full.changed_at,
        lifecycle_sequence=full.lifecycle_sequence,
        admission=full.admission,
        superstep=full.superstep,
    )
    request = CancellationRequest(failure=cancellation())
    drafts = [
        CancellationRequestDraft(state=state, event_id=sample_id(EventId, 8), request=request) for state in (ends, full)
    ]
    first, second = (draft.build(run.now) for draft in drafts)
    assert first.events == second.events
    assert first.outcome == second.outcome
    assert evolve(first.projection, checkpoint_digest=second.projection.checkpoint_digest) == second.projection
    assert first.projection.checkpoint_digest is None
    with pytest.raises(InvariantError, match="checkpoint"):
        CheckpointRow.of(ends)
    with pytest.raises(InvariantError, match="checkpoint"):
        ends.barrier(GRAPH)
    with pytest.raises(InvariantError, match="checkpoint"):
        ends.successor(full_plan(), sample_id(CheckpointId, 1))
    with pytest.raises(RunNotRunnableError, match="no_checkpoint"):
        classify(ends, epoch=FencingEpoch(1), now=run.now)
    with pytest.raises(InvariantError, match="checkpoint"):
        ends.extend(run.start("a").events[0], {}, GRAPH)


def full_plan() -> Any:
    run = ScriptedRun(GRAPH)
    run.run_node("a")
    return run.state.barrier(GRAPH)


def test_the_seed_has_no_row() -> None:
    run = ScriptedRun(GRAPH)
    with pytest.raises(InvariantError, match="seed"):
        RunProjection.of(RunState.empty(run.state.tenant_id, run.state.run_id))


def test_causes_of_quarantine() -> None:
    causes = {
        ("chain", "digest"): QuarantineCause.INTEGRITY_FAILURE,
        ("barrier", "reducer_rejected"): QuarantineCause.INTEGRITY_FAILURE,
        ("runs.status", ""): QuarantineCause.PROJECTION_MISMATCH,
        ("kind", "unsupported_schema"): QuarantineCause.UNSUPPORTED_SCHEMA,
        ("body", "missing_artifact"): QuarantineCause.MISSING_ARTIFACT,
        ("admission", "cross_tenant_reference"): QuarantineCause.CROSS_TENANT_REFERENCE,
    }
    for (component, reason), cause in causes.items():
        assert quarantine_cause(CorruptDataError(component=component, reason=reason)) is cause
        assert quarantine_component(CorruptDataError(component=component, reason=reason)) == component


def test_G5_an_isolation_names_the_superstep_whose_barrier_does_not_verify() -> None:
    found = CorruptDataError(component="barrier", reason="state", superstep=2**31 - 1)
    assert quarantine_component(found) == "barrier:superstep-2147483647"


def test_a_record_of_another_kind_or_of_other_bytes_is_not_believed() -> None:
    run = ScriptedRun(GRAPH)
    run.start("a")
    failed = NodeFailure(failure=failure(), usage=ZERO)
    row = BodyRow.of(failed)
    assert row == BodyRow(data=failed.canonical)
    assert "sample.failed" not in repr(row)
    assert json.loads(row.data)["failure"]["code"] == "sample.failed"


def test_a_failed_run_is_no_cancelled_one() -> None:
    with pytest.raises(InvalidValueError, match="failure_kind_mismatch"):
        StoredFailure(failure=cancellation(), usage=ZERO)


def test_settlements_are_those_of_the_commit_alone() -> None:
    run = ScriptedRun(GRAPH)
    run.run_node("a")
    run.go_on()
    run.run_node("b")
    waits = tuple(NodeWait.timer(due_in=timedelta(0), id=sample_id(WaitId, number)) for number in (1, 2))
    run.run_node("c", WaitControl(waits=waits))
    run.suspend()
    for wait in waits:
        draft = FiringDraft(state=run.state, event_id=run.event_id(), wait_id=wait.wait_id)
        run.commits.append(draft.build(run.now))
        assert [row.wait_id for row in run.commits[-1].settlements] == [wait.wait_id]


def test_usage_that_overflows_is_a_finding() -> None:
    run = ScriptedRun(GRAPH)
    most = BudgetUsage.of(output_bytes=2**64 - 1)
    run.start("a")
    run.complete("a", usage=most)
    run.go_on()
    run.start("b")
    body = evolve(result(), usage=most)
    data = NodeAttemptSucceeded(superstep=Superstep(1), node_id=B, attempt=1, result_digest=body.digest)
    assert run.refusal(data, rows_of(body)).is_fault("usage", "overflow")


def test_a_plan_over_results_that_contradict_the_graph_names_the_run() -> None:
    run = ScriptedRun(GRAPH)
    run.run_node("a")
    state = evolve(run.go_on().state, results={B: result()})
    with pytest.raises(CorruptDataError) as caught:
        state.barrier(GRAPH)
    assert (caught.value.component, caught.value.reason) == ("barrier", "result_set_mismatch")
    assert caught.value.superstep == 1
    assert (caught.value.tenant_id, caught.value.run_id) == (state.tenant_id, state.run_id)


class NoVerdict:
    """Stand for schemas whose validator gives up."""

    def validate(self, reference: object, _value: object, part: str | None = None) -> None:
        raise SchemaUnavailableError(reason="validator_failed", reference=reference, part=part)


def test_a_validator_that_gives_up_on_the_first_state_says_nothing_about_it() -> None:
    schemas: Any = NoVerdict()
    graph = evolve(GRAPH, schemas=schemas)
    with pytest.raises(ExecutableGraphUnavailableError, match="validator"):
        AdmissionDraft.of(sample_request(graph), graph).build(BEGIN)
