"""Workers claim a run, stall, renew, die and come back, each with its own view of it; the fold says what is legal."""

from __future__ import annotations

from functools import cache
from typing import Final

from attrs import define
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.failure import RetryAdvice, SafeAfter
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.nodes import GraphNode
from agentruns.domain.graph.results import ContinueControl, NodeFailure, NodeResult, Update
from agentruns.domain.ids import AttemptId, CheckpointId, EventId
from agentruns.domain.ledger.classify import Dispatchable, InFlight, ReadyNodesPlan, classify
from agentruns.domain.ledger.drafts import AdmissionDraft, BarrierIds, Completion, Start, SuperstepDraft
from agentruns.domain.ledger.records import AttemptStatus, NodeAttempt
from agentruns.domain.ledger.run_data import MAX_ATTEMPTS
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import DurationMillis, FencingEpoch
from agentruns.domain.scalars import NodeId
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import AgentRunsError, CorruptDataError, InvariantError
from agentruns.testing.graphs import executable_of
from agentruns.testing.histories import BEGIN, sample_request
from agentruns.testing.machines.lease_model import SECOND, Fence, LeaseModel
from agentruns.testing.machines.record_laws import check_record
from agentruns.testing.samples import failure
from agentruns.testing.simulation.journal import MemoryJournal

_WORKERS: Final = 3
#: What an attempt that ends badly advises.
_ADVICE: Final[dict[str, RetryAdvice | None]] = {
    "later": SafeAfter(delay=DurationMillis(500)),
    "again": SafeAfter(delay=DurationMillis(0)),
    "never": None,
}
_MOMENTS: Final = (1, 400_000, SECOND, 4 * SECOND, 4 * SECOND + 1)


@cache
def graph() -> ExecutableGraph:
    """Give a graph of two siblings that go on together for as long as the run is permitted to."""
    nodes = [GraphNode.of(each, continue_to=["a", "b"], terminal=True) for each in "ab"]
    return executable_of(nodes, entry="ab", name="fences", maximum_supersteps=64)


@define(kw_only=True)
class _Worker:
    """Remember what a worker believes: its fence, and the run as it knows it."""

    fence: Fence
    state: RunState


