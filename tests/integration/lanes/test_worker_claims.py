"""How often a worker asks for runs: once for all idle slots, again when it may find more, and never in a hurry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.domain.scalars import TenantId
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.testing.drives import TENANT, DriveWorld, chain

InWorld = Callable[..., None]
Sent = Callable[[AgentRunStore], AbstractContextManager[list[str]]]

LONG = timedelta(minutes=1)
#: Longer than any test: what happens sooner has another cause.
NEVER = timedelta(minutes=1)
STARTED, ENDED = "graph-node-attempt-started", "graph-barrier-succeeded"


class Turnstile:
    """A node that lets one run end for each turn."""

    def __init__(self) -> None:
        self.turns = asyncio.Semaphore(0)

    def graph(self) -> Any:
        async def a(_context: Any) -> Finish:
            await self.turns.acquire()
            return Finish({})

        return chain(a=a)


@asynccontextmanager
async def worker(
    world: DriveWorld, *, slots: int, poll_interval: timedelta, tenants: Sequence[TenantId] | None = (TENANT,)
) -> AsyncIterator[None]:
    options = AgentWorkerOptions(
        slots=slots,
        poll_interval=poll_interval,
        listens=False,
        drain_timeout=timedelta(0),
        supervision_interval=None,
    )
    working = asyncio.create_task(
        AgentWorker(world.store, world.executables, tenants=tenants, loop=world.loop, options=options).run(
            world.shutdown
        )
    )
    try:
        yield
    finally:
        world.shutdown.drain()
        await working


async def submitted(world: DriveWorld, count: int) -> None:
    await asyncio.gather(*(world.submitted() for _ in range(count)))


def claims_of(texts: Sequence[str]) -> int:
    """Statements that claim what is ready; only they weigh the histories that they bring."""
    return sum("weighed AS MATERIALIZED" in text for text in texts)


def test_a_worker_that_got_fewer_runs_than_it_has_slots_does_not_ask_again_at_once(
    in_world: InWorld, sent: Sent
) -> None:
    async def work(world: DriveWorld) -> None:
        await submitted(world, 2)
        with sent(world.store) as texts:
            async with worker(world, slots=4, poll_interval=NEVER):
                await world.until(STARTED, count=2)
                await asyncio.sleep(0.3)
                assert claims_of(texts) == 1

    in_world(work, Turnstile().graph(), lease=LONG)


def test_a_full_worker_asks_for_nothing_until_a_slot_is_free_and_then_at_once(in_world: InWorld, sent: Sent) -> None:
    turnstile = Turnstile()

    async def work(world: DriveWorld) -> None:
        await submitted(world, 5)
        with sent(world.store) as texts:
            async with worker(world, slots=2, poll_interval=timedelta(milliseconds=10)):
                await world.until(STARTED, count=2)
                await asyncio.sleep(0.3)
                assert claims_of(texts) == 1
                turnstile.turns.release()
                await world.until(STARTED, count=3)
                await asyncio.sleep(0.3)
                assert claims_of(texts) == 2

    in_world(work, turnstile.graph(), lease=LONG)


@pytest.mark.parametrize("slots", [1, 3])
def test_a_slot_that_becomes_free_is_filled_however_rarely_the_worker_polls(in_world: InWorld, *, slots: int) -> None:
    turnstile = Turnstile()

    async def work(world: DriveWorld) -> None:
        await submitted(world, slots)
        async with worker(world, slots=slots, poll_interval=NEVER):
            await world.until(STARTED, count=slots)
            await submitted(world, 4)
            for _ in range(slots + 4):
                turnstile.turns.release()
            await world.until(ENDED, count=slots + 4)

    in_world(work, turnstile.graph(), lease=LONG)


def test_a_run_that_comes_while_slots_are_idle_is_found_by_the_next_poll(in_world: InWorld, sent: Sent) -> None:
    async def work(world: DriveWorld) -> None:
        await submitted(world, 1)
        with sent(world.store) as texts:
            async with worker(world, slots=3, poll_interval=timedelta(seconds=4)):
                await world.until(STARTED)
                await submitted(world, 1)
                before = claims_of(texts)
                await world.until(STARTED, count=2)
                assert claims_of(texts) - before <= 1

    in_world(work, Turnstile().graph(), lease=LONG)


def test_more_slots_than_one_claim_can_fill_are_filled_by_the_next_one_at_once(in_world: InWorld, sent: Sent) -> None:
    async def work(world: DriveWorld) -> None:
        await submitted(world, 70)
        with sent(world.store) as texts:
            async with worker(world, slots=100, poll_interval=NEVER):
                await world.until(STARTED, count=70)
                await asyncio.sleep(0.3)
                assert claims_of(texts) == 2

    in_world(work, Turnstile().graph(), lease=LONG)


@pytest.mark.parametrize("slots", [1, 9])
def test_an_idle_worker_of_every_tenant_asks_with_one_statement_and_claims_nothing(
    in_world: InWorld, sent: Sent, slots: int
) -> None:
    async def work(world: DriveWorld) -> None:
        with sent(world.store) as texts:
            async with worker(world, slots=slots, poll_interval=NEVER, tenants=None):
                async with asyncio.timeout(20):
                    while not texts:  # the worker is another task
                        await asyncio.sleep(0.01)
                await asyncio.sleep(0.3)
                assert [text.startswith("WITH RECURSIVE") for text in texts] == [True]

    in_world(work, Turnstile().graph(), lease=LONG)
