"""One drive: from a verified record to a decision that is made elsewhere, one committed superstep after another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.graph.barrier import BarrierDisposition
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.ids import AttemptId, EventId
from agentruns.domain.ledger.classify import ReadyNodesPlan, classify
from agentruns.domain.ledger.event import JournalHead
from agentruns.domain.ledger.state import RunState
from agentruns.domain.ledger.superstep import Completion, Start, SuperstepDraft
from agentruns.domain.numbers import FencingEpoch
from agentruns.domain.scalars import NodeId
from agentruns.domain.status import RunStatus
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import BarrierRejectedError, InvariantError, StaleHeadError, StoreError
from agentruns.runtime.committer import CommitPlan, CommitResult
from agentruns.runtime.driver.batches import dispatchable, first_batch, width_of
from agentruns.runtime.driver.completions import completions_of
from agentruns.runtime.driver.ending import commit_superstep, ending_of, handoff_of, has_ended
from agentruns.runtime.driver.execution import BatchEnd, BatchExecution
from agentruns.runtime.driver.fusing import EVENTS_OF_A_NODE, Fusing
from agentruns.runtime.driver.node_task import NodeTask
from agentruns.runtime.driver.outcomes import (
    Blocked,
    CancellationRequested,
    Cancelled,
    Deferred,
    GraphBlockers,
    GraphDriveOutcome,
    LifecycleBarrierReady,
    Yielded,
)
from agentruns.runtime.driver.parts import DriveParts
from agentruns.runtime.driver.report import GraphDriveReport
from agentruns.runtime.lease_keeper import LeaseKeeper
from agentruns.runtime.replay import ReplayedRun
from agentruns.runtime.result_limit import state_bytes
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.telemetry.counts import superstep_committed
from agentruns.runtime.telemetry.drives import run_verified
from agentruns.store.journal import RunHistory

_Drafting: TypeAlias = Callable[[Sequence[NodeTask]], SuperstepDraft]


class Drive:
    """Carry one run's state from commit to commit.

    After a commit the state is what was built, and nothing is read: the exact head proves that nobody else wrote.
    """

    def __init__(
        self, parts: DriveParts, keeper: LeaseKeeper, shutdown: ShutdownSignal, report: GraphDriveReport
    ) -> None:
        self._parts = parts
        self._options = parts.options
        self._report = report
        self._keeper = keeper
        self._shutdown = shutdown
        self.state: RunState
        self.graph: ExecutableGraph
        self.intent: AgentAdmissionIntent
        self._ended: LifecycleBarrierReady | None = None

    async def run(self) -> GraphDriveOutcome:
        """Drive until something must be decided elsewhere; nothing is executed before the record has verified."""
        history = self._keeper.held.history
        run_verified(await self._read(history), is_linked=history is not None)
        started: tuple[NodeId, ...] = ()
        while True:
            if started:
                end, started = await self._execute(started)
                if self._ended is not None:
                    return self._ended
                if end is BatchEnd.STOPPED:
                    return await self._give_back(Cancelled())
                continue
            outcome = await self._turn()
            if isinstance(outcome, tuple):
                started = outcome
            else:
                return outcome

    async def _turn(self) -> GraphDriveOutcome | tuple[NodeId, ...]:
        """Decide one durable step, in an order that is part of the contract. Who drains starts nothing further."""
        if self._shutdown.is_stopping:
            return await self._give_back(Cancelled())
        if self._events_left < 1:
            return await self._give_back(Yielded())
        if self.state.status is RunStatus.CANCELLATION_REQUESTED:
            return CancellationRequested(state=self.state, event_id=EventId.generate())
        now = self._now()
        plan = classify(self.state, epoch=self._keeper.fence.epoch, now=now)
        is_last = self.state.superstep >= self.graph.definition.limits.maximum_supersteps
        blockers = GraphBlockers.among(plan, superstep_limit_reached=is_last)
        if blockers is not None:
            return self._blocked(blockers, now)
        if plan.is_barrier_ready:
            return await self._barrier(now)
        return await (self._give_back(Cancelled()) if self._shutdown.is_draining else self._start(plan))

    # --- decisions ---------------------------------------------------------------------------------------------------

    def _blocked(self, blockers: GraphBlockers, now: Timestamp) -> Blocked:
        return Blocked(state=self.state, blockers=blockers, event_id=EventId.generate(), observed_at=now)

    async def _barrier(self, now: Timestamp) -> GraphDriveOutcome | tuple[NodeId, ...]:
        try:
            plan = await self._parts.isolating(self._keeper.fence, self._parts.planned(self.state, self.graph))
        except BarrierRejectedError as error:
            return self._blocked(GraphBlockers(barrier_rejected=error.reason), now)
        if plan.disposition is not BarrierDisposition.CONTINUE:
            return LifecycleBarrierReady(state=self.state, plan=plan, event_id=EventId.generate())
        return await self._commit(self._fusing().with_barrier(self._draft(), plan))

    async def _start(self, plan: ReadyNodesPlan) -> GraphDriveOutcome | tuple[NodeId, ...]:
        nodes = dispatchable(plan)
        gate = plan.earliest_deferred_at
        if not nodes and gate is not None:
            return await self._defer(gate)
        if self._events_left < EVENTS_OF_A_NODE:
            return await self._give_back(Yielded())
        return await self._commit(self._draft(starts=self._starts(nodes, self._events_left)))

    async def _defer(self, gate: Timestamp) -> GraphDriveOutcome | tuple[NodeId, ...]:
        self._keeper.let_go()
        if await self._parts.store.defer(self._keeper.fence, head=self._head, not_before=gate):
            return Deferred(not_before=gate)
        self._keeper.keep()
        return ()

    def _starts(self, nodes: Sequence[NodeId], events_left: int) -> tuple[Start, ...]:
        """Mint the ids of a batch once, before the first try of its commit."""
        width = width_of(
            self.graph, maximum_parallel_nodes=self._options.maximum_parallel_nodes, events_left=events_left
        )
        batch = first_batch(self.graph, nodes, width=width)
        self._parts.check_threads(self.graph, batch)
        return tuple(
            Start(node_id=node_id, event_id=EventId.generate(), attempt_id=AttemptId.generate()) for node_id in batch
        )

    # --- execution ---------------------------------------------------------------------------------------------------

    async def _execute(self, batch: tuple[NodeId, ...]) -> tuple[BatchEnd, tuple[NodeId, ...]]:
        """Call the code of nodes whose starts this drive has committed, once for each start."""
        tasks = self._parts.begun(self.graph, self.state, batch)
        execution = BatchExecution(tasks, options=self._options, report=self._report, commit_prefix=self._commit_prefix)
        watched = self._parts.watch.begin(self._report, tasks)
        try:
            work = execution.run(self._shutdown, self._cancellation)
            end = await self._parts.isolating(self._keeper.fence, work)
        finally:
            self._parts.watch.end(watched)
        if end is BatchEnd.CANCELLED:
            await self._catch_up()
        if end is not BatchEnd.FINISHED:
            return end, ()
        return end, await self._commit(await self._drafted(self._decided, execution.tasks))

    async def _cancellation(self) -> None:
        """Return once somebody has asked for the run's cancellation.

        The first look comes after an interval: that the starts were committed has just proved that nobody had.
        """
        while True:
            await asyncio.sleep(self._options.cancellation_poll_interval.total_seconds())
            # How long an outage may last is for the keeper of the lease to say.
            with suppress(StoreError):
                seen = await self._parts.store.observe(self._keeper.fence)
                if seen.status is RunStatus.CANCELLATION_REQUESTED:
                    return

    def _completed(self, tasks: Sequence[NodeTask]) -> SuperstepDraft:
        return self._draft(completions=completions_of(self.state, self.graph, tasks))

    def _decided(self, tasks: Sequence[NodeTask]) -> SuperstepDraft:
        """Add barrier and next starts to what is left of a batch, where the record stays the same."""
        return self._fusing().fuse(self._completed(tasks))

    async def _drafted(self, how: _Drafting, tasks: Sequence[NodeTask]) -> SuperstepDraft:
        size = state_bytes(self.state) + sum(task.returned_bytes for task in tasks)
        return await self._parts.computed(partial(how, tasks), size=size)

    async def _commit_prefix(self, tasks: Sequence[NodeTask]) -> bool:
        """Commit a part of a batch alone.

        Returns:
            Whether the batch may go on; not after somebody asked for the run's cancellation.
        """
        await self._commit(await self._drafted(self._completed, tasks))
        return self.state.status is RunStatus.ACTIVE

    def _fusing(self) -> Fusing:
        return Fusing(
            is_allowed=self._options.fuse_supersteps,
            may_start=not (self._shutdown.is_draining or self._parts.threads.are_exhausted),
            events_left=self._events_left,
            starts=self._starts,
            ending=lambda plan: ending_of(plan, self.intent, self._parts.success),
            now=self._now,
            maximum_result_bytes=self._options.replay.maximum_barrier_result_bytes,
        )

    def _draft(self, *, completions: tuple[Completion, ...] = (), starts: tuple[Start, ...] = ()) -> SuperstepDraft:
        return SuperstepDraft(
            state=self.state, graph=self.graph, epoch=self._epoch, completions=completions, starts=starts
        )

    # --- committing --------------------------------------------------------------------------------------------------

    async def _commit(self, draft: SuperstepDraft) -> tuple[NodeId, ...]:
        """Commit, and name the nodes whose code may now be called: those whose starts were answered *committed*."""
        plan = CommitPlan(fence=self._keeper.fence, head=self._head, build=draft.build, size=draft.size)
        try:
            result = await commit_superstep(self._parts.committer, plan, self._keeper, may_end=draft.ending is not None)
        except StaleHeadError:
            return await self._overtaken(draft)
        if result.outcome is None:
            return await self._replan(draft, result)
        if has_ended(result):
            self._ended = handoff_of(draft, result)
        elif result.outcome is MutationOutcome.IDEMPOTENT:
            # The starts among these facts are in flight: nobody knows whether their code runs.
            await self._catch_up()
            return ()
        self._take_over(draft, result)
        return tuple(start.node_id for start in draft.starts)

    def _take_over(self, draft: SuperstepDraft, result: CommitResult) -> None:
        self.state = result.draft.state
        if result.held is not None:
            self._keeper.extended(result.held)
        self._report.count(result.draft)
        superstep_committed(draft, has_barrier=result.draft.checkpoint is not None)

    async def _overtaken(self, draft: SuperstepDraft) -> tuple[NodeId, ...]:
        """Fold what the control plane wrote. After a request to cancel, what is not committed is dropped."""
        await self._catch_up()
        self._report.mutation_retries += 1
        if (
            self.state.status is not RunStatus.ACTIVE
            or not draft.completions
            or self._report.mutation_retries > self._options.mutation_attempts
        ):
            return ()
        return await self._commit(self._draft(completions=draft.completions))

    async def _replan(self, draft: SuperstepDraft, result: CommitResult) -> tuple[NodeId, ...]:
        """Plan anew what the statement would not commit for the clock, or for a wait id that the run has used."""
        if result.word == "wait_id":
            draft = await self._parts.without_reused_waits(draft)
        if not draft.completions:
            return ()
        return await self._commit(self._draft(completions=draft.completions))

    async def _give_back(self, outcome: Cancelled | Yielded) -> GraphDriveOutcome:
        self._keeper.let_go()
        await self._parts.store.release(self._keeper.fence)
        return outcome

    async def _catch_up(self) -> None:
        """Fold what was written after the state in hand."""
        self._parts.reader.keep(self.state, self.graph, self.intent)
        await self._read()

    async def _read(self, history: RunHistory | None = None) -> ReplayedRun:
        replayed = await self._parts.read(self._keeper.fence, history=history)
        self._report.replay = replayed.report
        self.state, self.graph, self.intent = replayed.state, replayed.graph, replayed.intent
        return replayed

    @property
    def _epoch(self) -> FencingEpoch:
        return self._keeper.fence.epoch

    @property
    def _head(self) -> JournalHead:
        if self.state.head is None:
            raise InvariantError(reason="seed")
        return self.state.head

    @property
    def _events_left(self) -> int:
        return self._options.maximum_durable_events - self._report.durable_events

    def _now(self) -> Timestamp:
        """Give an instant that the database's clock has passed, not before the head's."""
        return max(self._parts.store.clock.stamp(), self._head.recorded_at)
