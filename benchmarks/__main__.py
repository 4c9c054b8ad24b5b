"""``python -m benchmarks``: measure everything on a server of our own, show a table, and hold submit to its bar."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click
from sqlalchemy import URL

from benchmarks import floor, ours
from benchmarks.cases import Cases, Sizes
from benchmarks.counts import count_all
from benchmarks.place import OURS, place, server
from benchmarks.report import Results, show, write
from benchmarks.workload import workload


async def measure(base: URL, sizes: Sizes) -> Results:
    """Measure on a server that runs."""
    work = workload()
    async with place(base) as here:
        async with ours.opened(here.url(OURS), work) as library:
            await floor.copy_graphs(here)
            async with floor.opened(here, connections=sizes.callers) as bare:
                cases = Cases(place=here, library=library, floor=bare, sizes=sizes)
                for number in range(sizes.rounds):
                    click.echo(f"round {number + 1} of {sizes.rounds}", err=True)
                    await cases.round()
        click.echo("counting commits", err=True)
        counts = await count_all(here, work, calls=sizes.alone, callers=sizes.callers)
        return Results(figures=cases.figures, counts=counts, server=await here.settings(), sizes=sizes)


@click.command()
@click.option("--rounds", default=Sizes().rounds, show_default=True, type=click.IntRange(1))
@click.option("--submits", default=Sizes().submits, show_default=True, type=click.IntRange(20), help="In a round.")
@click.option("--runs", default=Sizes().runs, show_default=True, type=click.IntRange(2), help="In a round.")
@click.option("--alone", default=Sizes().alone, show_default=True, type=click.IntRange(2), help="With one caller.")
@click.option("--callers", default=Sizes().callers, show_default=True, type=click.IntRange(1, 64))
@click.option("--major", default=18, show_default=True, type=click.IntRange(16, 18), help="Version of PostgreSQL.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures here.")
def main(major: int, json_file: Path | None, **sizes: int) -> None:
    """Measure the library beside the bare driver, on a durable embedded PostgreSQL."""
    with server(major) as base:
        results = asyncio.run(measure(base, Sizes(**sizes)))
    show(results)
    if json_file is not None:
        write(results, json_file)
    sys.exit(0 if results.is_above_bar else 1)


if __name__ == "__main__":
    main()
