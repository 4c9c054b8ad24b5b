"""The cases in their order: each round measures the library, its peer and the floor by turns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Final, TypeVar

from attrs import define, field, frozen

from agentruns.domain.canonical import JsonTree
from benchmarks import names
from benchmarks.floor import Floor, read_admissions
from benchmarks.measure import Figure, measured, measured_in_threads, middle
from benchmarks.ours import ADMITTED, DRIVEN, Ours, Submission, Uncoalesced
from benchmarks.peers.dbos_client import Dbos, Enqueued
from benchmarks.peers.procrastinate_tasks import Procrastinate
from benchmarks.place import Place
from benchmarks.workload import order

Item = TypeVar("Item")

#: Statements of one kind that the library has under way at once: its lanes' default.
LANES: Final = 2
#: Submissions in one call.
_MANY: Final = 64


@frozen(kw_only=True)
class Sizes:
    """How much is measured.

    Attributes:
        rounds: how often each case is measured; the round of the middle rate is reported.
        submits: submissions in a round, and as many retries and loads.
        runs: runs of three nodes in a round.
        alone: calls of a case with a single caller.
        callers: concurrent callers of the other cases.
    """

    rounds: int = 3
    submits: int = 2_000
    runs: int = 500
    alone: int = 100
    callers: int = 16

    @property
    def warm_up(self) -> int:
        """Calls before the clock starts, for prepared statements and caches."""
        return 4 * self.callers

    @property
    def set_size(self) -> int:
        """Admissions in one statement of the floor's sets."""
        return max(1, self.callers // LANES)


@frozen(kw_only=True)
class Peers:
    """Who is measured beside us."""

    dbos: Dbos
    procrastinate: Procrastinate


@define(kw_only=True)
class Cases:
    """Measure the library, its peers and the floor in turn; without peers their cases are left out."""

    place: Place
    library: Ours
    uncoalesced: Uncoalesced
    floor: Floor
    peers: Peers | None
    sizes: Sizes
    _numbers: count[int] = field(factory=count)
    _figures: dict[str, list[Figure]] = field(factory=dict)

    @property
    def figures(self) -> dict[str, Figure]:
        """Give the middle round of each case."""
        return {name: middle(found) for name, found in self._figures.items()}

    @property
    def rates(self) -> dict[str, list[float]]:
        """Give the rate of each case in each round."""
        return {name: [each.rate for each in found] for name, found in self._figures.items()}

    async def submissions(self) -> None:
        """Measure submissions, loads and retries."""
        library, new = self.library, self._admissions(self.sizes.submits)
        asynchronous, threaded = self._enqueued(), self._enqueued()
        await self._measure(names.SUBMIT, new, library.submit)
        if self.peers is not None:
            await self._measure(names.ENQUEUE_ASYNC, asynchronous, self.peers.dbos.enqueue_async)
            await self._measure_threads(names.ENQUEUE_THREADS, threaded, self.peers.dbos.enqueue)
            await self._measure(names.DEFER, self._deferred(), self.peers.procrastinate.defer)
        await self._measure(names.LOAD, new, library.load)
        if self.peers is not None:
            await self._measure(names.STATUS_ASYNC, asynchronous, self.peers.dbos.status_async)
            await self._measure_threads(names.STATUS_THREADS, threaded, self.peers.dbos.status)
        await self._measure(names.LOAD_ELSEWHERE, new, library.elsewhere().load)
        await self._measure(names.RETRY, library.again(new), library.retry)
        if self.peers is not None:
            await self._again(self.peers.dbos, asynchronous, threaded)
        await self._sets()
        await self._floors(new)

    async def alone(self) -> None:
        """Measure submissions of a single caller."""
        new = self._admissions(self.sizes.alone)
        await self._measure(names.SUBMIT_ALONE, new, self.library.submit, callers=1)
        if self.peers is not None:
            enqueued = self.peers.dbos.orders(self._take(self.sizes.alone + self.sizes.warm_up))
            await self._measure_threads(names.ENQUEUE_ALONE, enqueued, self.peers.dbos.enqueue, callers=1)

    async def _again(self, dbos: Dbos, asynchronous: Sequence[Enqueued], threaded: Sequence[Enqueued]) -> None:
        await self._measure(names.AGAIN_ASYNC, asynchronous, dbos.enqueue_async)
        await self._measure_threads(names.AGAIN_THREADS, threaded, dbos.enqueue)
        await self._measure(names.AGAIN_READ_ASYNC, asynchronous, dbos.enqueue_and_read_async)
        await self._measure_threads(names.AGAIN_READ_THREADS, threaded, dbos.enqueue_and_read)

    async def _sets(self) -> None:
        await self._measure(names.SUBMIT_SINGLE, self._admissions(self.sizes.submits), self.uncoalesced.submit)
        many = [
            self.library.submissions(ADMITTED, self._take(_MANY))
            for _ in range(1 + max(LANES, self.sizes.submits // _MANY))
        ]
        await self._measure(names.SUBMIT_MANY, many, self.library.submit_set, callers=LANES, each=_MANY)

    async def _floors(self, new: Sequence[Submission]) -> None:
        floor, size = self.floor, self.sizes.set_size
        rows = await read_admissions(self.place, [_run(each) for each in new])
        half = len(rows) // 2
        sets = [rows[first : first + size] for first in range(half, len(rows), size)]
        await self._measure(names.SUBMIT_FLOOR, rows[:half], floor.write)
        await self._measure(names.SUBMIT_SETS_FLOOR, sets, floor.write_set, callers=LANES, each=size)
        await self._measure(names.LOAD_FLOOR, rows, floor.read)

    async def runs(self) -> None:
        """Measure runs from submission to result, of all callers and of a single one."""
        await self.place.settle()
        new = self.library.submissions(DRIVEN, self._take(self.sizes.runs))
        self._keep(names.RUN, await self.library.run_all(new, callers=self.sizes.callers))
        new = self.library.submissions(DRIVEN, self._take(self.sizes.alone + self.sizes.warm_up))
        await self._measure(names.RUN_ALONE, new, self.library.run_alone, callers=1)

    async def _measure(
        self,
        name: str,
        items: Sequence[Item],
        call: Callable[[Item], Awaitable[object]],
        *,
        callers: int | None = None,
        each: int = 1,
    ) -> None:
        await self.place.settle()
        warm_up = self.sizes.warm_up // each
        found = await measured(items, call, callers=callers or self.sizes.callers, warm_up=warm_up)
        self._keep(name, found.of_sets(each))

    async def _measure_threads(
        self, name: str, items: Sequence[Item], call: Callable[[Item], object], *, callers: int | None = None
    ) -> None:
        await self.place.settle()
        sizes = self.sizes
        self._keep(name, measured_in_threads(items, call, callers=callers or sizes.callers, warm_up=sizes.warm_up))

    def _admissions(self, how_many: int) -> list[Submission]:
        return self.library.submissions(ADMITTED, self._take(how_many + self.sizes.warm_up))

    def _enqueued(self) -> list[Enqueued]:
        return [] if self.peers is None else self.peers.dbos.orders(self._take(self.sizes.submits + self.sizes.warm_up))

    def _deferred(self) -> list[dict[str, JsonTree]]:
        return [order(number) for number in self._take(self.sizes.submits + self.sizes.warm_up)]

    def _keep(self, name: str, found: Figure) -> None:
        self._figures.setdefault(name, []).append(found)

    def _take(self, how_many: int) -> list[int]:
        return [next(self._numbers) for _ in range(how_many)]


def _run(submission: Submission) -> tuple[str, str]:
    return submission.request.tenant_id.text, submission.request.run_id.text
