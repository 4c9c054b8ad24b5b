"""Everything that has a bar, measured one after the other on one server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import click
from attrs import frozen

from benchmarks import idle, imports, scale, soak
from benchmarks.cases import Sizes
from benchmarks.drive_cases import DriveSizes
from benchmarks.idle import Waiting
from benchmarks.imports import Imports
from benchmarks.measure import Figure
from benchmarks.measuring import measure_drives, measure_submissions
from benchmarks.place import Place
from benchmarks.report import Results
from benchmarks.scale import Scale
from benchmarks.soak import Soak


@frozen(kw_only=True)
class AllSizes:
    """How much of everything is measured.

    Attributes:
        submissions: sizes of the cases of submissions.
        drives: of those of driving.
        scale: of claims beside ended runs.
        soak: runs whose disk is measured.
        waiting: runs that wait for an idle worker, one at a time.
        imports: fresh interpreters.
        settles: whether the cases are kept from disturbing one another.
    """

    submissions: Sizes
    drives: DriveSizes
    scale: scale.Sizes
    soak: int
    waiting: int
    imports: int
    settles: bool = True


#: What is measured unless something else is asked for: a quarter of an hour at most on two processors.
USUAL = AllSizes(
    submissions=Sizes(rounds=3, submits=1_000, alone=100),
    drives=DriveSizes(rounds=3, runs=300, alone=40),
    scale=scale.Sizes(ended=50_000),
    soak=2_000,
    waiting=60,
    imports=7,
)
#: So little that the figures say nothing: whether everything works.
QUICK = AllSizes(
    submissions=Sizes(rounds=1, submits=20, alone=4, callers=2),
    drives=DriveSizes(rounds=1, runs=8, alone=4, callers=2, supersteps=20),
    scale=scale.Sizes(ended=60, originals=10, rounds=1, claims=10, submits=20, callers=2),
    soak=20,
    waiting=2,
    imports=1,
    settles=False,
)


@frozen(kw_only=True)
class Everything:
    """What one run of everything found; without peers, theirs is left out."""

    submissions: Results
    drives: Results
    waiting: Waiting
    dbos_waiting: Waiting | None
    soak: Soak
    scale: Scale
    imports: Imports

    @property
    def figures(self) -> Mapping[str, Figure]:
        """Give the middle round of each case."""
        return {**self.submissions.figures, **self.drives.figures}


async def measure(here: Place, sizes: AllSizes, *, with_peers: bool) -> Everything:
    """Measure on a server that has nothing else to do."""
    _say("submissions")
    submissions = await measure_submissions(here, sizes.submissions, with_peers=with_peers, with_runs=False)
    _say("drives")
    drives = await measure_drives(here, sizes.drives, with_peers=with_peers)
    _say("idle workers")
    waiting = await idle.measure_waiting(here, sizes.waiting)
    dbos_waiting = await idle.measure_dbos(here, sizes.waiting) if with_peers else None
    _say("disk")
    soaked = await soak.measure(here, runs=sizes.soak, callers=sizes.submissions.callers)
    _say("scale")
    scaled = await scale.measure(here, sizes.scale)
    return Everything(
        submissions=submissions,
        drives=drives,
        waiting=waiting,
        dbos_waiting=dbos_waiting,
        soak=soaked,
        scale=scaled,
        imports=await asyncio.to_thread(imports.measure, sizes.imports),
    )


def _say(part: str) -> None:
    click.echo(part, err=True)
