"""Time decides: timers fire, interrupts expire, deadlines come; each once, whoever looks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.ledger.records import WaitSettlement
from agentruns.domain.outcome import CancelledOutcome, FailedOutcome
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.waits import MAXIMUM_WAITS, NodeWait
from agentruns.errors import CorruptDataError, RunNotRunnableError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.supervisor import PAGE, DurableRunSupervisor, SupervisionTick
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import TENANT, DriveWorld
from agentruns.testing.movable_clock import MovableClock

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
HOUR = timedelta(hours=1)
MICROSECOND = timedelta(microseconds=1)
ADMITTED, STARTED, SUCCEEDED = "agent-admitted", "graph-node-attempt-started", "graph-node-attempt-succeeded"
WAITED, FIRED, FAILED = "graph-barrier-waiting", "graph-timer-fired", "graph-run-failed"
OVERDUE = "agent-deadline-cancellation-requested"


def settled(tick: SupervisionTick) -> tuple[int, int, int, int]:
    """Count what a tick did: cancellations, failures, timers and errors."""
    return tick.cancellations_requested, tick.runs_failed, tick.timers_fired, len(tick.errors)


def supervisor_of(world: DriveWorld) -> DurableRunSupervisor:
    return DurableRunSupervisor(world.store, world.executables)


def test_LIF_09_a_timer_fires_at_its_instant_and_not_a_microsecond_before(
    in_world: InWorld, sleeper: Any, clock: MovableClock
) -> None:
    sleeping = sleeper(lambda: (NodeWait.timer(due_in=HOUR), NodeWait.timer(due_in=2 * HOUR)))

    async def work(world: DriveWorld) -> None:
        sleeping.stands_still(world)
        await clock.advance(timedelta(0))
        run_id, supervisor = await sleeping.asleep(world), supervisor_of(world)
        first, second = await sleeping.service(world).outstanding(TENANT, run_id)
        for due, status in ((first, RunStatus.WAITING), (second, RunStatus.ACTIVE)):
            await clock.set(due.due_at.to_datetime() - MICROSECOND)
            assert settled(await supervisor.tick(TENANT)) == (0, 0, 0, 0)
            await clock.set(due.due_at.to_datetime())
            assert settled(await supervisor.tick(TENANT)) == (0, 0, 1, 0)
            assert (await world.loaded(run_id)).status is status
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
        (read,) = sleeping.read
        assert [each.how for each in read] == [WaitSettlement.FIRED] * 2

    in_world(work, sleeping.graph(), lease=LONG)


def test_LIF_13_a_timer_that_is_due_already_fires_right_after_the_wait(in_world: InWorld, sleeper: Any) -> None:
    past = Timestamp.from_datetime(Timestamp.STORED_MIN.to_datetime())
    sleeping = sleeper(lambda: (NodeWait.timer(due_at=past), NodeWait.timer(due_in=timedelta(0))))

    async def work(world: DriveWorld) -> None:
        run_id = await sleeping.asleep(world)
        assert (await world.kinds()) == [ADMITTED, STARTED, SUCCEEDED, WAITED, FIRED, FIRED]
        assert (await world.loaded(run_id)).status is RunStatus.ACTIVE

    in_world(work, sleeping.graph(), lease=LONG)


def test_LIF_14_an_expired_interrupt_fails_the_run_exactly_once(
    in_world: InWorld, sleeper: Any, payload: Any, clock: MovableClock
) -> None:
    sleeping = sleeper(
        lambda: (
            NodeWait.interrupt("approval", request=payload("may I?"), expires_in=HOUR),
            NodeWait.timer(due_in=2 * HOUR),
        )
    )

    async def work(world: DriveWorld) -> None:
        sleeping.stands_still(world)
        await clock.advance(timedelta(0))
        run_id = await sleeping.asleep(world)
        interrupt, _ = await sleeping.service(world).outstanding(TENANT, run_id)
        await clock.set(interrupt.expires_at.to_datetime() - MICROSECOND)
        assert settled(await supervisor_of(world).tick(TENANT)) == (0, 0, 0, 0)
        await clock.set(interrupt.expires_at.to_datetime())
        ticks = await asyncio.gather(*(supervisor_of(world).tick(TENANT) for _ in range(8)))
        assert [sum(counts) for counts in zip(*map(settled, ticks), strict=True)] == [0, 1, 0, 0]
        assert (await world.kinds())[-1] == FAILED
        snapshot = await world.loaded(run_id)
        assert isinstance(snapshot.outcome, FailedOutcome)
        failure = snapshot.outcome.failure
        assert (str(failure.code), failure.category.value) == ("agent.interrupt.expired", "deadline_exceeded")
        assert [row.status for row in await world.rows("SELECT status FROM agentruns.run_waits")] == ["abandoned"] * 2
        (row,) = await world.rows("SELECT scheduler_ready_at, lease_attempt_id FROM agentruns.runs")
        assert tuple(row) == (None, None)

    in_world(work, sleeping.graph(), lease=LONG)


def test_LIF_15_a_deadline_asks_once_and_never_replaces_an_earlier_reason(
    in_world: InWorld, sleeper: Any, payload: Any, clock: MovableClock
) -> None:
    sleeping = sleeper(lambda: (NodeWait.interrupt("approval", request=payload("may I?")),))

    async def work(world: DriveWorld) -> None:
        sleeping.stands_still(world)
        await clock.advance(timedelta(0))
        now = Timestamp.from_datetime(await clock.now())
        deadline = now.plus(HOUR)
        limits = BudgetLimits(deadline=deadline)
        fresh, asked = await world.submitted(limits=limits), await world.submitted(limits=limits)
        waiting = await world.submitted(limits=limits)
        await world.driven(waiting)
        await request_cancellation(world, asked)
        await clock.set(deadline.to_datetime() - MICROSECOND)
        assert settled(await supervisor_of(world).tick(TENANT)) == (0, 0, 0, 0)
        await clock.set(deadline.to_datetime())
        ticks = await asyncio.gather(*(supervisor_of(world).tick(TENANT) for _ in range(8)))
        assert [sum(counts) for counts in zip(*map(settled, ticks), strict=True)] == [2, 0, 0, 0]
        assert (await world.kinds()).count(OVERDUE) == 2
        for run_id in (fresh, waiting):
            assert (await world.driven(run_id)).outcome is AgentLoopOutcome.CANCELLATION_CONFIRMED
            outcome = (await world.loaded(run_id)).outcome
            assert isinstance(outcome, CancelledOutcome)
            assert str(outcome.failure.code) == "agent.deadline.expired"
        await world.driven(asked)
        outcome = (await world.loaded(asked)).outcome
        assert isinstance(outcome, CancelledOutcome)
        assert str(outcome.failure.code) == "sample.cancelled"
        with pytest.raises(RunNotRunnableError):
            await world.claimed(fresh)

    in_world(work, sleeping.graph(), lease=LONG)


def test_of_one_run_the_deadline_goes_before_the_interrupt_and_that_before_the_timer(
    in_world: InWorld, sleeper: Any, payload: Any, clock: MovableClock
) -> None:
    sleeping = sleeper(
        lambda: (
            NodeWait.timer(due_in=HOUR),
            NodeWait.interrupt("approval", request=payload("may I?"), expires_in=HOUR),
        )
    )

    async def work(world: DriveWorld) -> None:
        sleeping.stands_still(world)
        await clock.advance(timedelta(0))
        deadline = Timestamp.from_datetime(await clock.now()).plus(HOUR)
        overdue = await world.submitted(limits=BudgetLimits(deadline=deadline))
        await world.driven(overdue)
        expired = await sleeping.asleep(world)
        await clock.advance(3 * HOUR)
        assert settled(await supervisor_of(world).tick(TENANT)) == (1, 1, 0, 0)
        assert (await world.loaded(overdue)).status is RunStatus.CANCELLATION_REQUESTED
        assert (await world.loaded(expired)).status is RunStatus.FAILED
        assert FIRED not in await world.kinds()

    in_world(work, sleeping.graph(), lease=LONG)


def test_more_than_a_page_is_settled_tick_by_tick_and_one_bad_run_stops_nothing(
    in_world: InWorld, sleeper: Any, clock: MovableClock
) -> None:
    sleeping = sleeper(lambda: (NodeWait.timer(due_in=HOUR),))

    async def work(world: DriveWorld) -> None:
        sleeping.stands_still(world)
        await clock.advance(timedelta(0))
        run_ids = [await sleeping.asleep(world) for _ in range(PAGE + 4)]
        bad = run_ids[0]
        await world.rows("UPDATE agentruns.runs SET revision = revision + 1 WHERE run_id = :run_id", run_id=bad.text)
        await clock.advance(2 * HOUR)
        supervisor = supervisor_of(world)
        first = await supervisor.tick(TENANT)
        assert settled(first) == (0, 0, PAGE - 1, 1)
        assert [(each.run_id, type(each.error)) for each in first.errors] == [(bad, CorruptDataError)]
        second = await supervisor.tick(TENANT, first.cursor)
        assert settled(second) == (0, 0, 4, 0)
        # From the beginning again: only what could not be settled is left.
        third = await supervisor.tick(TENANT, second.cursor)
        assert settled(third) == (0, 0, 0, 1)

    in_world(work, sleeping.graph(), lease=LONG)


def test_one_run_with_many_timers_delays_no_other_runs_timer(
    in_world: InWorld, clock: MovableClock, sleeper: Any
) -> None:
    many = [tuple(NodeWait.timer(due_in=HOUR) for _ in range(MAXIMUM_WAITS)) for _ in range(3)]
    asks = iter([*many, (NodeWait.timer(due_in=2 * HOUR),)])
    sleeping = sleeper(lambda: next(asks))

    async def work(world: DriveWorld) -> None:
        sleeping.stands_still(world)
        await clock.advance(timedelta(0))
        run_ids = [await sleeping.asleep(world) for _ in range(len(many) + 1)]
        await clock.advance(3 * HOUR)
        tick = await supervisor_of(world).tick(TENANT)
        assert settled(tick) == (0, 0, len(many) * MAXIMUM_WAITS + 1, 0)
        for run_id in run_ids:
            assert (await world.loaded(run_id)).status is RunStatus.ACTIVE
            assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED

    in_world(work, sleeping.graph(), lease=LONG)


def test_LIF_08_supervisors_that_overtake_one_another_fire_each_timer_once(
    in_world: InWorld, sleeper: Any, clock: MovableClock
) -> None:
    sleeping = sleeper(lambda: tuple(NodeWait.timer(due_in=HOUR) for _ in range(PAGE)))

    async def work(world: DriveWorld) -> None:
        sleeping.stands_still(world)
        await clock.advance(timedelta(0))
        run_id = await sleeping.asleep(world)
        await clock.advance(2 * HOUR)
        ticks = await asyncio.gather(*(supervisor_of(world).tick(TENANT) for _ in range(4)))
        assert [sum(counts) for counts in zip(*map(settled, ticks), strict=True)] == [0, 0, PAGE, 0]
        assert (await world.kinds()).count(FIRED) == PAGE
        assert (await world.loaded(run_id)).status is RunStatus.ACTIVE

    in_world(work, sleeping.graph(), lease=LONG)


def test_a_worker_wakes_what_slept(in_world: InWorld, sleeper: Any) -> None:
    sleeping = sleeper(lambda: (NodeWait.timer(due_in=timedelta(milliseconds=300)),))

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        options = AgentWorkerOptions(
            poll_interval=timedelta(milliseconds=20), supervision_interval=timedelta(milliseconds=100)
        )
        worker = AgentWorker(world.store, world.executables, tenants=[TENANT], loop=world.loop, options=options)
        shutdown = ShutdownSignal()
        working = asyncio.create_task(worker.run(shutdown))
        snapshot = await world.runs.wait(TENANT, run_id, timeout=timedelta(seconds=20))
        shutdown.drain()
        await working
        assert snapshot.status is RunStatus.SUCCEEDED
        assert (await world.kinds()).count(FIRED) == 1

    in_world(work, sleeping.graph(), lease=LONG)
