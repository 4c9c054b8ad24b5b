"""Workers on a real database: each call's answer is the lease model's, at the microsecond."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

from attrs import define
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentruns.domain.failure import SafeAfter
from agentruns.domain.graph.results import NodeFailure
from agentruns.domain.ids import AttemptId, EventId, RunId
from agentruns.domain.lease import RunFence
from agentruns.domain.ledger.drafts import Completion, Start, SuperstepDraft
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import DurationMillis
from agentruns.domain.scalars import NodeId
from agentruns.domain.submission import AgentRunIds
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import (
    AgentRunsError,
    LeaseLostError,
    NotYetAvailableError,
    RefusedError,
    RunNotRunnableError,
    StaleHeadError,
)
from agentruns.runtime.committer import CommitPlan, RunCommitter
from agentruns.runtime.replay import RunReader
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.testing.machines.lease_model import SECOND, Fence, LeaseModel
from agentruns.testing.machines.stored import StoredClock, StoredWorld, check_stored
from agentruns.testing.machines.submission import bundle, executables, request_of
from agentruns.testing.samples import failure

_WORKERS: Final = 3
_NODE: Final = NodeId("a")
_AGAIN: Final = NodeFailure(failure=failure(retry_advice=SafeAfter(delay=DurationMillis(0))), usage=BudgetUsage.zero())


@define(kw_only=True)
class _Worker:
    """What a worker believes.

    Attributes:
        name: of its fence, in the model.
        before: what it believed before its last write.
    """

    fence: RunFence
    name: Fence
    state: RunState
    expires: Timestamp
    before: RunState | None = None


class StoredFenceMachine(RuleBasedStateMachine):
    """Let three workers claim, renew, write and give back, each whether it may or not."""

    def __init__(self, world: StoredWorld) -> None:
        super().__init__()
        self.world, self.store, self.tenant = world, world.store, world.tenant()
        self.committer, self.reader = RunCommitter(world.store), RunReader(world.store, executables())
        duration = world.store.options.lease_duration
        horizon = world.store.options.maximum_lease_horizon
        self.lease = LeaseModel(duration=duration.seconds * SECOND, horizon=int(horizon.total_seconds()) * SECOND)
        self.attempts: list[AttemptId] = []
        self.workers: dict[int, _Worker] = {}
        self.run_id = world.run(self._admitted())
        self.clock = StoredClock(world, self.store.clock.stamp())
        self.lease.ready = self.clock.now.micros
        self.clock.advance(0)

    async def _admitted(self) -> RunId:
        runs = DurableAgentRuns(self.store, executables())
        await runs.publish(self.tenant, bundle().graph)
        request = request_of(0, AgentRunIds.generate(), tenant_id=self.tenant)
        await runs.admit(request)
        return request.run_id

    # --- leases ------------------------------------------------------------------------------------------------------

    @rule(worker=st.integers(0, _WORKERS - 1), by_force=st.booleans(), same_id=st.booleans())
    def claim(self, worker: int, by_force: bool, same_id: bool) -> None:
        """LEA-2 to LEA-6: take the run, with a fresh id or the one that was used last."""
        if not (same_id and self.attempts):
            self.attempts.append(AttemptId.generate())
        number, attempt_id = len(self.attempts), self.attempts[-1]
        take, expect = (
            (self.store.supersede, self.lease.supersede) if by_force else (self.store.claim, self.lease.claim)
        )
        expected = expect(number, self.clock.now.micros)
        answer, held = self._answer(take(self.tenant, self.run_id, attempt_id))
        assert answer == ("done" if expected == "mine" else expected)
        if held is None:
            return
        assert held.fence.epoch.value == self.lease.epoch
        state = self.world.run(self.reader.read(self.tenant, self.run_id)).state
        name = Fence(number, held.fence.epoch.value)
        self.workers[worker] = _Worker(fence=held.fence, name=name, state=state, expires=held.lease.expires_at)

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), by=st.sampled_from([0, 1, 2 * SECOND, 30 * SECOND, 299 * SECOND, 301 * SECOND]))
    def renew(self, data: st.DataObject, by: int) -> None:
        """LEA-7, LEA-8: extend a lease; by nothing at all is what it has."""
        worker = self._one(data)
        desired = worker.expires if by == 0 else self.clock.now.plus_micros(by)
        expected = self.lease.renew(worker.name, desired.micros, self.clock.now.micros)
        answer, held = self._answer(self.store.renew(worker.fence, desired=desired))
        assert answer == ("done" if expected == "same" else expected)
        if held is not None:
            worker.expires = held.lease.expires_at

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """LEA-9: give a lease back, as often as one likes."""
        worker = self._one(data)
        expected = self.lease.release(worker.name, None, self.clock.now.micros)
        assert self._answer(self.store.release(worker.fence))[0] == expected

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def observe(self, data: st.DataObject) -> None:
        """LEA-1: exactly the fence that the model has for live is."""
        worker = self._one(data)
        assert self._answer(self.store.observe(worker.fence))[0] == self.lease.observe(
            worker.name, self.clock.now.micros
        )

    @rule(micros=st.sampled_from([1, 400_000, SECOND, 4 * SECOND, 31 * SECOND]))
    def pass_time(self, micros: int) -> None:
        """Let time pass."""
        self.clock.advance(micros)

    @rule(beside=st.sampled_from([-1, 0]))
    def go_to_the_end_of_the_lease(self, beside: int) -> None:
        """LEA-27: go to the instant at which the lease ends, or to the microsecond before."""
        if self.lease.owner is not None and self.lease.expires + beside > self.clock.now.micros:
            self.clock.advance(self.lease.expires + beside - self.clock.now.micros)

    # --- writing -----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), is_behind=st.sampled_from([True, False, True]))
    def write(self, data: st.DataObject, is_behind: bool) -> None:
        """LEA-10, LEA-17: start the node, or end the attempt that is under way, as the worker's own view has it.

        One that is behind has forgotten its last write: the head has moved under its very fence.
        """
        worker = self._one(data)
        state = worker.before if is_behind and worker.before is not None else worker.state
        draft = self._draft(worker, state)
        if draft is None or state.head is None:
            return
        head, starts = state.head, bool(draft.starts)
        plan = CommitPlan(fence=worker.fence, head=head, build=draft.build, size=0)
        now = self.clock.now.micros
        expected = self.lease.commit(worker.name, head.sequence.value, now, events=1, starts=starts)
        answer, result = self._answer(self.committer.commit(plan))
        assert answer == expected
        if result is not None:
            assert result.outcome.value == "committed"
            worker.before, worker.state = state, result.draft.state

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def read_again(self, data: st.DataObject) -> None:
        """Let a worker catch up, whoever owns the run now."""
        self._one(data).state = self.world.run(self.reader.read(self.tenant, self.run_id)).state

    # --- what always holds -------------------------------------------------------------------------------------------

    @invariant()
    def the_row_is_what_the_model_says(self) -> None:
        """LEA-2, LEA-3, LEA-7: epoch, lease and head agree, after calls that were refused too."""
        statement = (
            "SELECT fencing_epoch, lease_attempt_id::text AS owner, lease_expires_at, head_sequence"
            " FROM agentruns.runs WHERE tenant_id = :tenant"
        )
        (row,) = self.world.run(self.world.rows(statement, tenant=self.tenant.text))
        owner = None if self.lease.owner is None else self.attempts[self.lease.owner - 1].text
        assert (row.fencing_epoch, row.owner, row.head_sequence) == (self.lease.epoch, owner, self.lease.head)
        if owner is not None:
            assert Timestamp.from_datetime(row.lease_expires_at).micros == self.lease.expires

    def teardown(self) -> None:
        """Read the record as a whole."""
        self.world.run(check_stored(self.world, self.tenant, self.run_id))

    def _one(self, data: st.DataObject) -> _Worker:
        return self.workers[data.draw(st.sampled_from(sorted(self.workers)))]

    def _answer(self, call: Coroutine[Any, Any, Any]) -> tuple[str, Any]:
        """Make a call, and name how it ends."""
        try:
            return "done", self.world.run(call)
        except (NotYetAvailableError, LeaseLostError, StaleHeadError) as error:
            return error.reason, None
        except RunNotRunnableError:
            return "status", None
        except RefusedError as error:
            return error.reason, None

    def _draft(self, worker: _Worker, state: RunState) -> SuperstepDraft | None:
        """Plan what the worker believes to be next; ``None`` where its own view of the run forbids any."""
        last = state.nodes.get(_NODE)
        starts: tuple[Start, ...] = ()
        completions: tuple[Completion, ...] = ()
        if last is not None and last.is_executing_under(worker.fence.epoch.value):
            completions = (Completion(node_id=_NODE, event_id=EventId.generate(), body=_AGAIN),)
        elif last is None or last.attempt < 64:  # noqa: PLR2004  # the bound of the spec
            starts = (Start(node_id=_NODE, event_id=EventId.generate(), attempt_id=AttemptId.generate()),)
        draft = SuperstepDraft(
            state=state,
            graph=executables().resolve(bundle().graph.definition_digest),
            epoch=worker.fence.epoch,
            completions=completions,
            starts=starts,
        )
        try:
            draft.build(self.clock.now)
        except AgentRunsError:
            return None
        return draft
