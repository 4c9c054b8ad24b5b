"""A worker that drains asks for nothing more, and leaves every run that it held to others, ended or given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.testing.drives import TENANT, DriveWorld, builder, open_world
from agentruns.testing.sent_statements import sent_statements

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
STARTED = "graph-node-attempt-started"
SLOTS = 3


def is_claim(statement: str) -> bool:
    """Tell whether a statement raises epochs."""
    return "fencing_epoch=(" in statement.replace(" ", "")


@pytest.mark.parametrize("is_in_time", [True, False])
def test_SCH_14_after_draining_no_claim_is_sent_and_every_run_is_ended_or_given_back(
    database_url: str, owner_url: str, run: Callable[[Any], Any], *, is_in_time: bool
) -> None:
    go_on = asyncio.Event()
    graph = builder()

    async def a(_context: Any) -> Finish:
        await go_on.wait()
        return Finish({})

    graph.node(name="a", entry=True, terminal=True)(a)

    async def work(world: DriveWorld, others: DriveWorld) -> None:
        # It has idle slots; that nobody wakes it keeps every claim but the first one on this side of the drain.
        options = AgentWorkerOptions(
            slots=SLOTS + 2,
            poll_interval=timedelta(seconds=60),
            listens=False,
            drain_timeout=LONG if is_in_time else timedelta(milliseconds=100),
        )
        worker = AgentWorker(world.store, world.executables, tenants=[TENANT], loop=world.loop, options=options)
        for _ in range(SLOTS):
            await world.submitted()
        with sent_statements(world.store) as texts:
            working = asyncio.create_task(worker.run(world.shutdown))
            await world.until(STARTED, count=SLOTS)
            sent_before = len(texts)
            assert [each for each in texts if is_claim(each)] != []
            world.shutdown.drain()
            await others.submitted()
            # Another worker works beside it: what is still driven is not taken from it.
            patient, ended = await _working(others)
            if is_in_time:
                await _until_epochs(world, [1] * (SLOTS + 1))
                go_on.set()
            await working
            assert [each for each in texts[sent_before:] if is_claim(each)] == []
        epochs = await _epochs(world)
        if is_in_time:
            # Each ended under its own worker, and only the last run went to the other one.
            assert epochs == [1] * (SLOTS + 1)
        else:
            # Given back within the bound: the other worker goes on with them at once.
            await _until_epochs(world, [1, 2, 2, 2])
            go_on.set()
        async with asyncio.timeout(20):
            while [row.status for row in await _rows(world)] != ["succeeded"] * (SLOTS + 1):
                await asyncio.sleep(0.02)
        ended.drain()
        await patient
        assert [row.lease_attempt_id for row in await _rows(world)] == [None] * (SLOTS + 1)

    async def opened() -> None:
        bundle = graph.build()
        timing = {"lease": LONG, "task_abort_wait": timedelta(milliseconds=100)}
        async with (
            open_world(owner_url, bundle, store_url=database_url, **timing) as world,
            open_world(owner_url, bundle, store_url=database_url, **timing) as others,
        ):
            await work(world, others)

    run(opened())


async def _working(world: DriveWorld) -> tuple[asyncio.Task[None], ShutdownSignal]:
    options = AgentWorkerOptions(slots=8, poll_interval=timedelta(milliseconds=50))
    worker = AgentWorker(world.store, world.executables, tenants=[TENANT], loop=world.loop, options=options)
    return asyncio.create_task(worker.run(world.shutdown)), world.shutdown


async def _rows(world: DriveWorld) -> list[Any]:
    return await world.rows("SELECT status, fencing_epoch, lease_attempt_id FROM agentruns.runs ORDER BY fencing_epoch")


async def _epochs(world: DriveWorld) -> list[int]:
    return [row.fencing_epoch for row in await _rows(world)]


async def _until_epochs(world: DriveWorld, expected: list[int]) -> None:
    async with asyncio.timeout(20):
        while await _epochs(world) != expected:
            await asyncio.sleep(0.02)
