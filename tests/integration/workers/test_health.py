"""A worker whose slots are full claims nothing: it asks the database, so that its health never grows old."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.operations.embedded import EmbeddedServer
from agentruns.runtime import health_watch, worker_health
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_events import HealthChanged, WorkerEvent
from agentruns.runtime.worker_health import WorkerHealth, WorkerStatus
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.testing.drives import TENANT, DriveWorld, chain, open_world
from agentruns.testing.faults import WireProxy
from agentruns.testing.own_server import own_server

Behind = Callable[..., None]

READY = WorkerHealth(status=WorkerStatus.READY)
UNAVAILABLE = WorkerHealth(status=WorkerStatus.UNAVAILABLE, reason="store_unavailable")
#: A machine may stand still for a part of it, and a worker stays ready.
FRESH = 4.0
MAJOR = int(os.environ.get("AGENTRUNS_TEST_MAJOR", "18"))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let seconds pass for what takes tens of them."""
    monkeypatch.setattr(worker_health, "FRESH", FRESH)
    monkeypatch.setattr(health_watch, "QUIET", 0.2)
    monkeypatch.setattr(health_watch, "LOOK", 0.05)
    monkeypatch.setattr(health_watch, "AGAIN", 0.2)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(40):
        while not condition():
            await asyncio.sleep(0.01)


#: What the client ends each request of the extended protocol with, whatever it asks.
SYNC = b"S\0\0\0\4"


def busy(entered: asyncio.Event, go_on: asyncio.Event) -> GraphBundle:
    async def a(_context: Any) -> Finish:
        entered.set()
        await go_on.wait()
        return Finish({})

    return chain(a=a)


@pytest.mark.usefixtures("impatient")
def test_a_worker_whose_slots_are_full_stays_ready_and_learns_of_an_outage(
    behind_a_wire: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()
    told: list[WorkerEvent] = []

    async def work(world: DriveWorld, proxy: WireProxy) -> None:
        options = AgentWorkerOptions(slots=1, supervision_interval=None, schema_interval=None, listens=False)
        worker = AgentWorker(
            world.store, world.executables, tenants=[TENANT], loop=world.loop, options=options, on_event=told.append
        )
        questions = counted(world, monkeypatch)
        run_id = await world.submitted()
        task = asyncio.create_task(worker.run(world.shutdown))
        await entered.wait()
        # The claim is long ago, and every question since has been answered.
        await until(lambda: len(questions) >= 10)
        assert worker.health == READY
        proxy.take_down()
        await until(lambda: worker.health == UNAVAILABLE)
        await until(lambda: HealthChanged(health=UNAVAILABLE) in told)
        proxy.bring_up()
        await until(lambda: worker.health == READY)
        go_on.set()
        snapshot = await world.runs.wait(TENANT, run_id, timeout=timedelta(seconds=20))
        assert snapshot.status.value == "succeeded"
        await until(lambda: told.count(HealthChanged(health=READY)) == 2)
        world.shutdown.drain()
        await task
        assert [event.health for event in told if isinstance(event, HealthChanged)] == [READY, UNAVAILABLE, READY]

    long_poll = {"cancellation_poll_interval": timedelta(minutes=1)}
    behind_a_wire(work, busy(entered, go_on), lease=timedelta(minutes=5), **long_poll)


def counted(world: DriveWorld, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Note when the database has answered a question that was no claim."""
    answered, ask = list[float](), world.store.ask_time

    async def noted() -> None:
        await ask()
        answered.append(asyncio.get_running_loop().time())

    monkeypatch.setattr(world.store, "ask_time", noted)
    return answered


@pytest.mark.usefixtures("impatient")
def test_an_idle_worker_whose_claims_tell_asks_nothing_else(
    behind_a_wire: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(world: DriveWorld, _proxy: WireProxy) -> None:
        questions = counted(world, monkeypatch)
        # If the claims did not tell, it would be asked after this time.
        monkeypatch.setattr(health_watch, "QUIET", 3.0)
        options = AgentWorkerOptions(poll_interval=timedelta(milliseconds=20), listens=False)
        worker = AgentWorker(world.store, world.executables, tenants=[TENANT], loop=world.loop, options=options)
        task = asyncio.create_task(worker.run(world.shutdown))
        await until(lambda: worker.health == READY)
        await asyncio.sleep(3.5)
        world.shutdown.drain()
        await task
        assert questions == []

    behind_a_wire(work, chain(a=lambda _context: Finish({})))


@pytest.mark.usefixtures("impatient")
def test_a_question_that_hangs_does_not_hold_up_the_drain(behind_a_wire: Behind) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def work(world: DriveWorld, proxy: WireProxy) -> None:
        options = AgentWorkerOptions(slots=1, supervision_interval=None, schema_interval=None, listens=False)
        worker = AgentWorker(world.store, world.executables, tenants=[TENANT], loop=world.loop, options=options)
        await world.submitted()
        task = asyncio.create_task(worker.run(world.shutdown))
        await entered.wait()
        held = proxy.hold(SYNC)
        async with asyncio.timeout(20):
            await held.arrived.wait()
        go_on.set()
        world.shutdown.drain()
        async with asyncio.timeout(20):
            await task
        assert worker.health == WorkerHealth(status=WorkerStatus.STOPPED)

    behind_a_wire(work, busy(entered, go_on), lease=timedelta(minutes=5))


def test_the_real_durations() -> None:
    assert (worker_health.FRESH, health_watch.QUIET) == (20.0, 10.0)
    # A question that hangs, and one more, fit between the two.
    assert health_watch.QUIET + health_watch.PATIENCE + health_watch.AGAIN < worker_health.FRESH


@pytest.fixture
def stoppable() -> Iterator[EmbeddedServer]:
    with own_server(major=MAJOR) as server:
        yield server


def test_a_server_that_is_stopped_and_started_again(stoppable: EmbeddedServer, run: Callable[[Any], Any]) -> None:
    told: list[WorkerEvent] = []

    async def work() -> None:
        graph = chain(a=lambda _context: Finish({}))
        async with open_world(stoppable.url.render_as_string(hide_password=False), graph) as world:
            options = AgentWorkerOptions(poll_interval=timedelta(milliseconds=20), listens=False)
            worker = AgentWorker(
                world.store, world.executables, tenants=[TENANT], loop=world.loop, options=options, on_event=told.append
            )
            task = asyncio.create_task(worker.run(world.shutdown))
            await until(lambda: HealthChanged(health=READY) in told)
            await asyncio.to_thread(stoppable.stop)
            await until(lambda: HealthChanged(health=UNAVAILABLE) in told)
            await asyncio.to_thread(stoppable.start)
            await until(lambda: told.count(HealthChanged(health=READY)) == 2)
            snapshot = await world.runs.wait(TENANT, await world.submitted(), timeout=timedelta(seconds=20))
            assert snapshot.status.value == "succeeded"
            world.shutdown.drain()
            await task

    run(work())
    health = [event.health for event in told if isinstance(event, HealthChanged)]
    assert health == [READY, UNAVAILABLE, READY]
