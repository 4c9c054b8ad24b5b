"""Open what a group of cases needs, measure its rounds, and sum up what was found."""

from __future__ import annotations

from contextlib import AsyncExitStack

import click

from agentruns.operations.embedded import EmbeddedServer
from benchmarks import fans, floor, floor_runs, histories, ours
from benchmarks.cases import Cases, Peers, Sizes
from benchmarks.counts import count_all, count_drives
from benchmarks.drive_cases import DriveCases, DriveSizes
from benchmarks.peers import dbos_client, procrastinate_tasks
from benchmarks.place import OURS, Place, place
from benchmarks.report import Results
from benchmarks.worker_cases import CLAIMED, SHARING, WorkerCases, WorkerSizes
from benchmarks.workload import Workload, workload


async def measure_submissions(here: Place, sizes: Sizes, *, with_peers: bool, with_runs: bool = True) -> Results:
    """Measure submissions, loads and retries; runs from submission to result and what is counted may be left out."""
    work = workload()
    async with AsyncExitStack() as stack:
        cases = await _open_cases(here, stack, work, sizes, with_peers=with_peers)
        for number in range(sizes.rounds):
            say_round(number, sizes.rounds)
            await cases.submissions()
            await cases.alone()
            if with_runs:
                await cases.runs()
    counts = {}
    if with_runs:
        click.echo("counting commits", err=True)
        counts = await count_all(here, work, calls=sizes.alone, callers=sizes.callers)
    return Results(figures=cases.figures, rates=cases.rates, counts=counts, server=await here.settings(), sizes=sizes)


async def _open_cases(here: Place, stack: AsyncExitStack, work: Workload, sizes: Sizes, *, with_peers: bool) -> Cases:
    url, callers = here.url(OURS), sizes.callers
    library = await stack.enter_async_context(ours.opened(url, work))
    await floor.copy_graphs(here)
    return Cases(
        place=here,
        library=library,
        uncoalesced=await stack.enter_async_context(ours.opened_uncoalesced(url, work, callers=callers)),
        floor=await stack.enter_async_context(floor.opened(here, connections=callers)),
        peers=Peers(
            dbos=await stack.enter_async_context(dbos_client.opened(here, callers=callers)),
            procrastinate=await stack.enter_async_context(procrastinate_tasks.opened(here, callers=callers)),
        )
        if with_peers
        else None,
        sizes=sizes,
    )


async def measure_drives(here: Place, sizes: DriveSizes, *, with_peers: bool) -> Results:
    """Measure runs from submission, or from ready, to their results, and what they commit."""
    work = workload()
    async with AsyncExitStack() as stack:
        cases = await _open_drives(here, stack, work, sizes, with_peers=with_peers)
        for number in range(sizes.rounds):
            say_round(number, sizes.rounds)
            await cases.round(number)
    click.echo("counting commits", err=True)
    counts = await count_drives(here, work, rounds=sizes.rounds, runs=sizes.runs, callers=sizes.callers)
    return Results(figures=cases.figures, rates=cases.rates, counts=counts, server=await here.settings(), sizes=sizes)


async def _open_drives(
    here: Place, stack: AsyncExitStack, work: Workload, sizes: DriveSizes, *, with_peers: bool
) -> DriveCases:
    library = await stack.enter_async_context(ours.opened(here.url(OURS), work))
    await floor.copy_graphs(here)
    click.echo("making long histories", err=True)
    return DriveCases(
        place=here,
        library=library,
        histories=await stack.enter_async_context(histories.opened(here, supersteps=sizes.supersteps)),
        fans=await stack.enter_async_context(fans.opened(here)),
        floor=await stack.enter_async_context(floor.opened(here, connections=1)),
        floor_runs=await stack.enter_async_context(floor_runs.opened(here, connections=sizes.callers)),
        with_peers=with_peers,
        sizes=sizes,
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
                say_round(number, sizes.rounds)
                await cases.round()
            settings = await here.settings()
            click.echo("restarting the server", err=True)
            recovery = await cases.recovery(embedded)
        return Results(
            figures=cases.figures, rates=cases.rates, counts={}, server=settings, sizes=sizes, recovery=recovery
        )


def say_round(number: int, rounds: int) -> None:
    """Say how far it is."""
    click.echo(f"round {number + 1} of {rounds}", err=True)
