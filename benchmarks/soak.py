"""A long time of work: what each run leaves on the disk, how rows of runs are updated, and what the process holds."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Final

import click
import psutil
from attrs import define, field, frozen
from rich.console import Console

from benchmarks.measure import Clock
from benchmarks.ours import DRIVEN, Ours, opened
from benchmarks.place import Connection, Place
from benchmarks.workload import workload

SOAK: Final = "soak"
#: So often the process is looked at.
LOOKS: Final = 10

_MIB: Final = 2**20
#: Runs that are built and held at once.
_SET: Final = 500
_BYTES: Final = """
SELECT sum(pg_table_size(oid))::bigint AS tables, sum(pg_indexes_size(oid))::bigint AS indexes
FROM pg_class WHERE relnamespace = 'agentruns'::regnamespace AND relkind = 'r'
"""
_UPDATES: Final = """
SELECT n_tup_upd AS updates, n_tup_hot_upd AS hot FROM pg_stat_user_tables
WHERE schemaname = 'agentruns' AND relname = 'runs'
"""


@frozen(kw_only=True)
class Disk:
    """Bytes of tables, with what they keep out of line, and of their indexes."""

    tables: float
    indexes: float

    @property
    def total(self) -> float:
        """Both together."""
        return self.tables + self.indexes

    def over(self, before: Disk, runs: int) -> Disk:
        """Share out among runs what came since."""
        return Disk(tables=(self.tables - before.tables) / runs, indexes=(self.indexes - before.indexes) / runs)


@frozen(kw_only=True)
class Soak:
    """What some runs of three nodes took and left, with one kilobyte of input each.

    Attributes:
        runs: from submission to verified result.
        rate: of them in a second.
        disk: of one run.
        updates: of the row of one run.
        hot: share of these updates that changed no index.
        resident: MiB of this process after each tenth.
    """

    runs: int
    rate: float
    disk: Disk
    updates: float
    hot: float
    resident: list[float]

    @property
    def growth(self) -> float:
        """How many times what the process held after the second tenth it holds in the end."""
        return self.resident[-1] / self.resident[1]


@define
class _Looks:
    """Look at the process from time to time."""

    resident: list[float] = field(factory=list)

    def look(self) -> None:
        gc.collect()
        self.resident.append(psutil.Process().memory_info().rss / _MIB)
        click.echo(f"{len(self.resident)} of {LOOKS} tenths: {self.resident[-1]:.0f} MiB", err=True)


async def measure(here: Place, *, runs: int, callers: int) -> Soak:
    """Submit, drive and read runs in a database of their own."""
    await here.create(SOAK)
    connection = await here.connect(SOAK)
    try:
        looks, seconds = _Looks(), 0.0
        async with opened(here.url(SOAK), workload()) as library:
            before = await disk(connection)
            for tenth in range(LOOKS):
                seconds += await _tenth(library, range(tenth * runs // LOOKS, (tenth + 1) * runs // LOOKS), callers)
                looks.look()
                await here.vacuum(SOAK)
        updated = await connection.fetchrow(_UPDATES)
        assert updated is not None
        return Soak(
            runs=runs,
            rate=runs / seconds,
            disk=(await disk(connection)).over(before, runs),
            updates=updated["updates"] / runs,
            hot=updated["hot"] / updated["updates"],
            resident=looks.resident,
        )
    finally:
        await connection.close()


async def _tenth(library: Ours, numbers: range, callers: int) -> float:
    seconds = 0.0
    for some in _parts(numbers):
        submissions = library.submissions(DRIVEN, some)
        clock = Clock()
        await library.run_all(submissions, callers=callers)
        seconds += clock.seconds
    return seconds


def _parts(numbers: range) -> Iterator[range]:
    for first in range(0, len(numbers), _SET):
        yield numbers[first : first + _SET]


async def disk(connection: Connection) -> Disk:
    """Measure what the library's tables take."""
    found = await connection.fetchrow(_BYTES)
    assert found is not None
    return Disk(tables=found["tables"], indexes=found["indexes"])


def show(found: Soak) -> None:
    """Write the figures."""
    console = Console(highlight=False)
    console.print(f"soak of {found.runs:,} runs: {found.rate:,.0f}/s from submission to verified result")
    console.print(
        f"  disk of one run: {found.disk.total:,.0f} bytes, {found.disk.tables:,.0f} in tables and"
        f" {found.disk.indexes:,.0f} in indexes"
    )
    console.print(f"  updates of its row: {found.updates:.2f}, {100 * found.hot:.1f} % of them HOT")
    console.print(f"  MiB after each tenth: {', '.join(f'{each:.0f}' for each in found.resident)}")
