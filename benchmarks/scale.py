"""Claims and submissions beside many ended runs, and beside none."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import count
from typing import Final

import click
from attrs import define, field, frozen
from rich.console import Console
from rich.table import Table

from agentruns import StoreOptions
from agentruns.domain.ids import AttemptId
from benchmarks import clones, soak
from benchmarks.measure import measured
from benchmarks.ours import ADMITTED, DRIVEN, Ours, opened
from benchmarks.place import Place
from benchmarks.workload import workload

#: The databases: one without ended runs, and one with many.
NONE: Final = "none_ended"
MANY: Final = "many_ended"

#: No lease ends while claims are measured, so that each of them takes a run that nobody has had.
_OPTIONS: Final = StoreOptions(lease_duration=timedelta(minutes=5))
_SET: Final = 64
#: Claims that count nowhere: statements are prepared, and planned for any value after the first few.
_UNCOUNTED: Final = 32


#: How many times as long a claim may take beside many ended runs.
CLAIM_BAR: Final = 1.5


@frozen(kw_only=True)
class Sizes:
    """How much is measured.

    Attributes:
        ended: runs in the tables.
        originals: of them, that the library makes; the others are copies.
        rounds: of claims and submissions.
        claims: in each database in a round.
        submits: likewise.
        callers: at once, of submissions.
    """

    ended: int = 100_000
    originals: int = 200
    rounds: int = 3
    claims: int = 700
    submits: int = 1_000
    callers: int = 16


@frozen(kw_only=True)
class Claims:
    """The times of claims of a single run, in seconds."""

    median: float
    p99: float

    @classmethod
    def of(cls, times: Sequence[float]) -> Claims:
        """Sum up the times of single claims."""
        return cls(median=statistics.median(times), p99=statistics.quantiles(times, n=100, method="inclusive")[-1])


@frozen(kw_only=True)
class Scale:
    """What was measured in each database.

    Attributes:
        ended: runs in the one that has many.
        disk: of one of them.
        claims: by the name of the database; so are ``submits``, in a second.
    """

    ended: int
    disk: soak.Disk
    claims: dict[str, Claims]
    submits: dict[str, float]

    @property
    def claim_ratio(self) -> float:
        """How many times as long the slowest hundredth of claims takes beside many ended runs."""
        return self.claims[MANY].p99 / self.claims[NONE].p99


@define(kw_only=True)
class _Measuring:
    """Two databases that take turns."""

    here: Place
    stores: dict[str, Ours]
    sizes: Sizes
    _numbers: count[int] = field(factory=lambda: count(1_000_000))
    _claims: dict[str, list[float]] = field(factory=lambda: {NONE: [], MANY: []})
    _submits: dict[str, list[float]] = field(factory=lambda: {NONE: [], MANY: []})

    async def round(self, number: int) -> None:
        names = [NONE, MANY] if number % 2 else [MANY, NONE]
        for name in names:
            new = self.stores[name].submissions(ADMITTED, self._take(self.sizes.submits + 4 * self.sizes.callers))
            submit, callers = self.stores[name].submit, self.sizes.callers
            found = await measured(new, submit, callers=callers, warm_up=4 * callers)
            self._submits[name].append(found.rate)
        await self._claim(names)

    async def _claim(self, names: Sequence[str]) -> None:
        """Claim one run here and one there, so that both meet the same moments of the machine."""
        for name in names:
            await self._ready(name)
        for number in range(_UNCOUNTED + self.sizes.claims):
            for name in names:
                seconds = await self._seconds(self.stores[name])
                if number >= _UNCOUNTED:
                    self._claims[name].append(seconds)

    async def _ready(self, name: str) -> None:
        library = self.stores[name]
        for first in range(0, _UNCOUNTED + self.sizes.claims, _SET):
            some = min(_SET, _UNCOUNTED + self.sizes.claims - first)
            await library.submit_set(library.submissions(DRIVEN, self._take(some)))
        connection = await self.here.connect(name)
        await connection.execute("ANALYZE")  # as autovacuum would
        await connection.close()

    async def _seconds(self, library: Ours) -> float:
        ids, digests = [AttemptId.generate()], library.work.executables.graph_digests
        began = time.perf_counter()
        found = await library.store.claim_ready(DRIVEN, 1, attempt_ids=ids, graph_digests=digests)
        seconds = time.perf_counter() - began
        assert len(found) == 1
        return seconds

    def _take(self, how_many: int) -> list[int]:
        return [next(self._numbers) for _ in range(how_many)]

    def found(self, disk: soak.Disk) -> Scale:
        return Scale(
            ended=self.sizes.ended,
            disk=disk,
            claims={name: Claims.of(times) for name, times in self._claims.items()},
            submits={name: statistics.median(rates) for name, rates in self._submits.items()},
        )


async def measure(here: Place, sizes: Sizes) -> Scale:
    """Make the databases, and measure in both by turns."""
    for name in (NONE, MANY):
        await here.create(name)
    disk = await _fill(here, sizes)
    async with AsyncExitStack() as stack:
        work = workload()
        stores = {
            name: await stack.enter_async_context(opened(here.url(name), work, _OPTIONS)) for name in (NONE, MANY)
        }
        measuring = _Measuring(here=here, stores=stores, sizes=sizes)
        for number in range(sizes.rounds):
            click.echo(f"round {number + 1} of {sizes.rounds} beside {sizes.ended:,} ended runs", err=True)
            await here.settle()
            await measuring.round(number)
    return measuring.found(disk)


async def _fill(here: Place, sizes: Sizes) -> soak.Disk:
    """Let some runs end, copy them, and leave both databases as their own vacuum would."""
    async with opened(here.url(MANY), workload()) as library:
        empty = await here.connect(NONE)
        before = await soak.disk(empty)
        await library.run_all(library.submissions(DRIVEN, range(sizes.originals)), callers=sizes.callers)
    connection = await here.connect(MANY)
    await clones.clone(connection, sizes.ended)
    for name in (NONE, MANY):
        await here.vacuum(name)
    ended = await connection.fetchval("SELECT count(*) FROM agentruns.runs WHERE status = 'succeeded'")
    assert ended == sizes.ended
    disk = (await soak.disk(connection)).over(before, sizes.ended)
    await connection.close()
    await empty.close()
    return disk


def show(found: Scale) -> None:
    """Write the table."""
    table = Table(title=f"beside {found.ended:,} ended runs, and beside none")
    for column in ("ended runs", "claim, median ms", "claim, p99 ms", "submits/s"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, ended in ((NONE, 0), (MANY, found.ended)):
        claims = found.claims[name]
        times = (f"{1000 * claims.median:.2f}", f"{1000 * claims.p99:.2f}")
        table.add_row(f"{ended:,}", *times, f"{found.submits[name]:,.0f}")
    console = Console(highlight=False)
    console.print(table)
    console.print(f"claim p99 beside many / beside none = {found.claim_ratio:.2f} (at most {CLAIM_BAR})")
    console.print(
        f"disk of one ended run: {found.disk.total:,.0f} bytes, {found.disk.tables:,.0f} in tables and"
        f" {found.disk.indexes:,.0f} in indexes"
    )
