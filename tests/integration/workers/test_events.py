"""What a worker tells of its work, and that whoever listens cannot disturb it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
from attrs import define, evolve, field

from agentruns import NodeWait
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import RunId
from agentruns.domain.numbers import FencingEpoch
from agentruns.errors import InvalidOptionError, InvariantError, StoreUnavailableError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_events import (
    DriveEnded,
    HealthChanged,
    OnWorkerEvent,
    RunClaimed,
    RunsSupervised,
    WorkerDraining,
    WorkerEvent,
    WorkerStarted,
    WorkerStopped,
)
from agentruns.runtime.worker_health import WorkerHealth, WorkerStatus
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.testing.drives import TENANT, DriveWorld, builder, chain

InWorld = Callable[..., None]

STARTED = WorkerStarted(tenants=(TENANT,), graph_count=1, slots=4)
READY = HealthChanged(health=WorkerHealth(status=WorkerStatus.READY))
LONG = timedelta(minutes=1)


@define
class Listener:
    """Keep what a worker tells."""

    events: list[WorkerEvent] = field(factory=list)

    def __call__(self, event: WorkerEvent) -> None:
        # How long a drive takes is for no test to say.
        self.events.append(evolve(event, duration=timedelta(0)) if isinstance(event, DriveEnded) else event)

    async def until(self, event: WorkerEvent) -> None:
        async with asyncio.timeout(30):
            while event not in self.events:
                await asyncio.sleep(0.01)


def worker_of(world: DriveWorld, on_event: OnWorkerEvent | None, **options: Any) -> AgentWorker:
    made = AgentWorkerOptions(poll_interval=timedelta(milliseconds=20), **options)
    return AgentWorker(
        world.store, world.executables, tenants=[TENANT], loop=world.loop, options=made, on_event=on_event
    )


@asynccontextmanager
async def working(world: DriveWorld, on_event: OnWorkerEvent, **options: Any) -> AsyncIterator[AgentWorker]:
    """Let a worker work inside the block, and drain it in the end."""
    worker = worker_of(world, on_event, **options)
    task = asyncio.create_task(worker.run(world.shutdown))
    yield worker
    world.shutdown.drain()
    await task


def claimed(run_id: RunId, epoch: int = 1) -> RunClaimed:
    return RunClaimed(tenant_id=TENANT, run_id=run_id, epoch=FencingEpoch(epoch))


def ended(run_id: RunId, outcome: AgentLoopOutcome | None, epoch: int = 1, **error: str) -> DriveEnded:
    return DriveEnded(
        tenant_id=TENANT,
        run_id=run_id,
        epoch=FencingEpoch(epoch),
        outcome=outcome,
        duration=timedelta(0),
        **error,
    )


def test_a_life_from_the_start_to_the_end(in_world: InWorld) -> None:
    listener = Listener()

    async def work(world: DriveWorld) -> None:
        async with working(world, listener):
            await listener.until(READY)
            run_id = await world.submitted()
            await listener.until(ended(run_id, AgentLoopOutcome.SUCCEEDED))
        assert listener.events == [
            STARTED,
            READY,
            claimed(run_id),
            ended(run_id, AgentLoopOutcome.SUCCEEDED),
            WorkerDraining(running=0),
            WorkerStopped(),
        ]

    in_world(work, chain(a=lambda _context: Finish({})))


def test_a_run_that_a_drain_ends_is_told_before_the_end(in_world: InWorld) -> None:
    entered, go_on, listener = asyncio.Event(), asyncio.Event(), Listener()

    async def a(_context: Any) -> Finish:
        entered.set()
        await go_on.wait()
        return Finish({})

    async def work(world: DriveWorld) -> None:
        async with working(world, listener):
            run_id = await world.submitted()
            await entered.wait()
            world.shutdown.drain()
            await listener.until(WorkerDraining(running=1))
            go_on.set()
        assert listener.events[-3:] == [
            WorkerDraining(running=1),
            ended(run_id, AgentLoopOutcome.SUCCEEDED),
            WorkerStopped(),
        ]

    in_world(work, chain(a=a))


def test_a_run_that_is_given_back_in_a_shutdown(in_world: InWorld) -> None:
    entered, listener = asyncio.Event(), Listener()

    async def a(_context: Any) -> Finish:
        entered.set()
        await asyncio.Event().wait()
        return Finish({})

    async def work(world: DriveWorld) -> None:
        async with working(world, listener):
            run_id = await world.submitted()
            await entered.wait()
            world.shutdown.stop()
        assert ended(run_id, AgentLoopOutcome.CANCELLED) in listener.events
        assert listener.events[-1] == WorkerStopped()

    in_world(work, chain(a=a), task_abort_wait=timedelta(milliseconds=50))


def test_a_worker_that_is_cancelled_tells_of_every_drive_that_it_drops(in_world: InWorld) -> None:
    entered, listener = asyncio.Event(), Listener()

    async def a(_context: Any) -> Finish:
        entered.set()
        await asyncio.Event().wait()
        return Finish({})

    async def work(world: DriveWorld) -> None:
        worker = worker_of(world, listener)
        task = asyncio.create_task(worker.run(world.shutdown))
        run_id = await world.submitted()
        await entered.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert worker.health == WorkerHealth(status=WorkerStatus.STOPPED)
        assert listener.events[-2:] == [
            ended(run_id, None, error="CancelledError"),
            WorkerStopped(error="CancelledError"),
        ]

    in_world(work, chain(a=a), task_abort_wait=timedelta(milliseconds=50))


def test_a_run_that_cannot_be_driven_is_told_by_class_and_reason(in_world: InWorld) -> None:
    listener = Listener()

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await world.rows('UPDATE agentruns.run_checkpoints SET state = \'{"planted":"secret"}\'::bytea')
        async with working(world, listener):
            await listener.until(ended(run_id, None, error="RunQuarantinedError", reason="quarantined"))
        assert "planted" not in repr(listener.events)

    in_world(work, chain(a=lambda _context: Finish({})))


def test_a_lease_that_is_lost_is_told_with_its_reason(in_world: InWorld) -> None:
    entered, listener = asyncio.Event(), Listener()

    async def a(_context: Any) -> Finish:
        entered.set()
        await asyncio.Event().wait()
        return Finish({})

    async def work(world: DriveWorld) -> None:
        async with working(world, listener, slots=1, drain_timeout=timedelta(0)):
            run_id = await world.submitted()
            await entered.wait()
            await world.expire_leases()
            await listener.until(ended(run_id, None, error="LeaseLostError", reason="expired"))

    in_world(work, chain(a=a), task_abort_wait=timedelta(milliseconds=50))


def test_what_supervision_settles_is_told_and_an_empty_round_is_not(in_world: InWorld) -> None:
    graph, listener = builder(), Listener()

    @graph.node(entry=True, wait_to="b")
    def a(_context: Any) -> Suspend:
        return Suspend(NodeWait.timer(due_in=timedelta(seconds=1.5)))

    @graph.node(terminal=True)
    def b(_context: Any) -> Finish:
        return Finish({})

    async def work(world: DriveWorld) -> None:
        async with working(world, listener, supervision_interval=timedelta(milliseconds=100)):
            run_id = await world.submitted()
            await listener.until(ended(run_id, AgentLoopOutcome.SUCCEEDED, epoch=2))
        supervised = [event for event in listener.events if isinstance(event, RunsSupervised)]
        fired = RunsSupervised(
            tenant_id=TENANT, cancellations_requested=0, runs_failed=0, timers_fired=1, error_count=0
        )
        assert supervised == [fired]
        assert ended(run_id, AgentLoopOutcome.WAITING) in listener.events

    in_world(work, graph.build())


@pytest.mark.parametrize("failure", [RuntimeError("planted"), asyncio.CancelledError("planted")])
def test_an_observer_that_raises_touches_no_run_and_is_told_of_once(
    in_world: InWorld, caplog: pytest.LogCaptureFixture, failure: BaseException
) -> None:
    def raises(_event: WorkerEvent) -> None:
        raise failure

    async def work(world: DriveWorld) -> None:
        async with working(world, raises):
            runs = [await world.submitted() for _ in range(3)]
            for run_id in runs:
                snapshot = await world.runs.wait(TENANT, run_id, timeout=timedelta(seconds=20))
                assert snapshot.status.value == "succeeded"
        assert [(node, attempt) for node, attempt, _ in await world.attempts()] == [("a", 1)] * 3

    with caplog.at_level(logging.WARNING, "agentruns"):
        in_world(work, chain(a=lambda _context: Finish({})))
    assert [(record.message, record.__dict__["error"]) for record in caplog.records] == [
        ("the observer of a worker fails", type(failure).__name__)
    ]
    assert "planted" not in caplog.text


async def later(_event: WorkerEvent) -> None:
    """Nobody would wait for it."""


@pytest.mark.parametrize("wrong", [later, "no function", 5])
def test_an_observer_that_is_no_plain_function_is_refused(in_world: InWorld, wrong: Any) -> None:
    async def work(world: DriveWorld) -> None:
        with pytest.raises(InvalidOptionError) as refused:
            worker_of(world, wrong)
        assert (refused.value.option, refused.value.value) == ("on_event", type(wrong).__name__)

    in_world(work, chain(a=lambda _context: Finish({})))


def test_claims_that_fail_make_it_unavailable_until_one_is_answered(
    in_world: InWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = Listener()

    async def work(world: DriveWorld) -> None:
        async def refused(*_arguments: Any, **_options: Any) -> Any:
            raise StoreUnavailableError(attempts=1, sqlstate="25006")

        monkeypatch.setattr(world.store, "claim_ready", refused)
        worker = worker_of(world, listener)
        task = asyncio.create_task(worker.run(world.shutdown))
        unavailable = WorkerHealth(status=WorkerStatus.UNAVAILABLE, reason="store_unavailable")
        await listener.until(HealthChanged(health=unavailable))
        # That it answers other questions says nothing of claims.
        await world.store.ask_time()
        assert worker.health == unavailable
        monkeypatch.undo()
        await listener.until(READY)
        world.shutdown.drain()
        await task
        assert listener.events[-1] == WorkerStopped()

    in_world(work, chain(a=lambda _context: Finish({})))


def test_an_error_that_ends_the_worker_is_told_by_its_class(in_world: InWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener()

    async def work(world: DriveWorld) -> None:
        async def refused(*_arguments: Any, **_options: Any) -> Any:
            raise InvariantError(reason="planted")

        monkeypatch.setattr(world.store, "claim_ready", refused)
        with pytest.raises(InvariantError):
            await worker_of(world, listener).run(world.shutdown)
        assert listener.events == [STARTED, WorkerStopped(error="InvariantError")]

    in_world(work, chain(a=lambda _context: Finish({})))


def test_what_is_driven_can_be_looked_at(in_world: InWorld) -> None:
    entered = asyncio.Event()

    async def wait_here(_context: Any) -> Finish:
        entered.set()
        await asyncio.Event().wait()
        return Finish({})

    async def work(world: DriveWorld) -> None:
        worker = worker_of(world, None)
        assert list(worker.drives) == []
        task = asyncio.create_task(worker.run(world.shutdown))
        run_id = await world.submitted()
        await entered.wait()
        (driven,) = worker.drives
        assert (driven.tenant_id, driven.run_id, driven.epoch.value) == (TENANT, run_id, 1)
        assert driven.graph is not None
        assert (driven.graph.name.text, driven.graph.version.text) == ("sample-graph", "1.0.0")
        assert [node.text for node in driven.nodes] == ["wait_here"]
        (row,) = await world.rows("SELECT lease_acquired_at FROM agentruns.runs")
        assert str(driven.claimed_at) == row.lease_acquired_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        assert timedelta(0) < driven.age < timedelta(seconds=20)
        world.shutdown.stop()
        await task
        assert list(worker.drives) == []

    in_world(work, chain(wait_here=wait_here), lease=LONG, task_abort_wait=timedelta(milliseconds=50))