class FenceMachine(RuleBasedStateMachine):
    """Let three workers write for one run.

    A model of the lease stands for the database's guard. Behind it the rules of the fold are asked as well about what
    the guard would have refused: neither may rely on the other.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now: Timestamp = BEGIN
        self.lease = LeaseModel(duration=4 * SECOND, horizon=60 * SECOND)
        self.workers: dict[int, _Worker] = {}
        self.attempts = 0
        self.turns = 0
        request = sample_request(graph())
        self.journal = MemoryJournal(request.tenant_id, request.run_id)
        self.journal.append(AdmissionDraft.of(request, graph()).build(self.now))

    # --- leases ----------------------------------------------------------------------------------------------------

    @rule(worker=st.integers(0, _WORKERS - 1), by_force=st.booleans())
    def claim(self, worker: int, by_force: bool) -> None:
        """Take the run, and read it."""
        self.attempts += 1
        take = self.lease.supersede if by_force else self.lease.claim
        if take(self.attempts, self.now.micros) == "done":
            fence = Fence(self.attempts, self.lease.epoch)
            self.workers[worker] = _Worker(fence=fence, state=self.journal.fold(graph()))

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), by=st.sampled_from([0, 1, 2 * SECOND, 30 * SECOND, 90 * SECOND]))
    def renew(self, data: st.DataObject, by: int) -> None:
        """Extend whatever lease a worker believes to have."""
        self.lease.renew(self._one(data).fence, self.now.micros + by, self.now.micros)

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """Give a lease back; the worker does not know that it had better stop."""
        self.lease.release(self._one(data).fence, None, self.now.micros)

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """Forget a worker; its lease is left behind."""
        del self.workers[data.draw(st.sampled_from(sorted(self.workers)))]

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def read_again(self, data: st.DataObject) -> None:
        """Let a worker that was overtaken read the run, whoever owns it now."""
        self._one(data).state = self.journal.fold(graph())

    @rule(micros=st.sampled_from(_MOMENTS))
    def pass_time(self, micros: int) -> None:
        """Let time pass, to the microsecond at which a lease ends."""
        self.now = self.now.plus_micros(micros)

    # --- writing ---------------------------------------------------------------------------------------------------

    @rule(data=st.data(), ends=st.lists(st.sampled_from(["later", "again", "never", "well", "well"]), max_size=6))
    def go_on(self, data: st.DataObject, ends: list[str]) -> None:
        """Let a worker do some of what its own view of the run says is next; its attempts end as drawn."""
        if not self.workers:
            self.claim(worker=0, by_force=True)
        worker = self._one(data)
        for end in ends:
            self._move(worker, end)

    @invariant()
    def the_fold_refuses_whoever_intrudes(self) -> None:
        """Offer the fold whatever could be written at the head, under the epochs around the last one that wrote.

        It is offered now, or at the instant at which a retry is permitted, or a microsecond before. What is legal is
        worked out here anew; nothing of it is kept.
        """
        state, self.turns = self.journal.fold(graph()), self.turns + 1
        epoch = max(1, state.epoch + self.turns % 3 - 1)
        gates = [last.retry_not_before for last in state.nodes.values() if last.retry_not_before is not None]
        instants = [*(gate.plus_micros(micros) for gate in gates for micros in (-1, 0)), self.now]
        later = [each for each in instants if each >= self.now]
        now = later[self.turns % len(later)]
        for node_id in (NodeId("a"), NodeId("b")):
            last = state.nodes.get(node_id)
            may_start = epoch >= state.epoch and (last is None or _may_follow(last, epoch, now))
            may_end = epoch >= state.epoch and last is not None and last.is_executing_under(epoch)
            offer = _Offer(state=state, epoch=epoch, now=now)
            assert offer.is_accepted(starts=(_start(node_id),)) == may_start
            for end in ("well", "never"):
                assert offer.is_accepted(completions=(_completion(node_id, end),)) == may_end

    def teardown(self) -> None:
        """Read the record as a whole: nothing that a stale worker believed has come into it."""
        check_record(self.journal.events, self.journal.ready)
        self.journal.refold(graph())

    def _move(self, worker: _Worker, end: str) -> None:
        plan = self._plan(worker)
        if plan is None:
            return
        running = [each.node_id for each in plan.nodes if isinstance(each, InFlight)]
        startable = [each.node_id for each in plan.nodes if isinstance(each, Dispatchable)]
        if plan.is_barrier_ready and worker.state.superstep < graph().definition.limits.maximum_supersteps:
            ids = BarrierIds(event_id=EventId.generate(), checkpoint_id=CheckpointId.generate())
            self._commit(worker, self._draft(worker, barrier=ids))
        elif running:
            self._commit(worker, self._draft(worker, completions=(_completion(running[0], end),)))
        elif startable:
            self._commit(worker, self._draft(worker, starts=(_start(startable[-1]),)), starts=True)

    def _one(self, data: st.DataObject) -> _Worker:
        return self.workers[data.draw(st.sampled_from(sorted(self.workers)))]

    def _plan(self, worker: _Worker) -> ReadyNodesPlan | None:
        try:
            return classify(worker.state, epoch=FencingEpoch(worker.fence.epoch), now=self.now)
        except AgentRunsError:
            assert worker.fence.epoch < worker.state.epoch
            return None

    def _draft(
        self,
        worker: _Worker,
        *,
        completions: tuple[Completion, ...] = (),
        barrier: BarrierIds | None = None,
        starts: tuple[Start, ...] = (),
    ) -> SuperstepDraft:
        return SuperstepDraft(
            state=worker.state,
            graph=graph(),
            epoch=FencingEpoch(worker.fence.epoch),
            completions=completions,
            barrier=barrier,
            starts=starts,
        )

    def _commit(self, worker: _Worker, draft: SuperstepDraft, *, starts: bool = False) -> None:
        head = worker.state.head
        assert head is not None
        commit = draft.build(self.now)
        answer = self.lease.commit(
            worker.fence, head.sequence.value, self.now.micros, events=len(commit.events), starts=starts
        )
        if answer == "done":
            self.journal.append(commit)
            worker.state = commit.state


@define(kw_only=True)
class _Offer:
    """Ask the fold about one commit, without keeping it."""

    state: RunState
    epoch: int
    now: Timestamp

    def is_accepted(self, *, starts: tuple[Start, ...] = (), completions: tuple[Completion, ...] = ()) -> bool:
        draft = SuperstepDraft(
            state=self.state,
            graph=graph(),
            epoch=FencingEpoch(self.epoch),
            starts=starts,
            completions=completions,
        )
        try:
            draft.build(self.now)
        except (InvariantError, CorruptDataError):
            return False
        return True


def _may_follow(last: NodeAttempt, epoch: int, now: Timestamp) -> bool:
    """Say whether another attempt may be started: a takeover, or a retry whose time has come."""
    if last.attempt == MAX_ATTEMPTS:
        return False
    if last.status is AttemptStatus.EXECUTING:
        return last.epoch < epoch
    return last.retry_not_before is not None and last.retry_not_before <= now


def _start(node_id: NodeId) -> Start:
    return Start(node_id=node_id, event_id=EventId.generate(), attempt_id=AttemptId.generate())


def _completion(node_id: NodeId, end: str) -> Completion:
    body: NodeResult | NodeFailure
    if end == "well":
        update = Update(data=BoundedJson.of({str(node_id): 1}))
        body = NodeResult(state_change=update, control=ContinueControl(), bindings=(), usage=BudgetUsage.zero())
    else:
        body = NodeFailure(failure=failure(retry_advice=_ADVICE[end]), usage=BudgetUsage.zero())
    return Completion(node_id=node_id, event_id=EventId.generate(), body=body)
