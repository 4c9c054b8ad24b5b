"""The cases of driving in their order: each round measures runs of ours, of the peers, and supersteps by turns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import count
from typing import Final, TypeVar

from attrs import define, evolve, field, frozen

from benchmarks import floor_runs, names
from benchmarks.cases import LANES
from benchmarks.fans import SIBLINGS, Fans
from benchmarks.floor import Floor
from benchmarks.floor_runs import FloorRuns
from benchmarks.histories import Histories
from benchmarks.measure import Clock, Figure, measured, measured_in_threads, middle
from benchmarks.ours import DRIVEN, POLL, Ours, Submission
from benchmarks.peers import dbos_queue, dbos_steps, langgraph_nodes
from benchmarks.place import Place

Item = TypeVar("Item")

#: How many times as many runs are driven at once where that is held against the usual number.
_MANY: Final = 4


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
    fans: Fans
    floor: Floor
    floor_runs: FloorRuns
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
                rates[names.of_work(name)] = [1 / each for each in work]
        return rates

    async def round(self, number: int) -> None:
        """Measure each case once; every other round in the opposite order, since other work comes and goes."""
        cases = [self._runs, self._ready, self._floors, self._drives, self._fans, self._supersteps]
        if self.with_peers:
            cases[2:2] = [self._dbos, self._dbos_queue, self._langgraph]
        for case in reversed(cases) if number % 2 else cases:
            await case()

    async def _runs(self) -> None:
        library, callers = self.library, self.sizes.callers
        await library.run_all(self._submissions(self.sizes.warm_up), callers=callers)
        completed = self._submissions(self.sizes.runs)
        await self._keep(names.COMPLETE, lambda: library.complete_all(completed, callers=callers))
        await measured(completed, library.check, callers=callers)
        new = self._submissions(self.sizes.runs)
        await self._keep(names.RUN, lambda: library.run_all(new, callers=callers))
        alone = self._submissions(self.sizes.alone + 2)
        await self._measure(names.RUN_ALONE, alone, library.run_alone, callers=1)

    async def _ready(self) -> None:
        """Let few drive what lies ready, and many."""
        for name, callers in ((names.READY, self.sizes.callers), (names.READY_MANY, _MANY * self.sizes.callers)):
            new = await self._submitted()
            await self._keep(name, partial(self.library.end_all, new, callers=callers))

    async def _dbos(self) -> None:
        """Launch DBOS for its own cases alone: its threads disturb no other."""
        async with dbos_steps.opened(self.place, callers=self.sizes.callers) as peer:
            orders = [peer.orders(self._take(self.sizes.runs + self.sizes.warm_up)) for _ in range(2)]
            await self._measure(names.DBOS_RUN_ASYNC, orders[0], peer.run_async)
            await self._measure_threads(names.DBOS_RUN_THREADS, orders[1], peer.run)
            alone = peer.orders(self._take(self.sizes.alone + self.sizes.warm_up))
            await self._measure_threads(names.DBOS_RUN_ALONE, alone, peer.run, callers=1)

    async def _dbos_queue(self) -> None:
        """Let its queue look as often for work as our worker does."""
        callers = self.sizes.callers
        async with dbos_queue.opened(self.place, callers=callers, polling_interval=POLL.total_seconds()) as peer:
            for name, run_all in (
                (names.DBOS_QUEUE_ASYNC, peer.run_all),
                (names.DBOS_QUEUE_THREADS, peer.run_all_in_threads),
            ):
                await run_all(peer.steps.orders(self._take(self.sizes.warm_up)), callers=callers)
                orders = peer.steps.orders(self._take(self.sizes.runs))
                await self._keep(name, partial(run_all, orders, callers=callers))

    async def _langgraph(self) -> None:
        sizes = self.sizes
        async with langgraph_nodes.opened(self.place, callers=sizes.callers) as peer:
            for name, run in ((names.LANGGRAPH_SYNC, peer.run_sync), (names.LANGGRAPH_ASYNC, peer.run_async)):
                await self._measure(name, peer.orders(self._take(sizes.runs + sizes.warm_up)), run)
            alone = peer.orders(self._take(sizes.alone + 2))
            await self._measure(names.LANGGRAPH_ALONE, alone, peer.run_sync, callers=1)

    async def _floors(self) -> None:
        """Write what drives wrote that nobody measured."""
        new = await self._submitted()
        runs = [(each.request.tenant_id.text, each.request.run_id.text) for each in new]
        await floor_runs.copy_admissions(self.place, self.floor, runs)
        async with floor_runs.watching(self.place):
            await self.library.end_all(new, callers=self.sizes.callers)
            drives = await floor_runs.read_drives(self.place, runs)
        half, size = len(drives) // 2, max(1, self.sizes.callers // LANES)
        sets = [drives[first : first + size] for first in range(half, len(drives) - size + 1, size)]
        write, write_set = self.floor_runs.write, self.floor_runs.write_set
        await self._measure_floor(names.READY_FLOOR, drives[:half], write, callers=self.sizes.callers, each=1)
        await self._measure_floor(names.READY_SETS_FLOOR, sets, write_set, callers=LANES, each=size)
        await floor_runs.check_equal(self.place, runs[: half + size * len(sets)])

    async def _measure_floor(
        self,
        name: str,
        items: Sequence[Item],
        call: Callable[[Item], Awaitable[object]],
        *,
        callers: int,
        each: int,
    ) -> None:
        warm_up = min(2 * callers, len(items) // 2)
        await measured(items[:warm_up], call, callers=callers)
        await self._keep(name, lambda: measured(items[warm_up:], call, callers=callers))
        self._figures[name][-1] = self._figures[name][-1].of_sets(each)

    async def _fans(self) -> None:
        """Run parallel nodes, with all callers and with one."""
        sizes, ours = self.sizes, self.fans
        runs = max(2, sizes.runs // 4)
        count = runs + sizes.warm_up
        await self._measure(names.FAN, ours.requests(self._take(count)), ours.run)
        await self._measure(names.FAN_ALONE, ours.requests(self._take(sizes.alone + 2)), ours.run, callers=1)
        if self.with_peers:
            async with langgraph_nodes.opened(self.place, callers=sizes.callers, siblings=SIBLINGS) as peer:
                await self._measure(names.LANGGRAPH_FAN, peer.orders(self._take(count)), peer.run_sync)
                alone = peer.orders(self._take(sizes.alone + 2))
                await self._measure(names.LANGGRAPH_FAN_ALONE, alone, peer.run_sync, callers=1)

    async def _drives(self) -> None:
        """Drive what lies ready: batches of as many runs as there are callers, one after the other."""
        await self._submitted()
        await self._keep(names.DRIVE, self._drive_ready)

    async def _drive_ready(self) -> Figure:
        clock, times = Clock(), []
        while driven := await self.library.drive_ready(slots=self.sizes.callers):
            times += driven * [clock.seconds]
        assert len(times) == self.sizes.runs
        return clock.figure(times)

    async def _supersteps(self) -> None:
        await self.place.settle()
        early, late = await self.histories.measured(self.sizes.alone)
        self._figures.setdefault(names.SUPERSTEP_EARLY, []).append(early)
        self._figures.setdefault(names.SUPERSTEP_LATE, []).append(late)

    async def _measure(
        self, name: str, items: Sequence[Item], call: Callable[[Item], Awaitable[object]], *, callers: int | None = None
    ) -> None:
        callers = callers or self.sizes.callers
        warm_up = 2 * callers
        await measured(items[:warm_up], call, callers=callers)
        await self._keep(name, lambda: measured(items[warm_up:], call, callers=callers))

    async def _measure_threads(
        self, name: str, items: Sequence[Item], call: Callable[[Item], object], *, callers: int | None = None
    ) -> None:
        callers, warm_up = callers or self.sizes.callers, self.sizes.warm_up
        measured_in_threads(items[:warm_up], call, callers=callers)

        async def measure() -> Figure:
            return measured_in_threads(items[warm_up:], call, callers=callers)

        await self._keep(name, measure)

    def _submissions(self, how_many: int) -> list[Submission]:
        return self.library.submissions(DRIVEN, self._take(how_many))

    async def _submitted(self) -> list[Submission]:
        """Let as many runs as are measured lie ready."""
        new = self._submissions(self.sizes.runs)
        await measured(new, self.library.submit, callers=self.sizes.callers)
        return new

    async def _keep(self, name: str, measure: Callable[[], Awaitable[Figure]]) -> None:
        """Measure a case, and what the server computes meanwhile."""
        await self.place.settle()
        before = await self.place.server_seconds()
        found = await measure()
        after = await self.place.server_seconds()
        self._figures.setdefault(name, []).append(evolve(found, server_seconds=after - before))

    def _take(self, how_many: int) -> list[int]:
        return [next(self._numbers) for _ in range(how_many)]
