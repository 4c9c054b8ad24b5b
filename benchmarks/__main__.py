"""``python -m benchmarks``: measure everything on a server of our own, show a table, and hold ratios to their bars."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NoReturn

import click
from sqlalchemy import URL

from agentruns.operations.embedded import EmbeddedServer
from benchmarks import audits, floor, histories, idle, ours, rooms
from benchmarks.cases import Cases, Sizes
from benchmarks.counts import count_all, count_drives
from benchmarks.drive_cases import DriveCases, DriveSizes
from benchmarks.peers import dbos_client
from benchmarks.peers.installed import check_installed
from benchmarks.place import OURS, place, server
from benchmarks.report import Results, show, write
from benchmarks.worker_cases import CLAIMED, SHARING, WorkerCases, WorkerSizes
from benchmarks.workload import workload


async def measure(base: URL, sizes: Sizes, *, with_peers: bool) -> Results:
    """Measure on a server that runs."""
    work = workload()
    async with place(base) as here, AsyncExitStack() as stack:
        url = here.url(OURS)
        library = await stack.enter_async_context(ours.opened(url, work))
        await floor.copy_graphs(here)
        cases = Cases(
            place=here,
            library=library,
            uncoalesced=await stack.enter_async_context(ours.opened_uncoalesced(url, work, callers=sizes.callers)),
            floor=await stack.enter_async_context(floor.opened(here, connections=sizes.callers)),
            peer=await stack.enter_async_context(dbos_client.opened(here, callers=sizes.callers))
            if with_peers
            else None,
            sizes=sizes,
        )
        for number in range(sizes.rounds):
            click.echo(f"round {number + 1} of {sizes.rounds}", err=True)
            await cases.round()
        await stack.aclose()
        click.echo("counting commits", err=True)
        counts = await count_all(here, work, calls=sizes.alone, callers=sizes.callers)
        return Results(
            figures=cases.figures, rates=cases.rates, counts=counts, server=await here.settings(), sizes=sizes
        )


async def measure_drives(base: URL, sizes: DriveSizes, *, with_peers: bool) -> Results:
    """Measure driving on a server that runs."""
    work = workload()
    async with place(base) as here, AsyncExitStack() as stack:
        library = await stack.enter_async_context(ours.opened(here.url(OURS), work))
        click.echo("making long histories", err=True)
        circling = await stack.enter_async_context(histories.opened(here, supersteps=sizes.supersteps))
        cases = DriveCases(place=here, library=library, histories=circling, with_peers=with_peers, sizes=sizes)
        for number in range(sizes.rounds):
            click.echo(f"round {number + 1} of {sizes.rounds}", err=True)
            await cases.round()
        await stack.aclose()
        click.echo("counting commits", err=True)
        counts = await count_drives(here, work, rounds=sizes.rounds, runs=sizes.runs, callers=sizes.callers)
        return Results(
            figures=cases.figures, rates=cases.rates, counts=counts, server=await here.settings(), sizes=sizes
        )


async def measure_workers(embedded: EmbeddedServer, sizes: WorkerSizes) -> Results:
    """Measure workers; the server is restarted at the end."""
    work = workload()
    async with place(embedded.url) as here:
        async with ours.opened(here.url(OURS), work) as library:
            for tenant_id in (CLAIMED, *SHARING):
                await library.runs.publish(tenant_id, work.bundle.graph)
            cases = WorkerCases(place=here, library=library, sizes=sizes)
            for number in range(sizes.rounds):
                click.echo(f"round {number + 1} of {sizes.rounds}", err=True)
                await cases.round()
            settings = await here.settings()
            click.echo("restarting the server", err=True)
            recovery = await cases.recovery(embedded)
        return Results(
            figures=cases.figures, rates=cases.rates, counts={}, server=settings, sizes=sizes, recovery=recovery
        )


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
        check_installed("dbos")
    with server(major) as embedded:
        _conclude(asyncio.run(measure(embedded.url, Sizes(**sizes), with_peers=peers)), json_file)


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
        _conclude(asyncio.run(measure_drives(embedded.url, DriveSizes(**sizes), with_peers=peers)), json_file)


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
