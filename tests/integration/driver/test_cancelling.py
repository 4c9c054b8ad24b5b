"""Somebody asks for the end of a run while it is driven: what was not committed is dropped, and nothing is added."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.domain.outcome import CancelledOutcome
from agentruns.domain.status import RunStatus
from agentruns.errors import CancellationConflictError, RunNotRunnableError, StaleHeadError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.driver.driver import DurableGraphDriver
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.runtime.driver.outcomes import LifecycleBarrierReady
from agentruns.runtime.lease_keeper import LeaseKeeper
from agentruns.runtime.lifecycle import DurableGraphLifecycle
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import DriveWorld, chain, fan, sleep_for_ever

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
ADMITTED, STARTED = "agent-admitted", "graph-node-attempt-started"
SUCCEEDED, CONTINUED = "graph-node-attempt-succeeded", "graph-barrier-continued"
REQUESTED, CONFIRMED = "agent-cancellation-requested", "agent-cancellation-confirmed"
QUICK: dict[str, Any] = {
    "lease": LONG,
    "cancellation_poll_interval": timedelta(milliseconds=20),
    "cancellation_grace_period": timedelta(milliseconds=300),
    "task_abort_wait": timedelta(seconds=20),
}
#: So long that nothing is seen before the next commit.
BLIND: dict[str, Any] = {"lease": LONG, "cancellation_poll_interval": timedelta(seconds=60)}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # a thread may set it
            await asyncio.sleep(0.005)


def test_DRV_11_a_running_node_is_signalled_and_the_run_ends_as_was_asked(in_world: InWorld) -> None:
    seen: list[str] = []

    async def obedient(context: Any) -> None:
        seen.append("began")
        await context.wait_cancelled()
        seen.append("signalled")

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        driving = asyncio.create_task(world.driven(run_id))
        await until(lambda: bool(seen))
        await request_cancellation(world, run_id)
        result = await driving
        assert result.outcome is AgentLoopOutcome.CANCELLATION_CONFIRMED
        assert seen == ["began", "signalled"]
        # The node returned in time, but its result came after the request.
        assert await world.kinds() == [ADMITTED, STARTED, REQUESTED, CONFIRMED]
        snapshot = await world.loaded(run_id)
        assert isinstance(snapshot.outcome, CancelledOutcome)
        assert snapshot.revision.value == 3
        assert result.report.abandoned_nodes == []

    in_world(work, chain(a=obedient), **QUICK)


def test_D7_siblings_on_the_loop_and_in_threads_are_all_ended(in_world: InWorld) -> None:
    ended: list[str] = []
    began: list[str] = []

    async def on_loop(_context: Any) -> None:
        began.append("loop")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("loop")

    def in_thread(context: Any) -> dict[str, int]:
        began.append("thread")
        while not context.cancelled:
            time.sleep(0.005)
        ended.append("thread")
        return {"late": 1}

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        driving = asyncio.create_task(world.driven(run_id))
        await until(lambda: len(began) == 4)
        await request_cancellation(world, run_id)
        result = await driving
        assert result.outcome is AgentLoopOutcome.CANCELLATION_CONFIRMED
        assert sorted(ended) == ["loop", "loop", "loop", "thread"]
        assert result.report.abandoned_nodes == []
        assert await world.kinds() == [ADMITTED, *(STARTED,) * 4, REQUESTED, CONFIRMED]

    siblings = {"a": on_loop, "b": on_loop, "c": in_thread, "d": on_loop}
    in_world(work, fan(first=siblings, last=lambda _context: Finish({})), maximum_parallel_nodes=4, **QUICK)


def test_DRV_11_a_node_that_swallows_everything_is_given_up_in_time(in_world: InWorld) -> None:
    free = asyncio.Event()

    async def stubborn(_context: Any) -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        driving = asyncio.create_task(world.driven(run_id))
        await world.until(STARTED)
        await request_cancellation(world, run_id)
        asked_at = time.monotonic()
        result = await driving
        assert result.outcome is AgentLoopOutcome.CANCELLATION_CONFIRMED
        # Poll interval, grace, the wait for the abort, and one commit.
        assert 0.4 <= time.monotonic() - asked_at < 10
        assert result.report.abandoned_nodes == ["a"]
        before = await world.everything()
        free.set()
        await asyncio.sleep(0.05)
        # DRV-13: what was given up changes no row.
        assert await world.everything() == before

    in_world(work, chain(a=stubborn), **{**QUICK, "task_abort_wait": timedelta(milliseconds=100)})


def test_DRV_10_a_completion_that_comes_second_is_dropped(in_world: InWorld) -> None:
    worlds: list[DriveWorld] = []

    async def asks(context: Any) -> dict[str, int]:
        await request_cancellation(worlds[0], context.run_id)
        return {"a": 1}

    async def work(world: DriveWorld) -> None:
        worlds.append(world)
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.CANCELLATION_CONFIRMED
        assert await world.kinds() == [ADMITTED, STARTED, REQUESTED, CONFIRMED]
        assert await world.rows("SELECT * FROM agentruns.node_results") == []

    in_world(work, chain(a=asks, b=lambda _context: Finish({})), **BLIND)


def test_D3_what_was_durable_before_the_request_stays_and_nothing_follows_it(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        driving = asyncio.create_task(world.driven(run_id))
        await world.until(SUCCEEDED)
        await request_cancellation(world, run_id)
        assert (await driving).outcome is AgentLoopOutcome.CANCELLATION_CONFIRMED
        assert await world.kinds() == [ADMITTED, STARTED, STARTED, SUCCEEDED, REQUESTED, CONFIRMED]
        assert await world.attempts() == [("a", 1, 1), ("b", 1, 1)]

    # Of three siblings two are started, one of them ends; the third never starts.
    siblings = {"a": lambda _context: {"a": 1}, "b": sleep_for_ever, "c": lambda _context: {"c": 1}}
    in_world(work, fan(first=siblings, last=lambda _context: Finish({})), maximum_parallel_nodes=2, **QUICK)


def test_a_request_that_stands_before_the_drive_is_confirmed_without_any_start(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await request_cancellation(world, run_id)
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.CANCELLATION_CONFIRMED
        assert await world.kinds() == [ADMITTED, REQUESTED, CONFIRMED]

    in_world(work, chain(a=sleep_for_ever), **QUICK)


@pytest.mark.parametrize("is_requested", [True, False])
def test_D1_LIF_05_LIF_06_the_first_of_success_and_request_stands(in_world: InWorld, *, is_requested: bool) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        held = await world.claimed(run_id)
        options = DurableGraphDriverOptions(lease_renewal_interval=timedelta(seconds=20))
        driver = DurableGraphDriver(world.store, world.executables, options)
        lifecycle = DurableGraphLifecycle(world.store, world.executables)
        async with LeaseKeeper(world.store, held, interval=options.lease_renewal_interval) as keeper:
            driven = await driver.drive(keeper, world.shutdown)
            assert isinstance(driven.outcome, LifecycleBarrierReady)
            if is_requested:
                await request_cancellation(world, run_id)
                with pytest.raises(StaleHeadError) as stale:
                    await lifecycle.commit_barrier(held.fence, driven.outcome, driven.intent)
                assert stale.value.reason == "handoff"
            else:
                await lifecycle.commit_barrier(held.fence, driven.outcome, driven.intent)
        kinds = (await world.kinds())[-1]
        assert kinds == (REQUESTED if is_requested else "graph-barrier-succeeded")
        await world.store.release(held.fence)
        if is_requested:
            assert (await world.driven(run_id)).outcome is AgentLoopOutcome.CANCELLATION_CONFIRMED
        ended = await world.loaded(run_id)
        assert ended.status is (RunStatus.CANCELLED if is_requested else RunStatus.SUCCEEDED)
        # Whatever comes afterwards, it is over.
        with pytest.raises(CancellationConflictError if is_requested else RunNotRunnableError):
            await request_cancellation(world, run_id)
        with pytest.raises(RunNotRunnableError) as late:
            await world.claimed(run_id)
        assert (late.value.reason, late.value.status) == ("terminal", ended.status)
        assert await world.loaded(run_id) == ended

    in_world(work, chain(a=lambda _context: Finish({})), lease=LONG)
