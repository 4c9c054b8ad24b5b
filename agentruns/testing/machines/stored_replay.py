"""Random graphs on a real database, driven by workers that die or lose answers at any commit."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from typing import Final, cast

from attrs import define, evolve, field
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from agentruns.domain.authority import AgentAdmissionBudgetLayer
from agentruns.domain.ids import AttemptId, EventId
from agentruns.domain.ledger.records import OutstandingWait
from agentruns.domain.ledger.state import RunState
from agentruns.domain.schema import JsonSchemaRegistryBuilder
from agentruns.domain.submission import AgentRunIds, DurableAgentAdmissionRequest
from agentruns.domain.waits import WaitClass, WaitResolver
from agentruns.errors import NotYetAvailableError
from agentruns.runtime.agent_loop import DurableAgentLoop
from agentruns.runtime.committer import CommitPlan, CommitResult, RunCommitter
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.registry import ExecutableGraphRegistry, ExecutableGraphRegistryBuilder
from agentruns.runtime.replay import RunReader
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.standard_schemas import register_standard_schemas
from agentruns.runtime.supervisor import DurableRunSupervisor
from agentruns.runtime.waits import DurableRunWaits
from agentruns.testing import samples
from agentruns.testing.graphs import add_schemas
from agentruns.testing.history_waits import payload
from agentruns.testing.machines.stored import StoredWorld, check_stored
from agentruns.testing.simulation.ending import RunEnd
from agentruns.testing.simulation.run import SimulatedRun
from agentruns.testing.simulation.schedule import Undisturbed, WorkerDiedError
from agentruns.testing.strategies.behaviours import BehavingGraph, behaving_graphs

#: How a node may fail for good here; one that hangs would need its time in earnest.
_PERMANENT: Final = ("fail", "reconcile", "raise", "refuse")
_FAULTS: Final = ("none", "lost_answer", "before", "after", "lost_answer")
_ROUNDS: Final = 500
_PAUSE: Final = 0.02


@define
class FaultyCommitter:
    """Commit for a drive, and let one commit that is still to come fail.

    Attributes:
        committer: the real one.
        armed: ``before`` and ``after``: the worker dies there. ``lost_answer``: it asks again, and is told that what
            it asks for is there.
        at: how many commits succeed before it.
        lost: the attempt ids of starts of which the worker never knew that they were its own.
    """

    committer: RunCommitter
    armed: str = "none"
    at: int = 0
    lost: set[str] = field(factory=set)

    async def commit(self, plan: CommitPlan) -> CommitResult:
        """Commit a plan, or do not."""
        self.at -= 1
        if self.at >= 0 or self.armed == "none":
            return await self.committer.commit(plan)
        fault, self.armed = self.armed, "none"
        if fault == "before":
            raise WorkerDiedError
        result = await self.committer.commit(plan)
        self.lost |= {start.attempt_id.text for start in result.draft.starts}
        if fault == "after":
            raise WorkerDiedError
        return await self.committer.commit(plan)


class StoredReplayMachine(RuleBasedStateMachine):
    """Drive a random graph with the real driver; its end is the one that the simulation has without any fault."""

    def __init__(self, world: StoredWorld) -> None:
        super().__init__()
        self.world, self.tenant = world, world.tenant()

    @initialize(graph=behaving_graphs(permanent=_PERMANENT))
    def admit(self, graph: BehavingGraph) -> None:
        """Find out what the graph comes to, and begin a run of it."""
        self.graph = graph
        self.executables = _registry(graph)
        self.request = self._request()
        self.undisturbed = self.world.run(_simulated(graph, self.request))
        self.before = Counter(graph.calls)
        self.state = self.world.run(self._begin())

    async def _begin(self) -> RunState:
        store = self.world.store
        self.committer = FaultyCommitter(RunCommitter(store))
        self.loop = DurableAgentLoop(store, self.executables, error_release_delay=timedelta(0))
        # What the loop commits through is the only thing that is put in another's place.
        committer, driver = cast("RunCommitter", self.committer), self.loop._driver  # noqa: SLF001
        driver._parts = evolve(driver._parts, committer=committer)  # noqa: SLF001
        self.loop._lifecycle._committer = committer  # noqa: SLF001
        self.reader = RunReader(store, self.executables)
        self.waits = DurableRunWaits(store, self.executables)
        self.supervisor = DurableRunSupervisor(store, self.executables)
        runs = DurableAgentRuns(store, self.executables)
        await runs.publish(self.tenant, self.graph.executable.definition)
        await runs.admit(self.request)
        return await self._read()

    def _request(self) -> DurableAgentAdmissionRequest:
        definition = self.graph.executable.definition
        return samples.admission_request(
            tenant_id=self.tenant,
            ids=AgentRunIds.generate(),
            descriptor=samples.agent(input_schema=definition.input_schema, output_schema=definition.output_schema),
            request=samples.agent_request(input_schema=definition.input_schema),
            budget_layers=(AgentAdmissionBudgetLayer.system_default(),),
            graph=definition.reference,
            initial_state=samples.graph_state({}, schema=definition.state_schema),
        )

    @rule(fault=st.sampled_from(_FAULTS), at=st.integers(0, 3))
    def drive(self, fault: str, at: int) -> None:
        """Let a worker take the run from whoever had it, and drive it until it dies, ends or is given back.

        A run that is over is read as somebody does that has never seen it.
        """
        if self.state.status.is_terminal:
            assert self.world.run(self._read()) == self.state
            return
        self.committer.armed, self.committer.at = fault, at
        self.world.run(self._round())

    def teardown(self) -> None:
        """Let the run come to its end, and compare it."""
        if not hasattr(self, "state"):
            return
        self.committer.armed = "none"
        for _ in range(_ROUNDS):
            if self.state.status.is_terminal:
                break
            self.world.run(self._round())
        end = RunEnd.of(self.state)
        assert end == self.undisturbed, f"{end}, and undisturbed {self.undisturbed}"
        self.world.run(check_stored(self.world, self.tenant, self.request.run_id))
        calls = Counter(self.graph.calls) - self.before
        assert set(calls.values()) <= {1}
        assert self.committer.lost.isdisjoint(calls)

    # -----------------------------------------------------------------------------------------------------------------

    async def _round(self) -> None:
        """Claim and drive, or settle what the run waits for; where only time helps, wait for it."""
        if self.state.waits:
            await self._settle(self.state.waits)
        else:
            held = await self._claimed()
            with suppress(WorkerDiedError):
                await self.loop.run(held, ShutdownSignal())
        self.state = await self._read()

    async def _claimed(self) -> HeldLease:
        while True:
            try:
                return await self.world.store.supersede(self.tenant, self.request.run_id, AttemptId.generate())
            except NotYetAvailableError:
                await asyncio.sleep(_PAUSE)

    async def _settle(self, waits: tuple[OutstandingWait, ...]) -> None:
        for wait in waits:
            if wait.wait_class is WaitClass.INTERRUPT:
                await self._resolve(wait)
                return
        while True:
            tick = await self.supervisor.tick(self.tenant)
            assert tick.errors == ()
            if tick.timers_fired:
                return
            await asyncio.sleep(_PAUSE)

    async def _resolve(self, wait: OutstandingWait) -> None:
        await self.waits.resolve_interrupt(
            self.tenant,
            self.request.run_id,
            wait.wait_id,
            event_id=EventId.generate(),
            resolution=payload(1),
            resolver=WaitResolver.of(samples.principal()),
        )

    async def _read(self) -> RunState:
        return (await self.reader.read(self.tenant, self.request.run_id)).state


async def _simulated(graph: BehavingGraph, request: DurableAgentAdmissionRequest) -> RunEnd:
    run = SimulatedRun(
        graph=graph.executable, request=request, schedule=Undisturbed(), answer=lambda _asked: payload(1)
    )
    while await run.turn():
        pass
    return RunEnd.of(run.state)


def _registry(graph: BehavingGraph) -> ExecutableGraphRegistry:
    documents = JsonSchemaRegistryBuilder()
    register_standard_schemas(documents)
    add_schemas(documents)
    for name in ("evidence", "payload"):
        documents.add(samples.schema_document(name), "1.0.0")
    registry = ExecutableGraphRegistryBuilder(documents.build())
    registry.register_graph(graph.executable.definition)
    registry.register_reducer(graph.executable.reducer)
    for node in graph.executable.executors.values():
        registry.register_node(node)
    return registry.build()
