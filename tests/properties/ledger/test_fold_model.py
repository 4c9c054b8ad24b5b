"""LED-8: the fold accepts exactly the attempts that a model accepts which was written apart from it."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

from attrs import define, evolve, field
from hypothesis import given
from hypothesis import strategies as st

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import Digest, DigestPurpose, digest_body
from agentruns.domain.failure import SafeAfter
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.nodes import GraphNode
from agentruns.domain.graph.results import ContinueControl, NodeFailure, NodeResult, Unchanged
from agentruns.domain.ids import AttemptId, EventId
from agentruns.domain.ledger.bodies import BodyRow
from agentruns.domain.ledger.data import EventData, NodeAttemptFailed, NodeAttemptStarted, NodeAttemptSucceeded
from agentruns.domain.ledger.event import Event
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import DurationMillis, Superstep
from agentruns.domain.scalars import NodeId
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import AgentRunsError, CorruptDataError
from agentruns.testing.graphs import executable_of
from agentruns.testing.histories import History, as_stored
from agentruns.testing.samples import failure, sample_id

RESULT = NodeResult(state_change=Unchanged(), control=ContinueControl(), bindings=(), usage=BudgetUsage.zero())
FINAL = NodeFailure(failure=failure(), usage=BudgetUsage.zero())
LATER = NodeFailure(failure=failure(retry_advice=SafeAfter(delay=DurationMillis(1))), usage=BudgetUsage.zero())
BODIES = {body.digest: BodyRow.of(body) for body in (RESULT, FINAL, LATER)}


@cache
def graph() -> ExecutableGraph:
    nodes = [GraphNode.of(each, continue_to=["a", "b"], terminal=True) for each in "ab"]
    return executable_of(nodes, entry="ab", name="model")


@define
class Model:
    """Know the table of attempts, and nothing of how the fold keeps it."""

    epoch: int = 0
    attempts: dict[str, list[dict[str, Any]]] = field(factory=lambda: {"a": [], "b": []})

    def accepts(self, data: Any, epoch: int, now: int) -> bool:
        if epoch < max(self.epoch, 1) or int(data.superstep) or str(data.node_id) not in self.attempts:
            return False
        made = self.attempts[str(data.node_id)]
        if isinstance(data, NodeAttemptStarted):
            return data.attempt == len(made) + 1 <= 64 and self._may_start(made, str(data.attempt_id), epoch, now)
        is_open = bool(made) and made[-1]["end"] is None and made[-1]["epoch"] == epoch
        if not is_open or data.attempt != len(made):
            return False
        if isinstance(data, NodeAttemptSucceeded):
            return data.result_digest == RESULT.digest
        gate = None if data.retry_not_before is None else data.retry_not_before.micros - now
        return (data.result_digest, gate) in ((FINAL.digest, None), (LATER.digest, 1000))

    def _may_start(self, made: list[dict[str, Any]], attempt_id: str, epoch: int, now: int) -> bool:
        if not made:
            return True
        last = made[-1]
        if last["id"] == attempt_id:
            return False
        if last["end"] is None:
            return bool(last["epoch"] < epoch)
        return last["end"] == "failed" and last["gate"] is not None and bool(last["gate"] <= now)

    def take(self, data: Any, epoch: int) -> None:
        self.epoch = epoch
        made = self.attempts[str(data.node_id)]
        if isinstance(data, NodeAttemptStarted):
            made.append({"id": str(data.attempt_id), "epoch": epoch, "end": None, "gate": None})
        elif isinstance(data, NodeAttemptSucceeded):
            made[-1]["end"] = "succeeded"
        else:
            gate = data.retry_not_before
            made[-1].update(end="failed", gate=None if gate is None else gate.micros)


attempts = st.integers(1, 3)
supersteps = st.sampled_from([0, 0, 0, 0, 1]).map(Superstep)
nodes = st.sampled_from(["a", "a", "b", "c"]).map(NodeId)
digests = st.sampled_from([RESULT.digest, FINAL.digest, LATER.digest])


@st.composite
def proposals(draw: st.DrawFn) -> tuple[str, Superstep, NodeId, int, int, int, Digest, bool]:
    return (
        draw(st.sampled_from(["start", "start", "succeed", "fail"])),
        draw(supersteps),
        draw(nodes),
        draw(attempts),
        draw(st.integers(0, 3)),
        draw(st.integers(0, 1500)),
        draw(digests),
        draw(st.booleans()),
    )


def data_of(proposal: tuple[Any, ...], now: Timestamp, number: int) -> EventData:
    kind, superstep, node_id, attempt, _, micros, digest, has_gate = proposal
    if kind == "start":
        attempt_id = sample_id(AttemptId, 1 if has_gate else number)
        return NodeAttemptStarted(superstep=superstep, node_id=node_id, attempt=attempt, attempt_id=attempt_id)
    if kind == "succeed":
        return NodeAttemptSucceeded(superstep=superstep, node_id=node_id, attempt=attempt, result_digest=digest)
    gate = now.plus_micros(1000 if micros % 5 else micros) if has_gate else None
    return NodeAttemptFailed(
        superstep=superstep, node_id=node_id, attempt=attempt, result_digest=digest, retry_not_before=gate
    )


def event_of(state: RunState, data: EventData, epoch: int, now: Timestamp, number: int) -> Event:
    """Chain an event of any source, even one that its kind does not allow."""
    event = Event.following(
        state.head,
        tenant_id=state.tenant_id,
        run_id=state.run_id,
        event_id=sample_id(EventId, number),
        recorded_at=now,
        epoch=epoch or 1,
        data=data,
    )
    if epoch:
        return event
    unfenced = evolve(event, epoch=0)
    head = state.head
    assert head is not None
    return evolve(unfenced, digest=digest_body(DigestPurpose.EVENT, head.digest.raw, unfenced.envelope))


@given(st.lists(proposals(), min_size=5, max_size=60))
def test_LED_08_attempts(steps: list[tuple[Any, ...]]) -> None:
    history = History.admitted(graph(), Random(1))
    state, now, model = history.state, history.now, Model()
    for number, proposal in enumerate(steps, start=10):
        now = now.plus_micros(proposal[5])
        data, epoch = data_of(proposal, now, number), proposal[4]
        event = event_of(state, data, epoch, now, number)
        before = evolve(state)
        assert is_applied(state, event) == is_extended(state, event) == model.accepts(data, epoch, now.micros)
        assert state == before
        if model.accepts(data, epoch, now.micros):
            model.take(data, epoch)
            state = state.apply(as_stored(event), stored(), graph())


def stored() -> dict[Digest, BodyRow]:
    return {digest: evolve(row, record=None) for digest, row in BODIES.items()}


def is_applied(state: RunState, event: Event) -> bool:
    try:
        state.apply(as_stored(event), stored(), graph())
    except CorruptDataError:
        return False
    return True


def is_extended(state: RunState, event: Event) -> bool:
    try:
        state.extend(event, BODIES, graph())
    except AgentRunsError:
        return False
    return True


@given(st.integers(0, 2**32))
def test_GRA_06_a_plan_passes_as_the_barrier_of_its_disposition(seed: int) -> None:
    """Random histories hold only barriers of their own plan; each leads to a declared successor set."""
    history = History.admitted(graph(), Random(seed), with_ends=False).grow(40)
    declared = {
        str(node_id) for node in graph().definition.nodes for _, each in node.successor_sets() for node_id in each
    }
    for commit in history.commits[1:]:
        if commit.checkpoint is not None and commit.state.checkpoint is not None:
            assert {str(node_id) for node_id in commit.state.checkpoint.ready_nodes} <= declared
            assert commit.state.checkpoint.state == commit.before.barrier(graph()).state
            assert BoundedJson.read(commit.checkpoint.state) == commit.state.checkpoint.state
