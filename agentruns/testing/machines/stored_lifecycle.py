"""A run on a real database waits, is answered, expires, is cancelled and ends, at every instant."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import cache
from typing import Any, ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agentruns.domain.authority import AgentAdmissionBudgetLayer
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import AttemptId, EventId, RunId, WaitId
from agentruns.domain.schema import JsonSchemaRegistryBuilder
from agentruns.domain.submission import AgentRunIds
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.waits import WaitResolver
from agentruns.errors import AgentRunsError
from agentruns.runtime.agent_loop import DurableAgentLoop
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.registry import ExecutableGraphRegistry, ExecutableGraphRegistryBuilder
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.standard_schemas import register_standard_schemas
from agentruns.runtime.supervisor import DurableRunSupervisor
from agentruns.runtime.waits import DurableRunWaits
from agentruns.testing import samples
from agentruns.testing.drives import builder
from agentruns.testing.history_waits import payload
from agentruns.testing.machines.lifecycle import SCOPE, Shape, chances, model_wait, node_wait, wait_shapes
from agentruns.testing.machines.lifecycle_model import LifecycleModel
from agentruns.testing.machines.stored import StoredClock, StoredWorld, check_stored

#: How long the run of an example has, in microseconds of the database's clock.
_LIFETIME: Final = 2_500_000
#: The word of the model for each refusal.
_WORDS: Final = {
    "RunNotRunnableError": "status",
    "CancellationConflictError": "status",
    "NotFoundError": "unknown",
    "WaitAlreadySettledError": "settled",
    "ResolverNotPermittedError": "resolver",
}


class _Script:
    """Tell the node what it returns next."""

    returns: ClassVar[Any] = None


@cache
def bundle() -> GraphBundle:
    """Give a graph of one node, which does what the machine says."""
    graph = builder()

    async def act(_context: Any) -> Any:
        return _Script.returns

    graph.node(name="a", entry=True, then="a", wait_to="a", terminal=True)(act)
    return graph.build()


@cache
def executables() -> ExecutableGraphRegistry:
    """Give a registry of that graph."""
    documents = JsonSchemaRegistryBuilder()
    register_standard_schemas(documents)
    for name in ("evidence", "payload"):
        documents.add(samples.schema_document(name), "1.0.0")
    bundle().register_schemas(documents)
    registry = ExecutableGraphRegistryBuilder(documents.build())
    bundle().register(registry)
    return registry.build()


class StoredLifecycleMachine(RuleBasedStateMachine):
    """Drive, answer, cancel and supervise one run; the model says what it is after each call."""

    def __init__(self, world: StoredWorld) -> None:
        super().__init__()
        self.world, self.store, self.tenant = world, world.store, world.tenant()
        self.runs = DurableAgentRuns(world.store, executables())
        self.waits = DurableRunWaits(world.store, executables())
        self.supervisor = DurableRunSupervisor(world.store, executables())
        self.loop = DurableAgentLoop(world.store, executables())
        world.run(self.runs.publish(self.tenant, bundle().graph))
        self.clock = StoredClock(world, self.store.clock.stamp())
        self.clock.advance(1)
        self.model = LifecycleModel(deadline=self.clock.now.micros + _LIFETIME)
        self.run_id = world.run(self._admitted())
        self.known: list[str] = []
        self.interrupts: set[str] = set()

    async def _admitted(self) -> RunId:
        graph = bundle().graph
        layer = AgentAdmissionBudgetLayer.system_default(deadline=Timestamp(self.model.deadline))
        request = samples.admission_request(
            tenant_id=self.tenant,
            ids=AgentRunIds.generate(),
            descriptor=samples.agent(input_schema=graph.input_schema, output_schema=graph.output_schema),
            request=samples.agent_request(input={}, input_schema=graph.input_schema),
            budget_layers=(layer,),
            graph=graph.reference,
            initial_state=samples.graph_state({}, schema=graph.state_schema),
        )
        await self.runs.admit(request)
        return request.run_id

    # --- time --------------------------------------------------------------------------------------------------------

    @rule(micros=st.sampled_from([1, 1000, 400_000]))
    def pass_time(self, micros: int) -> None:
        """Let a little time pass."""
        self.clock.advance(micros)

    @rule(data=st.data(), beside=st.sampled_from([-1, 0, 1]))
    def go_to_an_instant(self, data: st.DataObject, beside: int) -> None:
        """Go to where something is due, expires or is over, or to the microsecond beside it."""
        instants = [wait.due or wait.expires for wait in self.model.waits.values()] + [self.model.deadline]
        instant = data.draw(st.sampled_from([each for each in instants if each is not None]))
        self.clock.advance(max(0, instant + beside - self.clock.now.micros))

    # --- the worker --------------------------------------------------------------------------------------------------

    @rule(shapes=wait_shapes)
    def suspend(self, shapes: list[Shape]) -> None:
        """Let the node wait. What is due already is settled with it."""
        ids = [WaitId.generate() for _ in shapes]
        _Script.returns = Suspend(*(node_wait(shape, wait_id) for shape, wait_id in zip(shapes, ids, strict=True)))
        now = self.clock.now.micros
        expected = self.model.wait({str(i): model_wait(shape, now) for shape, i in zip(shapes, ids, strict=True)})
        self._drive(expected)
        if expected == "done":
            self.known += map(str, ids)
            self.interrupts |= {wait for wait, each in self.model.waits.items() if each.due is None}
            self._settle_due(now)

    @rule(chance=chances)
    def succeed(self, chance: int) -> None:
        """Let the node end the run, now and then. One whose deadline has come cannot succeed any more, and fails."""
        if chance:
            return
        _Script.returns = Finish({})
        if self.model.status == "active" and self.clock.now.micros >= self.model.deadline:
            self.model.status, self.model.revision = "failed", self.model.revision + 1
            self._drive("done")
            return
        self._drive(self.model.succeed())

    # --- the control plane -------------------------------------------------------------------------------------------

    @rule(data=st.data(), has_scope=st.booleans())
    def resolve(self, data: st.DataObject, has_scope: bool) -> None:
        """Answer a wait, whatever it is."""
        wait = data.draw(st.sampled_from([*self.model.waits, *self.known[-4:], str(samples.sample_id(WaitId, 1))]))
        expected = self._resolved(wait, has_scope=has_scope)
        resolver = WaitResolver.of(samples.principal(), scopes=[SCOPE] if has_scope else [])
        call = self.waits.resolve_interrupt(
            self.tenant,
            self.run_id,
            WaitId(wait),
            event_id=EventId.generate(),
            resolution=payload(1),
            resolver=resolver,
        )
        assert self._answer(call) == expected

    @rule()
    def tick(self) -> None:
        """LIF-9, LIF-14, LIF-15: let supervision do what time has decided, each at its instant and once."""
        now = self.clock.now.micros
        tick = self.world.run(self.supervisor.tick(self.tenant))
        assert tick.errors == ()
        is_over_time = self.model.request(now, by_deadline=True) == "done"
        has_expired = self.model.expire(now) == "done"
        assert (tick.cancellations_requested, tick.runs_failed) == (is_over_time, has_expired)
        assert tick.timers_fired == self._fire_due(now)

    @rule(chance=chances)
    def request(self, chance: int) -> None:
        """LIF-6: ask for the end, now and then."""
        if chance:
            return
        call = self.runs.request_cancellation(
            self.tenant, self.run_id, event_id=EventId.generate(), failure=samples.cancellation()
        )
        assert self._answer(call) == self.model.request(self.clock.now.micros, by_deadline=False)

    @rule()
    def confirm(self) -> None:
        """Let a worker take a run whose end was asked for."""
        if self.model.status == "cancellation_requested":
            self._drive(self.model.confirm())

    # --- what always holds -------------------------------------------------------------------------------------------

    @invariant()
    def the_run_is_what_the_model_says(self) -> None:
        """LIF-2, LIF-7: status, revision and outstanding waits agree."""
        snapshot = self.world.run(self.runs.load(self.tenant, self.run_id))
        assert (snapshot.status.value, snapshot.revision.value) == (self.model.status, self.model.revision)
        outstanding = self.world.run(self.waits.outstanding(self.tenant, self.run_id))
        assert [str(wait.wait_id) for wait in outstanding] == list(self.model.waits)

    def teardown(self) -> None:
        """Read the record as a whole."""
        self.world.run(check_stored(self.world, self.tenant, self.run_id))

    def _drive(self, expected: str) -> None:
        """Let a worker take the run, if it may be taken."""
        if expected == "status" and self.model.status == "cancellation_requested":
            return
        assert self._answer(self._driven()) == expected

    async def _driven(self) -> None:
        held = await self.store.claim(self.tenant, self.run_id, AttemptId.generate())
        await self.loop.run(held, ShutdownSignal())

    def _answer(self, call: Coroutine[Any, Any, Any]) -> str:
        try:
            self.world.run(call)
        except AgentRunsError as error:
            return _WORDS[type(error).__name__]
        return "done"

    def _settle_due(self, now: int) -> None:
        """Follow the lifecycle, which settles at once what is due with the wait's own commit."""
        if self.model.expire(now) != "done":
            self._fire_due(now)

    def _fire_due(self, now: int) -> int:
        due = [wait for wait, each in self.model.waits.items() if each.due is not None and each.due <= now]
        return sum(self.model.fire(wait, now) == "done" for wait in due)

    def _resolved(self, wait: str, *, has_scope: bool) -> str:
        """Answer a wait in the model. Whatever the run does now, a settled interrupt says that it is settled."""
        if wait not in self.interrupts:
            return "unknown"
        if wait in self.model.settled:
            return "settled"
        return self.model.resolve(wait, has_scope=has_scope, now=self.clock.now.micros)
