"""One run in memory, from its admission to its end: the driver's decisions, the real rules, no database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, TypeAlias

from attrs import define, field

from agentruns.domain.graph.barrier import BarrierDisposition, BarrierPlan
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.ids import AttemptId, CheckpointId, EventId
from agentruns.domain.ledger.classify import classify
from agentruns.domain.ledger.drafts import (
    AdmissionDraft,
    BarrierIds,
    CancellationDraft,
    Completion,
    DraftedCommit,
    FailureDraft,
    Start,
    SuccessDraft,
    SuperstepDraft,
    WaitDraft,
)
from agentruns.domain.ledger.outcomes import StoredCancellation, StoredFailure, StoredSuccess
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import FencingEpoch
from agentruns.domain.scalars import NodeId
from agentruns.domain.status import RunStatus
from agentruns.domain.submission import DurableAgentAdmissionRequest
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import BarrierRejectedError, InvariantError
from agentruns.runtime.driver.batches import dispatchable, first_batch, width_of
from agentruns.runtime.driver.completions import completions_of
from agentruns.runtime.driver.node_task import NodeTask
from agentruns.runtime.driver.outcomes import Blocked, GraphBlockers
from agentruns.runtime.driver.threads import NodeThreads
from agentruns.runtime.evidence import LedgerEvidence
from agentruns.runtime.run_failures import failure_of, rejected_result, result_refusal
from agentruns.runtime.settled_waits import SettledRunWait
from agentruns.testing.histories import BEGIN
from agentruns.testing.samples import sample_id
from agentruns.testing.simulation.journal import MemoryJournal
from agentruns.testing.simulation.schedule import Fault, Schedule, WorkerDiedError
from agentruns.testing.simulation.settling import Answer, settle

Build: TypeAlias = Callable[[Timestamp], DraftedCommit]

_CHECKPOINTS: Final = 1_000_000
_EVENTS: Final = 65_536
_PARALLEL: Final = 64
_A_MOMENT: Final = timedelta(milliseconds=1)


@define(kw_only=True)
class SimulatedRun:
    """Drive one run with workers that die when a schedule says so; the next one reads the journal and goes on.

    Attributes:
        schedule: decides what is open.
        answer: what interrupts are answered; ``None`` where nobody answers.
        node_timeout: seconds of real time that a node has.
        now: the simulated database's clock.
        epoch: of the worker that drives.
        journal: what is durable.
        state: what the worker knows.
        steps: what has happened, in words.
    """

    graph: ExecutableGraph
    request: DurableAgentAdmissionRequest
    schedule: Schedule
    answer: Answer | None = None
    node_timeout: float = 10.0
    now: Timestamp = BEGIN
    epoch: FencingEpoch = FencingEpoch(1)  # noqa: RUF009  # immutable
    journal: MemoryJournal = field(init=False)
    state: RunState = field(init=False)
    steps: list[str] = field(factory=list)
    threads: NodeThreads = field(factory=lambda: NodeThreads(_PARALLEL))

    def __attrs_post_init__(self) -> None:
        self.journal = MemoryJournal(self.request.tenant_id, self.request.run_id)
        self._keep(AdmissionDraft.of(self.request, self.graph).build(self.now))

    async def turn(self) -> bool:
        """Take one decision of a worker, or settle what the run waits for; ``False`` when the run is over.

        A worker that dies meanwhile is replaced by one with the next epoch, which knows nothing but the journal.
        """
        try:
            await self._turn()
        except WorkerDiedError:
            self.replace_worker()
        return not self.state.status.is_terminal

    def replace_worker(self) -> None:
        """Let the next worker claim the run and read it."""
        self.epoch = self.epoch.next()
        self.state = self.journal.fold(self.graph)

    def keep(self, what: str, build: Build) -> DraftedCommit:
        """Commit, unless the schedule lets the worker die before.

        Raises:
            WorkerDiedError: it dies, before the commit or after it.
        """
        fault = self.schedule.fault(what)
        if fault is Fault.BEFORE:
            self.steps.append(f"worker {self.epoch} dies before it has committed {what}")
            raise WorkerDiedError
        commit = self._keep(build(self.now))
        if fault is Fault.AFTER:
            self.steps.append(f"worker {self.epoch} dies right after it has committed {what}")
            raise WorkerDiedError
        return commit

    def _keep(self, commit: DraftedCommit) -> DraftedCommit:
        self.journal.append(commit)
        self.state, self.now = commit.state, self.now.plus(_A_MOMENT)
        if commit.state.status.is_terminal:
            self.steps.append(f"the run has {commit.state.status.value}")
        return commit

    # --- decisions ---------------------------------------------------------------------------------------------------

    async def _turn(self) -> None:
        if self.state.status is RunStatus.WAITING:
            settle(self)
            return
        if self.state.status is RunStatus.CANCELLATION_REQUESTED:
            self._confirm()
            return
        plan = classify(self.state, epoch=self.epoch, now=self.now)
        is_last = self.state.superstep >= self.graph.definition.limits.maximum_supersteps
        blockers = GraphBlockers.among(plan, superstep_limit_reached=is_last)
        if blockers is not None:
            self._blocked(blockers)
        elif plan.is_barrier_ready:
            self._barrier()
        elif nodes := dispatchable(plan):
            await self._dispatch(nodes)
        elif plan.earliest_deferred_at is not None:
            self.now = max(self.now, plan.earliest_deferred_at)

    def _blocked(self, blockers: GraphBlockers) -> None:
        if blockers.in_flight:
            raise WorkerDiedError
        handoff = Blocked(state=self.state, blockers=blockers, event_id=EventId.generate(), observed_at=self.now)
        outcome = StoredFailure(failure=failure_of(handoff, epoch=self.epoch), usage=self.state.usage)
        draft = FailureDraft(
            state=self.state, graph=self.graph, epoch=self.epoch, event_id=handoff.event_id, outcome=outcome
        )
        self.keep("the run's failure", draft.build)

    def _barrier(self) -> None:
        try:
            plan = self.state.barrier(self.graph)
        except BarrierRejectedError as error:
            self._blocked(GraphBlockers(barrier_rejected=error.reason))
            return
        # A checkpoint is part of the effect keys of its nodes, which are to be the same in every simulation of a run.
        event_id, checkpoint_id = EventId.generate(), sample_id(CheckpointId, _CHECKPOINTS + int(self.state.superstep))
        if plan.disposition is BarrierDisposition.CONTINUE:
            ids = BarrierIds(event_id=event_id, checkpoint_id=checkpoint_id)
            self.keep("the end of the step", self._superstep(barrier=ids).build)
        elif plan.disposition is BarrierDisposition.WAIT:
            wait = WaitDraft(
                state=self.state, graph=self.graph, epoch=self.epoch, event_id=event_id, checkpoint_id=checkpoint_id
            )
            self.keep("the run's waits", wait.build)
        else:
            self.keep("the run's result", self._success(plan, event_id, checkpoint_id))

    def _success(self, plan: BarrierPlan, event_id: EventId, checkpoint_id: CheckpointId) -> Build:
        if plan.output is None:
            raise InvariantError(reason="terminal_without_output")
        artifacts, usage = LedgerEvidence().terminal(self.state, plan.output)
        outcome = StoredSuccess(output=plan.output, artifacts=artifacts, usage=usage)
        refusal = result_refusal(outcome, self.request.intent, self.graph.schemas, completed_at=self.now)
        if refusal is not None:
            failed = StoredFailure(failure=rejected_result()(refusal), usage=usage)
            return FailureDraft(
                state=self.state, graph=self.graph, epoch=self.epoch, event_id=event_id, outcome=failed
            ).build
        return SuccessDraft(
            state=self.state,
            graph=self.graph,
            epoch=self.epoch,
            event_id=event_id,
            checkpoint_id=checkpoint_id,
            outcome=outcome,
        ).build

    def _confirm(self) -> None:
        outcome = StoredCancellation(usage=self.state.usage)
        draft = CancellationDraft(state=self.state, epoch=self.epoch, event_id=EventId.generate(), outcome=outcome)
        self.keep("the run's cancellation", draft.build)

    def _superstep(
        self,
        *,
        completions: tuple[Completion, ...] = (),
        barrier: BarrierIds | None = None,
        starts: tuple[Start, ...] = (),
    ) -> SuperstepDraft:
        return SuperstepDraft(
            state=self.state,
            graph=self.graph,
            epoch=self.epoch,
            completions=completions,
            barrier=barrier,
            starts=starts,
        )

    # --- execution ---------------------------------------------------------------------------------------------------

    async def _dispatch(self, nodes: Sequence[NodeId]) -> None:
        """Start a batch, execute it, and commit what each node left, in the order of their ids."""
        most = width_of(self.graph, maximum_parallel_nodes=_PARALLEL, events_left=_EVENTS)
        batch = first_batch(self.graph, nodes, width=self.schedule.width(most))
        starts = tuple(
            Start(node_id=node_id, event_id=EventId.generate(), attempt_id=AttemptId.generate()) for node_id in batch
        )
        self.keep(f"the start of {_named(batch)}", self._superstep(starts=starts).build)
        tasks = await self._executed(batch)
        for completion in completions_of(self.state, self.graph, tasks):
            commit = self._superstep(completions=(completion,))
            self.keep(f"what {completion.node_id} has left", commit.build)

    async def _executed(self, batch: Sequence[NodeId]) -> list[NodeTask]:
        """Call the code of nodes whose starts are committed, in an order of the schedule's, one by one or together."""
        order, overlaps, state = self.schedule.order(batch), len(batch) > 1 and self.schedule.overlaps(), self.state
        tasks: dict[NodeId, NodeTask] = {}
        for node_id in order:
            attempt = state.nodes[node_id].attempt
            beside = " beside the one before" if overlaps and tasks else ""
            self.steps.append(f"worker {self.epoch} executes {node_id}, attempt {attempt}{beside}")
            tasks[node_id] = NodeTask(
                self.graph,
                state,
                node_id,
                seconds=self.node_timeout,
                read_waits=self._read_waits,
                threads=self.threads,
            )
            if not overlaps:
                await self._ended([tasks[node_id]])
        await self._ended(list(tasks.values()))
        for task in tasks.values():
            if _is_dead(task):
                self.steps.append(f"worker {self.epoch} dies while it executes {task.context.node_id}")
                raise WorkerDiedError
        return [tasks[node_id] for node_id in batch]

    async def _ended(self, tasks: Sequence[NodeTask]) -> None:
        _, pending = await asyncio.wait([each.task for each in tasks], timeout=self.node_timeout)
        for each in tasks:
            if each.task in pending:
                each.time_out()
                await each.abort(wait=0.1)

    async def _read_waits(self) -> tuple[SettledRunWait, ...]:
        return self.journal.settled(self.state)


def _is_dead(task: NodeTask) -> bool:
    try:
        task.check()
    except WorkerDiedError:
        return True
    return False


def _named(batch: Sequence[NodeId]) -> str:
    return " and ".join(map(str, batch))
