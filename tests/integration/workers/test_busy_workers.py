"""Workers whose slots are all taken, that are many, or that are closed under their work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import RunId
from agentruns.errors import AgentRunsError
from agentruns.runtime import idling
from agentruns.runtime.agent_loop import AgentLoopOutcome, AgentLoopResult, DurableAgentLoop
from agentruns.runtime.replay import RunReader
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.store.options import StoreOptions
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import TENANT, DriveWorld, chain, sleep_for_ever
from agentruns.testing.sent_statements import sent_statements
from agentruns.testing.strangers import Stranger

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
#: Longer than any test waits for something: what happens sooner was no poll for further runs.
NEVER = timedelta(minutes=1)
POOL, RUNS = 20, 500
WORKERS = 50
CONFIRMED = "agent-cancellation-confirmed"


def test_D8_a_request_is_seen_by_a_worker_whose_slots_are_all_busy(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        options = AgentWorkerOptions(slots=2, poll_interval=NEVER, listens=False, drain_timeout=timedelta(0))
        worker = AgentWorker(world.store, world.executables, tenants=[TENANT], loop=world.loop, options=options)
        run_ids = [await world.submitted() for _ in range(3)]
        working = asyncio.create_task(worker.run(world.shutdown))
        await world.until("graph-node-attempt-started", count=2)
        await request_cancellation(world, run_ids[0])
        await world.until(CONFIRMED)
        # Nobody has ended for it: the other one goes on.
        assert (await world.kinds()).count("graph-barrier-succeeded") == 0
        (row,) = await world.rows(
            "SELECT status, lease_attempt_id FROM agentruns.runs WHERE run_id = cast(:id AS uuid)", id=run_ids[1].text
        )
        assert (row.status, row.lease_attempt_id is not None) == ("active", True)
        world.shutdown.stop()
        await working

    in_world(work, chain(a=sleep_for_ever), lease=LONG, cancellation_poll_interval=timedelta(milliseconds=50))


def test_E5_whoever_drives_or_waits_ends_when_the_worker_and_its_store_are_closed(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        before = asyncio.all_tasks()
        async with AgentRunStore(world.store_url, StoreOptions(lease_duration=LONG)) as store:
            other = DriveWorld(
                world.url,
                world.bundle,
                store,
                DurableAgentRuns(store, world.executables),
                world.loop,
                world.executables,
            )
            run_ids = await asyncio.gather(*(world.submitted() for _ in range(WORKERS)))
            held = await asyncio.gather(*map(other.claimed, run_ids))
            loop, shutdown = DurableAgentLoop(store, world.executables), ShutdownSignal()
            drives = [asyncio.create_task(loop.run(each, shutdown)) for each in held]
            waits = [
                asyncio.create_task(other.runs.wait(TENANT, run_id, timeout=timedelta(minutes=10)))
                for run_id in run_ids
            ]
            await world.until("graph-node-attempt-started", count=WORKERS)
            shutdown.stop()
            await store.close()
            async with asyncio.timeout(30):
                ended = await asyncio.gather(*drives, *waits, return_exceptions=True)
            for each in ended[:WORKERS]:
                assert isinstance(each, AgentRunsError | AgentLoopResult), each
            for each in ended[WORKERS:]:
                assert isinstance(each, AgentRunsError), each
        left = {task.get_name() for task in asyncio.all_tasks() - before}
        # That of the other store, which is open, tells of what was submitted.
        assert left <= {"agentruns:notifier"}

    in_world(work, chain(a=sleep_for_ever), lease=LONG)


@pytest.mark.slow
def test_N2_five_hundred_runs_at_once_share_a_pool_of_twenty(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        options = StoreOptions(lease_duration=timedelta(minutes=5), pool_size=POOL, notifies=False)
        counts: list[int] = []

        async def look() -> None:
            while True:
                counts.append(await Stranger(world.url).connection_count())
                await asyncio.sleep(0.05)

        own = await Stranger(world.url).connection_count()
        async with AgentRunStore(world.store_url, options) as store:
            runs = DurableAgentRuns(store, world.executables)
            looking = asyncio.create_task(look())
            requests = [world.request() for _ in range(RUNS)]
            with sent_statements(store) as submits:
                await asyncio.gather(*map(runs.admit, requests))
            loop = DurableAgentLoop(store, world.executables)
            other = DriveWorld(world.url, world.bundle, store, runs, loop, world.executables)
            held = await asyncio.gather(*(other.claimed(each.run_id) for each in requests))
            with sent_statements(store) as commits:
                driven = await asyncio.gather(*(loop.run(each, world.shutdown) for each in held))
            looking.cancel()
        assert {each.outcome for each in driven} == {AgentLoopOutcome.SUCCEEDED}
        assert 0 < max(counts) - own <= POOL
        # A start and an end of each run are committed apart, and those of many runs go out together.
        assert 0 < len(submits) < RUNS / 2
        assert 0 < len([each for each in commits if "INSERT INTO agentruns.run_events" in each]) < RUNS

    in_world(work, chain(a=lambda _context: Finish({})))


def test_N3_workers_that_start_together_do_not_poll_together(
    in_world: InWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[timedelta] = []
    until_poll = idling.Idling.until_poll

    async def noted(self: Any) -> timedelta:
        pauses.append(await until_poll(self))
        return pauses[-1]

    monkeypatch.setattr(idling.Idling, "until_poll", noted)

    async def work(world: DriveWorld) -> None:
        options = AgentWorkerOptions(
            poll_interval=NEVER, listens=False, supervision_interval=None, schema_interval=None
        )
        workers = [
            AgentWorker(world.store, world.executables, tenants=[TENANT], loop=world.loop, options=options)
            for _ in range(WORKERS)
        ]
        working = [asyncio.create_task(worker.run(world.shutdown)) for worker in workers]
        async with asyncio.timeout(30):
            while len(pauses) < WORKERS:
                await asyncio.sleep(0.01)
        world.shutdown.drain()
        await asyncio.gather(*working)

    in_world(work, chain(a=lambda _context: Finish({})))
    shares = sorted(pause / NEVER for pause in pauses[:WORKERS])
    assert 0.5 <= shares[0] < shares[-1] <= 1
    assert len(set(shares)) == WORKERS
    # There are some in nearly every tenth of the pauses: whatever the machine does, these are draws.
    assert len({int(share * 20) for share in shares}) >= 7


def test_S2_what_one_run_commits_keeps_its_order_among_many_that_wait(in_world: InWorld) -> None:
    entered, asked, first = asyncio.Event(), asyncio.Event(), list[RunId]()

    async def a(context: Any) -> None:
        if context.run_id == first[0]:
            entered.set()
            await asked.wait()

    async def work(world: DriveWorld) -> None:
        options = StoreOptions(lease_duration=LONG, pool_size=1, lane_connections=1)
        async with AgentRunStore(world.store_url, options) as store:
            runs = DurableAgentRuns(store, world.executables)
            loop = DurableAgentLoop(store, world.executables)
            other = DriveWorld(world.url, world.bundle, store, runs, loop, world.executables)
            run_ids = await asyncio.gather(*(world.submitted() for _ in range(31)))
            held = await asyncio.gather(*map(other.claimed, run_ids))
            first.append(run_ids[0])

            async def ask() -> None:
                await entered.wait()
                for seconds in range(1, 6):
                    desired = held[0].lease.expires_at.plus(timedelta(seconds=seconds))
                    assert (await store.renew(held[0].fence, desired=desired)).lease.expires_at >= desired
                await request_cancellation(other, run_ids[0])
                asked.set()

            *ended, _ = await asyncio.gather(*(loop.run(each, world.shutdown) for each in held), ask())
        outcomes = [each.outcome for each in ended if each is not None]
        assert outcomes == [AgentLoopOutcome.CANCELLATION_CONFIRMED, *[AgentLoopOutcome.SUCCEEDED] * 30]
        reader = RunReader(world.store, world.executables)
        # To read is to verify the chain.
        statuses = [(await reader.read(TENANT, run_id)).state.status.value for run_id in run_ids]
        assert statuses == ["cancelled", *["succeeded"] * 30]
        kinds = await world.rows(
            "SELECT kind FROM agentruns.run_events WHERE run_id = cast(:id AS uuid) ORDER BY sequence", id=first[0].text
        )
        assert [row.kind for row in kinds] == [
            "agent-admitted",
            "graph-node-attempt-started",
            "agent-cancellation-requested",
            CONFIRMED,
        ]

    nodes = {name: (lambda _context: None) for name in "bcd"}
    in_world(work, chain(a=a, **nodes, z=lambda _context: Finish({})), lease=LONG)
