"""``python -m benchmarks``: measure everything on a server of our own, show a table, and hold ratios to their bars."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final, NoReturn

import click
from attrs import evolve
from sqlalchemy import URL

from benchmarks import audits, everything, everything_report, idle, rooms, scale, soak
from benchmarks.cases import Sizes
from benchmarks.drive_cases import DriveSizes
from benchmarks.everything import AllSizes, Everything
from benchmarks.measuring import measure_drives, measure_submissions, measure_workers
from benchmarks.peers.installed import check_installed
from benchmarks.place import place, server
from benchmarks.report import Results, show, write
from benchmarks.scale import Scale
from benchmarks.soak import Soak
from benchmarks.worker_cases import WorkerSizes


async def _submissions(base: URL, sizes: Sizes, *, with_peers: bool) -> Results:
    async with place(base) as here:
        return await measure_submissions(here, sizes, with_peers=with_peers)


async def _drives(base: URL, sizes: DriveSizes, *, with_peers: bool) -> Results:
    async with place(base) as here:
        return await measure_drives(here, sizes, with_peers=with_peers)


async def _everything(base: URL, sizes: AllSizes, *, with_peers: bool) -> Everything:
    async with place(base, settles=sizes.settles) as here:
        return await everything.measure(here, sizes, with_peers=with_peers)


async def _scale(base: URL, sizes: scale.Sizes, soaked: int) -> tuple[Scale, Soak]:
    async with place(base) as here:
        soaked_through = await soak.measure(here, runs=soaked, callers=sizes.callers)
        return await scale.measure(here, sizes), soaked_through


#: What makes ids in the server, of which many are needed at once.
_NEWEST: Final = 18
_MAJOR: Final = click.option(
    "--major", default=18, show_default=True, type=click.IntRange(16, 18), help="Version of PostgreSQL."
)

_PEERS: Final = click.option(
    "--peers", is_flag=True, help="Measure the peers in the same rounds; needs the dependency group bench."
)
_JSON: Final = click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures here."
)


@click.group(invoke_without_command=True)
@click.option("--rounds", default=Sizes().rounds, show_default=True, type=click.IntRange(1))
@click.option("--submits", default=Sizes().submits, show_default=True, type=click.IntRange(20), help="In a round.")
@click.option("--runs", default=Sizes().runs, show_default=True, type=click.IntRange(2), help="In a round.")
@click.option("--alone", default=Sizes().alone, show_default=True, type=click.IntRange(2), help="With one caller.")
@click.option("--callers", default=Sizes().callers, show_default=True, type=click.IntRange(1, 64))
@_MAJOR
@_PEERS
@_JSON
@click.pass_context
def main(context: click.Context, /, major: int, json_file: Path | None, *, peers: bool, **sizes: int) -> None:
    """Measure the library beside the bare driver, on a durable embedded PostgreSQL."""
    if context.invoked_subcommand is not None:
        return
    if peers:
        check_installed("dbos", "procrastinate")
    with server(major) as embedded:
        _conclude(asyncio.run(_submissions(embedded.url, Sizes(**sizes), with_peers=peers)), json_file)


def _conclude(results: Results, json_file: Path | None) -> NoReturn:
    show(results)
    if json_file is not None:
        write(results, json_file)
    sys.exit(0 if results.is_above_bar else 1)


@main.command()
@click.option("--rounds", default=DriveSizes().rounds, show_default=True, type=click.IntRange(1))
@click.option("--runs", default=DriveSizes().runs, show_default=True, type=click.IntRange(2), help="In a round.")
@click.option("--alone", default=DriveSizes().alone, show_default=True, type=click.IntRange(4), help="One at a time.")
@click.option("--callers", default=DriveSizes().callers, show_default=True, type=click.IntRange(1, 64))
@click.option("--supersteps", default=DriveSizes().supersteps, show_default=True, type=click.IntRange(10))
@_MAJOR
@_PEERS
@_JSON
def drive(*, major: int, json_file: Path | None, peers: bool, **sizes: int) -> None:
    """Measure runs from submission to result, drives over short and long histories, and what they commit."""
    if peers:
        check_installed("dbos", "langgraph")
    with server(major) as embedded:
        _conclude(asyncio.run(_drives(embedded.url, DriveSizes(**sizes), with_peers=peers)), json_file)


@main.command("all")
@click.option("--quick", is_flag=True, help="Measure so little that the figures say nothing.")
@click.option("--ended", type=click.IntRange(20), help="Ended runs beside which claims are measured.")
@click.option("--svg", "svg_file", type=click.Path(dir_okay=False, path_type=Path), help="Draw the rates here.")
@_PEERS
@_JSON
def measure_all(*, quick: bool, ended: int | None, svg_file: Path | None, peers: bool, json_file: Path | None) -> None:
    """Measure everything that has a bar in one run, on PostgreSQL 18, and show one table of bars."""
    if peers:
        check_installed("dbos", "langgraph", "procrastinate")
    sizes = everything.QUICK if quick else everything.USUAL
    if ended is not None:
        sizes = evolve(sizes, scale=evolve(sizes.scale, ended=ended))
    with server(_NEWEST) as embedded:
        found = asyncio.run(_everything(embedded.url, sizes, with_peers=peers))
    everything_report.conclude(found, json_file=json_file, svg_file=svg_file)


@main.command("scale")
@click.option(
    "--runs", default=scale.Sizes().ended, show_default=True, type=click.IntRange(20), help="That have ended."
)
@click.option("--claims", default=scale.Sizes().claims, show_default=True, type=click.IntRange(10), help="In a round.")
@click.option(
    "--submits", default=scale.Sizes().submits, show_default=True, type=click.IntRange(20), help="In a round."
)
@click.option("--rounds", default=scale.Sizes().rounds, show_default=True, type=click.IntRange(1))
@click.option("--soak", "soaked", default=5_000, show_default=True, type=click.IntRange(20), help="Runs of the soak.")
@_JSON
def measure_scale(*, runs: int, soaked: int, json_file: Path | None, **sizes: int) -> None:
    """Measure claims and submissions beside many ended runs, and a soak, on PostgreSQL 18."""
    originals = min(runs, scale.Sizes().originals)
    chosen = scale.Sizes(ended=runs, originals=originals, **sizes)
    with server(_NEWEST) as embedded:
        scaled, soaked_through = asyncio.run(_scale(embedded.url, chosen, soaked))
    everything_report.conclude_scale(scaled, soaked_through, json_file=json_file)


@main.command()
@click.option("--rounds", default=WorkerSizes().rounds, show_default=True, type=click.IntRange(1))
@click.option("--runs", default=WorkerSizes().runs, show_default=True, type=click.IntRange(4), help="In a queue.")
@click.option("--claims", default=WorkerSizes().claims, show_default=True, type=click.IntRange(16))
@click.option("--callers", default=WorkerSizes().callers, show_default=True, type=click.IntRange(1, 64), help="Slots.")
@click.option("--seconds", default=WorkerSizes().seconds, show_default=True, type=click.IntRange(1))
@_MAJOR
@_JSON
def workers(*, major: int, json_file: Path | None, **sizes: int) -> None:
    """Measure one, two and four worker processes, claims, turns of tenants, and how work comes back after a restart."""
    with server(major) as embedded:
        _conclude(asyncio.run(measure_workers(embedded, WorkerSizes(**sizes))), json_file)


@main.command("idle")
@click.option("--runs", default=idle.Sizes().runs, show_default=True, type=click.IntRange(2))
@click.option("--workers", default=idle.Sizes().workers, show_default=True, type=click.IntRange(1, 60))
@click.option("--seconds", default=idle.Sizes().seconds, show_default=True, type=click.IntRange(1))
@click.option("--rounds", default=idle.Sizes().rounds, show_default=True, type=click.IntRange(1))
@click.option("--submits", default=idle.Sizes().submits, show_default=True, type=click.IntRange(20), help="In a round.")
@click.option("--callers", default=idle.Sizes().callers, show_default=True, type=click.IntRange(1, 64))
@_MAJOR
def measure_idle(*, major: int, **sizes: int) -> None:
    """Measure how long a run waits for an idle worker, what idle workers cost, and what it costs to tell them."""
    with server(major) as embedded:
        idle.show(asyncio.run(idle.measure(embedded.url, idle.Sizes(**sizes))))


@main.command("audit")
@click.option("--runs", default=2000, show_default=True, type=click.IntRange(10))
@_MAJOR
def measure_audits(*, runs: int, major: int) -> None:
    """Measure audits of runs in every state, and plant ten faults that have to be found."""
    with server(major) as embedded:
        measured = asyncio.run(audits.measure(embedded.url, runs=runs))
    audits.show(measured)
    sys.exit(0 if measured.are_right else 1)


@main.command()
@click.argument("what", default="submit", type=click.Choice(["submit", "drive"]))
@click.option("--calls", default=Sizes().submits, show_default=True, type=click.IntRange(20))
@click.option("--callers", default=Sizes().callers, show_default=True, type=click.IntRange(1, 64))
@_MAJOR
def profile(what: str, major: int, calls: int, callers: int) -> None:
    """Show in which room of the house a submit, a load and a retry spend their time, or the drive of a run."""
    measure_rooms = rooms.measure if what == "submit" else rooms.measure_drives
    with server(major) as embedded:
        rooms.show(asyncio.run(measure_rooms(embedded.url, calls=calls, callers=callers)))


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
