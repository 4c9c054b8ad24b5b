"""The cases in their order: each round measures the library first, and then the floor with the same bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Final, TypeVar

from attrs import define, field, frozen

from benchmarks.floor import Floor, read_admissions
from benchmarks.measure import Figure, measured, middle
from benchmarks.ours import ADMITTED, DRIVEN, Ours, Submission
from benchmarks.place import Place

Item = TypeVar("Item")

SUBMIT: Final = "submit"
SUBMIT_FLOOR: Final = "floor: submit"
SUBMIT_SETS_FLOOR: Final = "floor: submit, in sets"
RETRY: Final = "retry of a known key"
LOAD: Final = "load"
LOAD_FLOOR: Final = "floor: load"
RUN: Final = "run of 3 nodes"
SUBMIT_ALONE: Final = "submit, alone"
RUN_ALONE: Final = "run of 3 nodes, alone"

#: Statements of one kind that the library has under way at once: its lanes' default.
_LANES: Final = 2


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
    """Measure the library and the floor in turn."""

    place: Place
    library: Ours
    floor: Floor
    sizes: Sizes
    _numbers: count[int] = field(factory=count)
    _figures: dict[str, list[Figure]] = field(factory=dict)

    @property
    def figures(self) -> dict[str, Figure]:
        """Give the middle round of each case."""
        return {name: middle(found) for name, found in self._figures.items()}

    async def round(self) -> None:
        """Measure each case once."""
        await self._submissions()
        await self._runs()
        await self._alone()

    async def _submissions(self) -> None:
        library, floor, size = self.library, self.floor, self.sizes.set_size
        new = library.submissions(ADMITTED, self._take(self.sizes.submits + self.sizes.warm_up))
        again = library.again(new)
        await self._measure(SUBMIT, new, library.submit)
        await self._measure(RETRY, again, library.retry)
        await self._measure(LOAD, new, library.load)
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
        new = self.library.submissions(ADMITTED, self._take(self.sizes.alone + self.sizes.warm_up))
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

    def _keep(self, name: str, found: Figure) -> None:
        self._figures.setdefault(name, []).append(found)

    def _take(self, how_many: int) -> list[int]:
        return [next(self._numbers) for _ in range(how_many)]


def _run(submission: Submission) -> tuple[str, str]:
    return submission.request.tenant_id.text, submission.request.run_id.text
