"""A request to end a run races whatever else may happen to it: one end stands, and its usage is what was committed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, NoReturn

import pytest
from attrs import define, frozen

from agentruns.domain.artifacts import AgentArtifacts
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.graph.results import ContinueControl, NodeResult, Unchanged
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import AttemptId, EventId, RunId
from agentruns.domain.lease import RunFence
from agentruns.domain.ledger.state import RunState
from agentruns.domain.ledger.superstep import Completion, SuperstepDraft
from agentruns.domain.outcome import CancelledOutcome, FailedOutcome
from agentruns.domain.scalars import NodeId
from agentruns.domain.status import RunStatus
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.usage import BudgetUsage
from agentruns.domain.waits import NodeWait
from agentruns.errors import (
    EvidenceUnavailableError,
    LeaseLostError,
    NodeFailedError,
    RunNotRunnableError,
    StaleHeadError,
)
from agentruns.runtime.agent_loop import AgentLoopOutcome, DurableAgentLoop
from agentruns.runtime.committer import CommitPlan
from agentruns.runtime.driver.driver import DurableGraphDriver
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.lease_keeper import LeaseKeeper
from agentruns.runtime.lifecycle import DurableGraphLifecycle
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import TENANT, DriveWorld, builder
from agentruns.testing.hand_driven import HandDriven
from agentruns.testing.samples import failure

pytestmark = pytest.mark.slow

InWorld = Callable[..., None]
Move = Callable[[], Awaitable[object]]

LONG: Final = timedelta(minutes=1)
OPTIONS: Final = DurableGraphDriverOptions(lease_renewal_interval=timedelta(seconds=20))
#: Of each of four moves, and a third of them in each order.
ROUNDS: Final = 126
ORDERS: Final = ("request first", "move first", "at once")
#: What the node says that it used; everything else in a run's usage is counted by the library.
USED: Final = BudgetUsage.of(model_attempts=2, input_tokens=700, output_tokens=30, known_costs={"EUR": 1_234})
TERMINAL: Final = ("graph-barrier-succeeded", "graph-run-failed", "agent-cancellation-confirmed")


def graph_of(*, fails: bool) -> GraphBundle:
    """Build a graph whose first node waits, or fails for good."""
    graph = builder()

    @graph.node(entry=True, then="b", wait_to="b")
    def a(_context: Any) -> Suspend:
        if fails:
            raise NodeFailedError(failure=failure(), usage=USED)
        return Suspend(NodeWait.timer(due_in=timedelta(hours=1)), usage=USED)

    graph.node(name="b", terminal=True)(lambda _context: Finish({}))
    return graph.build()


class Withheld:
    """Know nothing of what a run has used."""

    def terminal(self, state: RunState, output: BoundedJson) -> tuple[AgentArtifacts, BudgetUsage]:
        del output
        self.usage(state)

    def usage(self, state: RunState) -> NoReturn:
        raise EvidenceUnavailableError(tenant_id=state.tenant_id, run_id=state.run_id, reason="usage")


@define
class Race:
    """One run, and one way in which it goes on while somebody asks for its end.

    Attributes:
        fence: of the worker that moves.
        move: commits something under it, or takes the run from it.
    """

    world: DriveWorld
    fence: RunFence
    move: Move
    request_won: bool = False
    move_won: bool = False

    async def run(self, order: str) -> None:
        """Let both happen in the order, or leave the order to the server."""
        if order == "request first":
            await self._ask()
            await self._move()
        elif order == "move first":
            await self._move()
            await self._ask()
        else:
            await asyncio.gather(self._ask(), self._move())

    async def _ask(self) -> None:
        try:
            asked = await request_cancellation(self.world, self.fence.run_id)
        except RunNotRunnableError as refused:
            assert refused.status is RunStatus.FAILED  # noqa: PT017  # most requests are not refused
        else:
            self.request_won = asked.outcome is MutationOutcome.COMMITTED

    async def _move(self) -> None:
        with suppress(StaleHeadError):
            await self.move()
            self.move_won = True


# --- the moves -------------------------------------------------------------------------------------------------------


async def completing(world: DriveWorld) -> Race:
    hand = await started(world)
    result = NodeResult(state_change=Unchanged(), control=ContinueControl(), bindings=(), usage=USED)
    completion = Completion(node_id=NodeId("a"), event_id=EventId.generate(), body=result)
    draft = SuperstepDraft(state=hand.state, graph=hand.graph, epoch=hand.fence.epoch, completions=(completion,))
    assert hand.state.head is not None
    plan = CommitPlan(fence=hand.fence, head=hand.state.head, build=draft.build, size=0)
    return Race(world, hand.fence, lambda: hand.commit(plan))


async def waiting(world: DriveWorld) -> Race:
    held, driven = await handed_on(world)
    lifecycle = DurableGraphLifecycle(world.store, world.executables)
    return Race(world, held.fence, lambda: lifecycle.commit_barrier(held.fence, driven.outcome, driven.intent))


async def failing(world: DriveWorld) -> Race:
    held, driven = await handed_on(world)
    lifecycle = DurableGraphLifecycle(world.store, world.executables)
    return Race(world, held.fence, lambda: lifecycle.resolve_blocked(held.fence, driven.outcome))


async def taking_over(world: DriveWorld) -> Race:
    hand = await started(world)

    async def move() -> None:
        held = await world.store.supersede(TENANT, hand.fence.run_id, AttemptId.generate())
        with pytest.raises(LeaseLostError) as lost:
            await hand.commit(hand.complete())
        assert lost.value.reason == "stale_fence"
        race.fence = held.fence

    race = Race(world, hand.fence, move)
    return race


async def handed_on(world: DriveWorld) -> tuple[HeldLease, Any]:
    """Drive without what usually follows a drive."""
    held = await world.claimed(await world.submitted())
    driver = DurableGraphDriver(world.store, world.executables, OPTIONS)
    async with LeaseKeeper(world.store, held, interval=OPTIONS.lease_renewal_interval) as keeper:
        return held, await driver.drive(keeper, world.shutdown)


async def started(world: DriveWorld) -> HandDriven:
    held = await world.claimed(await world.submitted())
    hand = await HandDriven.of(world, held.fence)
    await hand.commit(hand.start())
    return hand


# --- the end ---------------------------------------------------------------------------------------------------------


async def end(world: DriveWorld, fence: RunFence) -> None:
    """Bring a run that was asked to end there; while its usage is not known, the request stays open."""
    run_id = fence.run_id
    await world.store.release(fence)
    withheld = DurableAgentLoop(world.store, world.executables, evidence=Withheld(), error_release_delay=timedelta(0))
    with pytest.raises(EvidenceUnavailableError):
        await withheld.run(await world.claimed(run_id), world.shutdown)
    snapshot = await world.loaded(run_id)
    assert (snapshot.status, snapshot.outcome) == (RunStatus.CANCELLATION_REQUESTED, None)
    assert (await world.driven(run_id)).outcome is AgentLoopOutcome.CANCELLATION_CONFIRMED


@frozen
class Written:
    """Rows of all runs, as they stand in the tables."""

    tables: dict[str, list[Any]]

    @classmethod
    async def read(cls, world: DriveWorld) -> Written:
        columns = {
            "run_events": "kind, octet_length(data) AS size, sequence",
            "run_checkpoints": "octet_length(state) AS size",
            "node_attempts": "superstep, node_id",
            "node_results": "node_id",
            "run_waits": "status",
        }
        queries = {table: f"SELECT run_id, {each} FROM agentruns.{table} ORDER BY 1" for table, each in columns.items()}  # noqa: S608  # our own names
        return cls({table: await world.rows(query) for table, query in queries.items()})

    def of(self, table: str, run_id: RunId) -> list[Any]:
        return [row for row in self.tables[table] if str(row.run_id) == run_id.text]

    def usage(self, run_id: RunId) -> BudgetUsage:
        """Add up what a run has used, without the fold: each completion brought what its node says that it used."""
        starts = [(row.superstep, row.node_id) for row in self.of("node_attempts", run_id)]
        usage = BudgetUsage.of(
            graph_depth=1,
            graph_steps=len({superstep for superstep, _ in starts}),
            retries=len(starts) - len(set(starts)),
            concurrent_branches=1,
            fan_out=1,
            input_bytes=len(b"{}"),
            event_bytes=sum(row.size for row in self.of("run_events", run_id) if row.kind not in TERMINAL),
            checkpoint_bytes=sum(row.size for row in self.of("run_checkpoints", run_id)),
        )
        for _ in self.of("node_results", run_id):
            usage = usage.accumulate(USED)
        return usage


async def check(written: Written, race: Race, *, outcome: type[object]) -> None:
    """One terminal event, the last one; the end that was promised; the usage that the rows add up to."""
    run_id = race.fence.run_id
    kinds = [row.kind for row in sorted(written.of("run_events", run_id), key=lambda row: row.sequence)]
    assert [kind for kind in kinds if kind in TERMINAL] == [kinds[-1]]
    found: Any = (await race.world.loaded(run_id)).outcome
    assert found.usage == written.usage(run_id)
    assert type(found) is outcome
    waits = ["abandoned"] * kinds.count("graph-barrier-waiting")
    assert [row.status for row in written.of("run_waits", run_id)] == waits


@pytest.mark.parametrize("prepare", [completing, waiting, failing, taking_over])
def test_LIF_05_a_request_and_a_move_leave_one_end_with_exact_usage(
    in_world: InWorld, prepare: Callable[[DriveWorld], Awaitable[Race]]
) -> None:
    async def work(world: DriveWorld) -> None:
        races = await asyncio.gather(*(prepare(world) for _ in range(ROUNDS)))
        orders = [ORDERS[number % len(ORDERS)] for number in range(ROUNDS)]
        await asyncio.gather(*(race.run(order) for race, order in zip(races, orders, strict=True)))
        # A loop gives its run back within five seconds, which is little if hundreds do it at once.
        few = asyncio.Semaphore(20)

        async def ended(race: Race) -> None:
            async with few:
                await end(world, race.fence)

        await asyncio.gather(*(ended(race) for race in races if race.request_won))
        written = await Written.read(world)
        for race in races:
            await check(written, race, outcome=CancelledOutcome if race.request_won else FailedOutcome)

        found = Counter((order, race.request_won, race.move_won) for race, order in zip(races, orders, strict=True))
        third = ROUNDS // len(ORDERS)
        # Whoever takes over only stands beside a request; a failure leaves nothing to ask for.
        assert found["request first", True, prepare is taking_over] == third
        assert found["move first", prepare is not failing, True] == third
        assert found.total() == ROUNDS
        assert not any((order, False, False) in found for order in ORDERS)

    in_world(work, graph_of(fails=prepare is failing), lease=LONG)
