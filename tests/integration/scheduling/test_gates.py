"""A worker that listens and hardly polls still takes what opens by itself, when it opens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from agentruns.domain.digests import Digest
from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import NodeFailedError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.testing.drives import TENANT, DriveWorld, chain, open_world
from agentruns.testing.isolating import isolate
from agentruns.testing.movable_clock import MovableClock
from agentruns.testing.sent_statements import sent_statements

Run = Callable[[Coroutine[Any, Any, Any]], Any]
InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
#: Longer than any test: what happens sooner has another cause.
NEVER = timedelta(minutes=1)
GATE = timedelta(milliseconds=700)
MICROSECOND = timedelta(microseconds=1)
STARTED = "graph-node-attempt-started"
GRAPH = chain(a=lambda _context: Finish({}))
#: A machine may be slow; a poll would come much later.
LATE = timedelta(seconds=10)


@asynccontextmanager
async def idle_worker(world: DriveWorld) -> AsyncIterator[AgentWorker]:
    """Let a worker work that polls for nothing, and go on when it sleeps."""
    options = AgentWorkerOptions(poll_interval=NEVER, supervision_interval=None)
    worker = AgentWorker(world.store, world.executables, tenants=[TENANT], loop=world.loop, options=options)
    shutdown = ShutdownSignal()
    task = asyncio.create_task(worker.run(shutdown))
    try:
        async with asyncio.timeout(20):
            while not worker.is_listening:  # another task listens
                await asyncio.sleep(0.01)
        # What it asks when it begins to listen is answered in this time, or it sleeps a little later.
        await asyncio.sleep(0.2)
        yield worker
    finally:
        shutdown.drain()
        await task


async def now_of(world: DriveWorld) -> datetime:
    """Read the database's clock."""
    (row,) = await world.rows("SELECT clock_timestamp() AS now")
    now: datetime = row.now
    return now


async def is_started_at(world: DriveWorld, gate: datetime, *, count: int = 1) -> None:
    """Hold the last start against the gate: not before it, and not much later."""
    await world.until(STARTED, count=count)
    found = await world.rows(
        "SELECT recorded_at AS at FROM agentruns.run_events WHERE kind = :kind ORDER BY sequence", kind=STARTED
    )
    assert gate <= found[-1].at <= gate + LATE


