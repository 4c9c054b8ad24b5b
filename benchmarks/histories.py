"""Runs that go round in a circle: drives of ten supersteps over a history of ten, and over a long one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import cycle
from typing import Final

from attrs import field, frozen

from agentruns.domain.ids import RunId
from agentruns.domain.numbers import Superstep
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.context import GraphNodeContext
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.testing.drives import DriveWorld, builder, open_world
from benchmarks.measure import Clock, Figure, summed
from benchmarks.place import OURS, Place

#: Supersteps of one drive; each is a start, a completion and a barrier.
SUPERSTEPS: Final = 10
_EVENTS: Final = 3 * SUPERSTEPS
#: Runs with a long history; they take turns.
_RUNS: Final = 4


@frozen(kw_only=True)
class Histories:
    """A worker with runs of many supersteps that it has driven itself, drive by drive."""

    world: DriveWorld
    long: tuple[RunId, ...]
    _turns: cycle[RunId] = field(init=False)

    @_turns.default
    def _cycle(self) -> cycle[RunId]:
        return cycle(self.long)

    async def measured(self, drives: int) -> tuple[Figure, Figure]:
        """Drive runs after ten supersteps and after many by turns; one superstep counts as one call."""
        short, long = [], []
        for run_id in [await self._begun() for _ in range(drives)]:
            short.append(await self._drive(run_id))
            long.append(await self._drive(next(self._turns)))
        return summed(short, each=SUPERSTEPS), summed(long, each=SUPERSTEPS)

    async def _begun(self) -> RunId:
        run_id = await self.world.submitted()
        await self._drive(run_id)
        return run_id

    async def _drive(self, run_id: RunId) -> Figure:
        clock = Clock()
        result = await self.world.driven(run_id)
        figure = clock.figure_of_one()
        assert result.outcome is AgentLoopOutcome.YIELDED
        assert result.report.durable_events == _EVENTS
        return figure


@asynccontextmanager
async def opened(place: Place, *, supersteps: int) -> AsyncIterator[Histories]:
    """Let a worker of its own drive some runs for at least so many supersteps."""
    url = place.url(OURS).render_as_string(hide_password=False)
    async with open_world(url, _circle(), lease=timedelta(minutes=1), maximum_durable_events=_EVENTS) as world:
        long = tuple([await world.submitted() for _ in range(_RUNS)])
        for run_id in -(-supersteps // SUPERSTEPS) * long:
            await world.driven(run_id)
        yield Histories(world=world, long=long)


def _circle() -> GraphBundle:
    graph = builder(maximum_supersteps=Superstep.highest)

    @graph.node(entry=True, then="turn", terminal=True)
    async def turn(context: GraphNodeContext) -> dict[str, int]:
        return {"turns": context.state.get("turns", 0) + 1}

    return graph.build()
