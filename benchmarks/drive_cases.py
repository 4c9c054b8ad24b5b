"""The cases of driving in their order: each round measures runs of ours, of the peers, and supersteps by turns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import TypeVar

from attrs import define, evolve, field, frozen

from benchmarks.cases import (
    COMPLETE,
    DBOS_RUN_ASYNC,
    DBOS_RUN_THREADS,
    DRIVE,
    LANGGRAPH_ASYNC,
    LANGGRAPH_SYNC,
    RUN,
    RUN_ALONE,
    SUPERSTEP_EARLY,
    SUPERSTEP_LATE,
    of_work,
)
from benchmarks.histories import Histories
from benchmarks.measure import Clock, Figure, measured, measured_in_threads, middle
from benchmarks.ours import DRIVEN, Ours, Submission
from benchmarks.peers import dbos_steps, langgraph_nodes
from benchmarks.place import Place

Item = TypeVar("Item")


@frozen(kw_only=True)
class DriveSizes:
    """How much of driving is measured.

    Attributes:
        rounds: how often each case is measured; the round of the middle rate is reported.
        runs: runs of three nodes in a round.
        alone: calls of a case with a single caller, and drives of a short and of a long history each.
        callers: concurrent runs of the other cases.
        supersteps: of a long history.
    """

    rounds: int = 5
    runs: int = 300
    alone: int = 40
    callers: int = 16
    supersteps: int = 1_000

    @property
    def warm_up(self) -> int:
        """Runs before the clock starts, for prepared statements and caches."""
        return 2 * self.callers


@define(kw_only=True)
class DriveCases:
    """Measure runs of ours and of the peers in turn; without peers their cases are left out."""

    place: Place
    library: Ours
    histories: Histories
    with_peers: bool
    sizes: DriveSizes
    _numbers: count[int] = field(factory=count)
    _figures: dict[str, list[Figure]] = field(factory=dict)

    @property
    def figures(self) -> dict[str, Figure]:
        """Give the middle round of each case."""
        return {name: middle(found) for name, found in self._figures.items()}

    @property
    def rates(self) -> dict[str, list[float]]:
        """Give the rate of each case in each round: calls in a second, and where it is known in one of work."""
        rates = {name: [each.rate for each in found] for name, found in self._figures.items()}
        for name, found in self._figures.items():
            if work := [each.work for each in found if each.work is not None]:
                rates[of_work(name)] = [1 / each for each in work]
        return rates

    async def round(self) -> None:
        """Measure each case once."""
        await self._runs()
        if self.with_peers:
            await self._dbos()
            await self._langgraph()
        await self._drives()
        await self._supersteps()

    async def _runs(self) -> None:
        library, callers = self.library, self.sizes.callers
        await library.run_all(self._submissions(self.sizes.warm_up), callers=callers)
        completed = self._submissions(self.sizes.runs)
        await self._keep(COMPLETE, lambda: library.complete_all(completed, callers=callers))
        await measured(completed, library.check, callers=callers)
        new = self._submissions(self.sizes.runs)
        await self._keep(RUN, lambda: library.run_all(new, callers=callers))
        alone = self._submissions(self.sizes.alone + 2)
        await self._measure(RUN_ALONE, alone, library.run_alone, callers=1)

    async def _dbos(self) -> None:
        """Launch DBOS for its own cases alone: its threads disturb no other."""
        async with dbos_steps.opened(self.place, callers=self.sizes.callers) as peer:
            orders = [peer.orders(self._take(self.sizes.runs + self.sizes.warm_up)) for _ in range(2)]
            await self._measure(DBOS_RUN_ASYNC, orders[0], peer.run_async)
            await self._measure_threads(DBOS_RUN_THREADS, orders[1], peer.run)

    async def _langgraph(self) -> None:
        async with langgraph_nodes.opened(self.place, callers=self.sizes.callers) as peer:
            for name, run in ((LANGGRAPH_SYNC, peer.run_sync), (LANGGRAPH_ASYNC, peer.run_async)):
                await self._measure(name, peer.orders(self._take(self.sizes.runs + self.sizes.warm_up)), run)

    async def _drives(self) -> None:
        """Drive what lies ready: batches of as many runs as there are callers, one after the other."""
        for submission in self._submissions(self.sizes.runs):
            await self.library.submit(submission)
        await self._keep(DRIVE, self._drive_ready)

    async def _drive_ready(self) -> Figure:
        clock, times = Clock(), []
        while driven := await self.library.drive_ready(slots=self.sizes.callers):
            times += driven * [clock.seconds]
        assert len(times) == self.sizes.runs
        return clock.figure(times)

    async def _supersteps(self) -> None:
        await self.place.settle()
        early, late = await self.histories.measured(self.sizes.alone)
        self._figures.setdefault(SUPERSTEP_EARLY, []).append(early)
        self._figures.setdefault(SUPERSTEP_LATE, []).append(late)

    async def _measure(
        self, name: str, items: Sequence[Item], call: Callable[[Item], Awaitable[object]], *, callers: int | None = None
    ) -> None:
        callers = callers or self.sizes.callers
        warm_up = 2 * callers
        await measured(items[:warm_up], call, callers=callers)
        await self._keep(name, lambda: measured(items[warm_up:], call, callers=callers))

    async def _measure_threads(self, name: str, items: Sequence[Item], call: Callable[[Item], object]) -> None:
        callers, warm_up = self.sizes.callers, self.sizes.warm_up
        measured_in_threads(items[:warm_up], call, callers=callers)

        async def measure() -> Figure:
            return measured_in_threads(items[warm_up:], call, callers=callers)

        await self._keep(name, measure)

    def _submissions(self, how_many: int) -> list[Submission]:
        return self.library.submissions(DRIVEN, self._take(how_many))

    async def _keep(self, name: str, measure: Callable[[], Awaitable[Figure]]) -> None:
        """Measure a case, and what the server computes meanwhile."""
        await self.place.settle()
        before = await self.place.server_seconds()
        found = await measure()
        after = await self.place.server_seconds()
        self._figures.setdefault(name, []).append(evolve(found, server_seconds=after - before))

    def _take(self, how_many: int) -> list[int]:
        return [next(self._numbers) for _ in range(how_many)]