def test_SCH_10_a_run_that_is_given_back_with_a_delay_is_taken_when_it_is_over(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        held = await world.claimed(await world.submitted())
        async with idle_worker(world):
            gate = await now_of(world) + GATE
            await world.store.release(held.fence, delay=GATE)
            await is_started_at(world, gate)

    in_world(work, GRAPH, lease=LONG)


def test_SCH_10_a_run_that_another_worker_has_deferred_is_taken_at_its_gate(in_world: InWorld) -> None:
    failures = [NodeFailedError.retry_after(GATE)]

    async def a(_context: Any) -> Finish:
        for failure in failures[:1]:
            failures.clear()
            raise failure
        return Finish({})

    async def work(world: DriveWorld) -> None:
        held = await world.claimed(await world.submitted())
        async with idle_worker(world):
            assert (await world.loop.run(held, world.shutdown)).outcome is AgentLoopOutcome.DEFERRED
            (row,) = await world.rows("SELECT retry_not_before AS at FROM agentruns.node_results WHERE attempt = 1")
            await is_started_at(world, row.at, count=2)
        assert await world.attempts() == [("a", 1, 1), ("a", 2, 2)]

    in_world(work, chain(a=a), lease=LONG)


def test_SCH_09_a_run_whose_worker_is_gone_is_taken_when_its_lease_expires(
    database_url: str, owner_url: str, run: Run
) -> None:
    async def work() -> None:
        async with (
            open_world(owner_url, GRAPH, store_url=database_url, lease=LONG) as world,
            open_world(owner_url, GRAPH, store_url=database_url, lease=2 * GATE) as dying,
        ):
            held = await dying.claimed(await dying.submitted())
            async with idle_worker(world):
                await is_started_at(world, held.lease.expires_at.to_datetime())

    run(work())


def test_SCH_09_a_lease_that_nobody_told_of_is_seen_before_it_expires(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        world.store.notifier.is_on = False
        async with idle_worker(world) as worker:
            held = await world.claimed(await world.submitted())
            await is_started_at(world, held.lease.expires_at.to_datetime())
            assert worker.is_listening

    in_world(work, GRAPH, lease=2 * GATE)


def test_a_backlog_behind_a_limit_makes_no_worker_hurry(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        await world.store.set_tenant_limit(TENANT, 1)
        await world.claimed(await world.submitted())
        for _ in range(3):
            await world.submitted()
        async with idle_worker(world):
            with sent_statements(world.store) as texts:
                async with asyncio.timeout(20):
                    count = -1
                    while count != len(texts):
                        count = len(texts)
                        await asyncio.sleep(1)
            assert len(texts) <= 4

    in_world(work, GRAPH, lease=LONG)


def test_a_worker_that_polls_often_does_not_ask_what_opens_next(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        options = AgentWorkerOptions(poll_interval=timedelta(milliseconds=20), listens=False, supervision_interval=None)
        worker = AgentWorker(world.store, world.executables, tenants=[TENANT], loop=world.loop, options=options)
        with sent_statements(world.store) as texts:
            working = asyncio.create_task(worker.run(world.shutdown))
            async with asyncio.timeout(20):
                while len(texts) < 5:  # another task sends
                    await asyncio.sleep(0.01)
            world.shutdown.drain()
            await working
        assert all("weighed AS MATERIALIZED" in text for text in texts)

    in_world(work, GRAPH, lease=LONG)


# --- what the statement says -----------------------------------------------------------------------------------------


@pytest.fixture
def clock(owner_url: str, run: Run) -> MovableClock:
    """The clock of the test's database, which stands still until the test moves it."""
    movable = MovableClock(owner_url)
    run(movable.install())
    return movable


async def opens_in(
    world: DriveWorld, *, since: datetime, tenants: Sequence[TenantId] = (TENANT,), digests: Any = None
) -> timedelta | None:
    known: Sequence[Digest] = world.executables.graph_digests if digests is None else digests
    instant = Timestamp.from_datetime(since)
    return await world.store.run_once(lambda work: work.gates.until_next(tenants, known, since=instant))


def test_what_opens_next_is_the_earliest_end_of_a_gate_or_of_a_lease(in_world: InWorld, clock: MovableClock) -> None:
    async def work(world: DriveWorld) -> None:
        world.store.clock.monotonic = lambda: 0.0
        await clock.advance(timedelta(0))
        start = await clock.now()
        assert await opens_in(world, since=start) is None
        first, second, third = [await world.claimed(await world.submitted()) for _ in range(3)]
        await clock.advance(timedelta(seconds=1))
        now = await clock.now()
        assert await opens_in(world, since=now) == LONG - timedelta(seconds=1)
        await world.store.release(first.fence, delay=timedelta(seconds=20))
        await world.store.release(second.fence, delay=timedelta(seconds=10))
        assert await opens_in(world, since=now) == timedelta(seconds=10)
        # An instant that has passed meanwhile is told of, until a claim has come after it.
        await clock.advance(timedelta(seconds=12))
        assert await opens_in(world, since=now) == timedelta(seconds=-2)
        assert await opens_in(world, since=now + timedelta(seconds=10) - MICROSECOND) == timedelta(seconds=-2)
        assert await opens_in(world, since=now + timedelta(seconds=10)) == timedelta(seconds=8)
        now = await clock.now()
        assert await opens_in(world, since=now + timedelta(seconds=8)) == third.lease.expires_at.to_datetime() - now
        # Of others it is not asked.
        assert await opens_in(world, since=start, tenants=[TenantId("other")]) is None
        assert await opens_in(world, since=start, digests=[]) is None
        assert await opens_in(world, since=now, tenants=[TenantId("other"), TENANT]) == timedelta(seconds=8)

    in_world(work, GRAPH, lease=LONG)


def test_what_does_not_open_by_itself_is_not_waited_for(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        await isolate(world, await world.submitted())
        ended: RunId = await world.submitted()
        await world.driven(ended)
        await world.submitted()
        (row,) = await world.rows("SELECT clock_timestamp() AS now")
        assert await opens_in(world, since=row.now) is None

    in_world(work, GRAPH, lease=LONG)
