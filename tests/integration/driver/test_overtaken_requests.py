"""A run that commits faster than anybody can read and write is asked to end all the same, and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Final

import pytest
from attrs import define, field
from sqlalchemy.util import await_only

from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.graph.returns import Route
from agentruns.domain.ids import RunId
from agentruns.domain.run_ends import RunEnds
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.timestamps import Timestamp
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.supervisor import DurableRunSupervisor
from agentruns.store.ends import Ends, RunLookup
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import TENANT, DriveWorld, builder
from agentruns.testing.listening import Ear

InWorld = Callable[..., None]

LONG: Final = timedelta(minutes=1)
ROUNDS: Final = 5
#: How long a run that does not commit is taken to be held; one that is not held commits many times meanwhile.
HELD: Final = timedelta(milliseconds=500)
SUPERSTEPS: Final = 100_000
REQUESTED, CONFIRMED = "agent-cancellation-requested", "agent-cancellation-confirmed"
OVERDUE = "agent-deadline-cancellation-requested"


@define
class Racer:
    """Make a graph that commits as fast as it can and never ends by itself.

    Attributes:
        steps: how often its node was called; each call proves one more commit.
    """

    steps: int = 0
    _stepped: asyncio.Event = field(factory=asyncio.Event)

    def graph(self) -> GraphBundle:
        graph = builder(maximum_supersteps=SUPERSTEPS)

        async def again(_context: Any) -> Route:
            self.steps += 1
            self._stepped.set()
            return Route("again")

        graph.node(name="a", entry=True, routes={"again": "a", "end": "z"})(again)
        graph.node(name="z", terminal=True)(lambda _context: Route("never"))
        return graph.build()

    async def commits(self) -> None:
        """Return once the run has committed after this call: of two calls the second one's start is certainly new."""
        target = self.steps + 2
        async with asyncio.timeout(30):
            while self.steps < target:
                self._stepped.clear()
                await self._stepped.wait()

    @contextmanager
    def overtakes(self) -> Iterator[list[RunLookup]]:
        """Let the run commit after each reading of its ends, so that what is planned on it is stale, if it can.

        Gives what was read.
        """
        read, readings = Ends.read, list[RunLookup]()

        async def commits_unless_held() -> None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.commits(), HELD.total_seconds())

        def overtaken(ends: Ends, lookups: Sequence[RunLookup]) -> tuple[RunEnds, ...]:
            # Nothing is held for the first reading, so it is overtaken however slow the machine is.
            is_first = not readings
            readings.extend(lookups)
            found = read(ends, lookups)
            await_only(self.commits() if is_first else commits_unless_held())
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Ends, "read", overtaken)
            yield readings


def test_a_request_is_committed_however_fast_the_run_is(in_world: InWorld) -> None:
    racer = Racer()

    async def work(world: DriveWorld) -> None:
        for _ in range(ROUNDS):
            run_id = await world.submitted()
            driving = asyncio.create_task(driven_to_its_end(world, run_id))
            await racer.commits()
            with racer.overtakes() as readings:
                asked = await request_cancellation(world, run_id)
            # Overtaken once, then the row is held before it is read again.
            assert len(readings) <= 2
            assert asked.outcome is MutationOutcome.COMMITTED
            assert await driving is AgentLoopOutcome.CANCELLATION_CONFIRMED
            assert await kinds_of(world, run_id, last=2) == [REQUESTED, CONFIRMED]

    in_world(work, racer.graph(), lease=LONG)


@pytest.mark.direct("nobody hears a notification through a pooler")
def test_SCH_13_a_request_that_was_overtaken_is_told_of_when_it_has_committed(in_world: InWorld) -> None:
    racer = Racer()

    async def work(world: DriveWorld) -> None:
        async with Ear.at(world.store_url) as ear:
            run_id = await world.submitted()
            await ear.hears(1)
            driving = asyncio.create_task(driven_to_its_end(world, run_id))
            await racer.commits()
            with racer.overtakes() as readings:
                await request_cancellation(world, run_id)
            assert await ear.hears(2) == [TENANT.text] * 2
            assert len(readings) == 2
        await driving

    in_world(work, racer.graph(), lease=LONG)


def test_LIF_15_a_deadline_is_committed_by_the_tick_that_finds_it_however_fast_the_run_is(in_world: InWorld) -> None:
    racer = Racer()

    async def work(world: DriveWorld) -> None:
        supervisor = DurableRunSupervisor(world.store, world.executables)
        for _ in range(3):
            deadline = await instant_of(world, after=timedelta(seconds=4))
            run_id = await world.submitted(limits=BudgetLimits(deadline=deadline))
            driving = asyncio.create_task(driven_to_its_end(world, run_id))
            while await instant_of(world) < deadline:
                await racer.commits()
            with racer.overtakes() as readings:
                tick = await supervisor.tick(TENANT)
            assert len(readings) <= 2
            assert (tick.cancellations_requested, tick.errors) == (1, ())
            assert await driving is AgentLoopOutcome.CANCELLATION_CONFIRMED
            assert await kinds_of(world, run_id, last=2) == [OVERDUE, CONFIRMED]

    in_world(work, racer.graph(), lease=LONG)


async def driven_to_its_end(world: DriveWorld, run_id: RunId) -> AgentLoopOutcome:
    """Drive again and again, since a drive yields after so many events."""
    while (driven := await world.driven(run_id)).outcome is AgentLoopOutcome.YIELDED:
        pass
    return driven.outcome


async def instant_of(world: DriveWorld, *, after: timedelta = timedelta(0)) -> Timestamp:
    """Read the database's clock."""
    (row,) = await world.rows("SELECT clock_timestamp() AS now")
    return Timestamp.from_datetime(row.now + after)


async def kinds_of(world: DriveWorld, run_id: RunId, *, last: int) -> list[str]:
    """List the kinds of the last events of a run, in the order of the journal."""
    newest = "SELECT kind FROM agentruns.run_events WHERE run_id = :run_id ORDER BY sequence DESC LIMIT :last"
    return [row.kind for row in reversed(await world.rows(newest, run_id=run_id.text, last=last))]
