"""The metrics of wake-ups, of who listens, and of what waits for workers: exact points."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import make_url

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import RunId
from agentruns.runtime import backlog_watch
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.telemetry.state import STATE
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.store.discovery import Backlog, Discovery
from agentruns.testing.drives import TENANT, DriveWorld, builder, chain, executables_of, sleep_for_ever
from agentruns.testing.isolating import isolate

InWorld = Callable[..., None]
PointsOf = Callable[..., Mapping[Any, float]]

LONG = timedelta(minutes=1)
GRAPH = chain(a=lambda _context: Finish({}))
GAUGES = ("due", "oldest_due", "without_worker", "quarantined_now")


@asynccontextmanager
async def working(world: DriveWorld, **options: Any) -> AsyncIterator[AgentWorker]:
    given = {"supervision_interval": None, "drain_timeout": timedelta(0), **options}
    worker = AgentWorker(
        world.store, world.executables, tenants=[TENANT], loop=world.loop, options=AgentWorkerOptions(**given)
    )
    shutdown = ShutdownSignal()
    task = asyncio.create_task(worker.run(shutdown))
    try:
        yield worker
    finally:
        shutdown.drain()
        await task


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # another task changes it
            await asyncio.sleep(0.01)


def test_what_is_told_is_sent_or_shares_a_notification_and_is_received_by_who_listens(
    in_world: InWorld, points_of: PointsOf
) -> None:
    async def work(world: DriveWorld) -> None:
        async with working(world) as worker:
            await until(lambda: worker.is_listening)
            for _ in range(3):
                world.store.notify(TENANT)
            for run_id in (RunId.generate(), RunId.generate()):
                world.store.tell_of_end(run_id)
            # The workers' channel has one listener, and that of ends has none.
            expected = {("sent",): 2, ("coalesced",): 3, ("received",): 1}
            await until(lambda: points_of("agentruns.wakeups", "outcome") == expected)

    in_world(work, GRAPH, lease=LONG)


def test_a_listener_that_hears_nothing_is_a_degraded_one(
    database_url: str, in_world: InWorld, points_of: PointsOf
) -> None:
    async def work(world: DriveWorld) -> None:
        nobody = make_url(database_url).set(host="127.0.0.1", port=9, query={})
        async with working(world) as hearing:
            await until(lambda: hearing.is_listening)
            assert points_of("agentruns.listen.degraded") == {(): 0}
            async with working(world, listen_url=nobody) as deaf:
                await until(lambda: deaf.health.reason == "listener_down")
                assert points_of("agentruns.listen.degraded") == {(): 1}
        assert points_of("agentruns.listen.degraded") == {(): 0}

    in_world(work, GRAPH, lease=LONG)


async def waiting_runs(world: DriveWorld) -> list[RunId]:
    """Leave three runs that are due, the first since an hour, and one each that is held, gated and isolated."""
    due = [await world.submitted() for _ in range(3)]
    await world.claimed(await world.submitted())
    gated = await world.claimed(await world.submitted())
    await world.store.release(gated.fence, delay=LONG)
    await isolate(world, await world.submitted())
    await world.rows(
        "UPDATE agentruns.runs SET scheduler_ready_at = scheduler_ready_at - interval '1 h'"
        " WHERE run_id = cast(:run_id AS uuid)",
        run_id=due[0].text,
    )
    return due


@pytest.mark.parametrize("tenants", [None, [TENANT]])
def test_the_backlog_is_what_could_be_claimed_and_what_is_isolated(in_world: InWorld, tenants: Any) -> None:
    other = builder()
    other.node(name="other", entry=True, terminal=True)(lambda _context: Finish({}))

    async def backlog_of(world: DriveWorld, executables: Any) -> Backlog:
        digests = executables.graph_digests
        found = await world.store.run_once(lambda work: work.discovery.backlog(tenants, digests))
        assert timedelta(hours=1) <= found.oldest_due < timedelta(hours=1, minutes=5)
        return found

    async def work(world: DriveWorld) -> None:
        nothing = await world.store.run_once(
            lambda work: work.discovery.backlog(tenants, world.executables.graph_digests)
        )
        assert nothing == Backlog(due=0, oldest_due=timedelta(0), without_worker=0, quarantined=0)
        await waiting_runs(world)
        for executables, without_worker in ((world.executables, 0), (executables_of(other.build()), 3)):
            found = await backlog_of(world, executables)
            assert (found.due, found.without_worker, found.quarantined) == (3, without_worker, 1)

    in_world(work, GRAPH, lease=LONG)


def test_a_worker_tells_of_the_backlog_now_and_then(
    in_world: InWorld, telemetry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog_watch, "_PAUSE", 0.05)
    levels: dict[str, float] = {}

    def has_told_of(due: int) -> bool:
        """Collect all levels at once: each is told of once for each look."""
        points = telemetry.points()
        levels.update({name: value for name in GAUGES for value in points.get(f"agentruns.runs.{name}", {}).values()})
        return levels.get("due") == due

    async def work(world: DriveWorld) -> None:
        await waiting_runs(world)
        async with working(world, slots=1):
            await world.until("graph-node-attempt-started")
            # The oldest one is driven, so two are left; each look sets the levels anew.
            await until(lambda: has_told_of(2))
        assert 0 < levels.pop("oldest_due") < 300
        assert levels == {"due": 2, "without_worker": 0, "quarantined_now": 1}

    in_world(work, chain(a=sleep_for_ever), lease=LONG)


def test_where_nobody_records_nothing_is_asked(in_world: InWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(backlog_watch, "_PAUSE", 0.01)
    monkeypatch.setattr(Discovery, "backlog", lambda *given: asked.append(given))
    assert STATE.recording is None

    async def work(world: DriveWorld) -> None:
        async with working(world) as worker:
            await until(lambda: worker.is_listening)
            await asyncio.sleep(0.2)
        assert asked == []

    in_world(work, GRAPH, lease=LONG)
