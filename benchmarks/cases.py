"""The cases in their order: each round measures the library, its peer and the floor by turns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Final, TypeVar

from attrs import define, field, frozen

from benchmarks.floor import Floor, read_admissions
from benchmarks.measure import Figure, measured, measured_in_threads, middle
from benchmarks.ours import ADMITTED, DRIVEN, Ours, Submission, Uncoalesced
from benchmarks.peers.dbos_client import Dbos, Enqueued
from benchmarks.place import Place

Item = TypeVar("Item")

SUBMIT: Final = "submit"
SUBMIT_FLOOR: Final = "floor: submit"
SUBMIT_SETS_FLOOR: Final = "floor: submit, in sets"
SUBMIT_SINGLE: Final = "submit, a statement each"
SUBMIT_MANY: Final = "submit_many of 64"
RETRY: Final = "retry of a known key"
LOAD: Final = "load"
LOAD_ELSEWHERE: Final = "load, first in a process"
LOAD_FLOOR: Final = "floor: load"
RUN: Final = "run of 3 nodes"
SUBMIT_ALONE: Final = "submit, alone"
RUN_ALONE: Final = "run of 3 nodes, alone"
ENQUEUE_THREADS: Final = "dbos: enqueue, threads"
ENQUEUE_ASYNC: Final = "dbos: enqueue, async"
STATUS_THREADS: Final = "dbos: status, threads"
STATUS_ASYNC: Final = "dbos: status, async"
COMPLETE: Final = "run of 3 nodes, until durable"
DRIVE: Final = "drive of 3 nodes"
DRIVE_ALONE: Final = "drive of 3 nodes, alone"
DBOS_RUN_THREADS: Final = "dbos: workflow of 3 steps, threads"
DBOS_RUN_ASYNC: Final = "dbos: workflow of 3 steps, async"
LANGGRAPH_SYNC: Final = "langgraph: 3 nodes, durability sync"
LANGGRAPH_ASYNC: Final = "langgraph: 3 nodes, durability async"
SUPERSTEP_EARLY: Final = "superstep, short history"
SUPERSTEP_LATE: Final = "superstep, long history"
PROCESSES: Final = {number: f"queue of runs, {number} worker processes" for number in (1, 2, 4)}
CLAIMS_TOGETHER: Final = "claims, sixteen in a statement"
CLAIMS_ALONE: Final = "claims, a statement each"
ROTATION: Final = "runs of four tenants, in turn"
FAIR: Final = "runs of four tenants, by weights"


def of_work(case: str) -> str:
    """Name a case's calls for each second that this process and the server computed together."""
    return f"{case}, of work"


#: Statements of one kind that the library has under way at once: its lanes' default.
_LANES: Final = 2
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
        return max(1, self.callers // _LANES)


@define(kw_only=True)
class Cases:
    """Measure the library, its peer and the floor in turn; without a peer its cases are left out."""

    place: Place
    library: Ours
    uncoalesced: Uncoalesced
    floor: Floor
    peer: Dbos | None
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

    async def round(self) -> None:
        """Measure each case once."""
        await self._submissions()
        await self._runs()
        await self._alone()

    async def _submissions(self) -> None:
        library, new = self.library, self._admissions(self.sizes.submits)
        asynchronous, threaded = self._enqueued(), self._enqueued()
        await self._measure(SUBMIT, new, library.submit)
        if self.peer is not None:
            await self._measure(ENQUEUE_ASYNC, asynchronous, self.peer.enqueue_async)
            await self._measure_threads(ENQUEUE_THREADS, threaded, self.peer.enqueue)
        await self._measure(LOAD, new, library.load)
        if self.peer is not None:
            await self._measure(STATUS_ASYNC, asynchronous, self.peer.status_async)
            await self._measure_threads(STATUS_THREADS, threaded, self.peer.status)
        await self._measure(LOAD_ELSEWHERE, new, library.elsewhere().load)
        await self._measure(RETRY, library.again(new), library.retry)
        await self._sets()
        await self._floors(new)

    async def _sets(self) -> None:
        await self._measure(SUBMIT_SINGLE, self._admissions(self.sizes.submits), self.uncoalesced.submit)
        many = [
            self.library.submissions(ADMITTED, self._take(_MANY))
            for _ in range(1 + max(_LANES, self.sizes.submits // _MANY))
        ]
        await self._measure(SUBMIT_MANY, many, self.library.submit_set, callers=_LANES, each=_MANY)

    async def _floors(self, new: Sequence[Submission]) -> None:
        floor, size = self.floor, self.sizes.set_size
        rows = await read_admissions(self.place, [_run(each) for each in new])
        half = len(rows) // 2
        sets = [rows[first : first + size] for first in range(half, len(rows), size)]
        await self._measure(SUBMIT_FLOOR, rows[:half], floor.write)
        await self._measure(SUBMIT_SETS_FLOOR, sets, floor.write_set, callers=_LANES, each=size)
        await self._measure(LOAD_FLOOR, rows, floor.read)

    async def _runs(self) -> None:
        await self.place.settle()
        new = self.library.submissions(DRIVEN, self._take(self.sizes.runs))
        self._keep(RUN, await self.library.run_all(new, callers=self.sizes.callers))

    async def _alone(self) -> None:
        new = self._admissions(self.sizes.alone)
        await self._measure(SUBMIT_ALONE, new, self.library.submit, callers=1)
        new = self.library.submissions(DRIVEN, self._take(self.sizes.alone + self.sizes.warm_up))
        await self._measure(RUN_ALONE, new, self.library.run_alone, callers=1)

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

    async def _measure_threads(self, name: str, items: Sequence[Item], call: Callable[[Item], object]) -> None:
        await self.place.settle()
        sizes = self.sizes
        self._keep(name, measured_in_threads(items, call, callers=sizes.callers, warm_up=sizes.warm_up))

    def _admissions(self, how_many: int) -> list[Submission]:
        return self.library.submissions(ADMITTED, self._take(how_many + self.sizes.warm_up))

    def _enqueued(self) -> list[Enqueued]:
        return [] if self.peer is None else self.peer.orders(self._take(self.sizes.submits + self.sizes.warm_up))

    def _keep(self, name: str, found: Figure) -> None:
        self._figures.setdefault(name, []).append(found)

    def _take(self, how_many: int) -> list[int]:
        return [next(self._numbers) for _ in range(how_many)]


def _run(submission: Submission) -> tuple[str, str]:
    return submission.request.tenant_id.text, submission.request.run_id.text
