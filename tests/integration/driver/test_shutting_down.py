"""A process ends: what runs may finish or is given up, every run is given back, and nothing is cancelled."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.failure_codes import NODE_TASK_PANICKED
from agentruns.domain.graph.returns import Finish
from agentruns.domain.outcome import FailedOutcome
from agentruns.domain.scalars import TenantId
from agentruns.errors import DeploymentError, InvalidOptionError
from agentruns.runtime.agent_loop import AgentLoopOutcome, DurableAgentLoop
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.worker import AgentWorker, _back_off
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.testing.drives import TENANT, DriveWorld, chain, fan, sleep_for_ever

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
ADMITTED, STARTED = "agent-admitted", "graph-node-attempt-started"
SUCCEEDED, CONTINUED = "graph-node-attempt-succeeded", "graph-barrier-continued"
ENDED = "graph-barrier-succeeded"
SHORT = timedelta(milliseconds=20)


async def lease_of(world: DriveWorld) -> tuple[Any, Any, int]:
    (row,) = await world.rows("SELECT lease_attempt_id, scheduler_not_before, fencing_epoch FROM agentruns.runs")
    return tuple(row)


class Stubborn:
    """A node that swallows every cancellation until it is set free."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.swallowed = 0

    async def __call__(self, _context: Any) -> Any:
        while not self.free.is_set():
            try:
                await self.free.wait()
            except asyncio.CancelledError:
                self.swallowed += 1
        return Finish({"late": True})


def test_E4_draining_lets_the_running_node_finish_and_gives_the_run_back(in_world: InWorld) -> None:
    calls: list[str] = []
    running, go_on = asyncio.Event(), asyncio.Event()

    def quick(name: str) -> Callable[[Any], Any]:
        def node(_context: Any) -> Any:
            calls.append(name)
            return Finish({}) if name == "j" else None

        return node

    async def d(_context: Any) -> None:
        calls.append("d")
        running.set()
        await go_on.wait()

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        driving = asyncio.create_task(world.driven(run_id))
        await running.wait()
        world.shutdown.drain()
        await asyncio.sleep(0.05)
        go_on.set()
        result = await driving
        assert result.outcome is AgentLoopOutcome.CANCELLED
        assert (await world.kinds())[-3:] == [STARTED, SUCCEEDED, CONTINUED]
        assert await lease_of(world) == (None, None, 1)
        # Another worker goes on at once.
        second = await world.loop.run(await world.claimed(run_id), ShutdownSignal())
        assert second.outcome is AgentLoopOutcome.SUCCEEDED
        assert calls == list("abcdefghij")
        assert [(node, attempt) for node, attempt, _ in await world.attempts()] == [(name, 1) for name in "abcdefghij"]

    nodes: dict[str, Any] = {name: quick(name) for name in "abcdefghij"}
    in_world(work, chain(**{**nodes, "d": d}), lease=LONG)


def test_DRV_12_stopping_gives_up_a_node_that_swallows_its_cancellation(in_world: InWorld) -> None:
    node = Stubborn()

    async def a(context: Any) -> Any:
        return await node(context)

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        driving = asyncio.create_task(world.driven(run_id))
        await world.until(STARTED)
        stopped_at = time.monotonic()
        world.shutdown.stop()
        result = await driving
        assert time.monotonic() - stopped_at < 10
        assert result.outcome is AgentLoopOutcome.CANCELLED
        assert result.report.abandoned_nodes == ["a"]
        assert node.swallowed == 1
        # The attempt is unfinished, not failed, and the run is claimable at once.
        assert await world.kinds() == [ADMITTED, STARTED]
        assert await lease_of(world) == (None, None, 1)
        before = await world.everything()
        gc.collect()
        node.free.set()
        await asyncio.sleep(0.05)
        assert await world.everything() == before
        second = await world.loop.run(await world.claimed(run_id), ShutdownSignal())
        assert second.outcome is AgentLoopOutcome.SUCCEEDED
        assert await world.attempts() == [("a", 1, 1), ("a", 2, 2)]

    in_world(work, chain(a=a), lease=LONG, task_abort_wait=timedelta(milliseconds=100))


def test_a_node_that_times_out_and_swallows_that_is_given_up_once(in_world: InWorld) -> None:
    node = Stubborn()

    async def a(context: Any) -> Any:
        return await node(context)

    async def work(world: DriveWorld) -> None:
        result = await world.driven(await world.submitted())
        assert result.outcome is AgentLoopOutcome.FAILED
        assert result.report.abandoned_nodes == ["a"]
        node.free.set()
        await asyncio.sleep(0.02)

    in_world(
        work,
        chain(a=a),
        lease=LONG,
        task_abort_wait=timedelta(milliseconds=50),
        node_execution_timeout=timedelta(milliseconds=50),
    )


def test_D5_cancelling_the_task_that_drives_releases_the_exact_fence(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        driving = asyncio.create_task(world.driven(await world.submitted()))
        await world.until(STARTED)
        driving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await driving
        assert await world.kinds() == [ADMITTED, STARTED]
        assert await lease_of(world) == (None, None, 1)

    # However long a run is left alone after an error: this is none.
    in_world(work, chain(a=sleep_for_ever), lease=LONG, delay=timedelta(seconds=30))


class Fatal(BaseException):
    """What is no ``Exception``."""


async def raise_on_loop(_context: Any) -> None:
    raise Fatal


def raise_in_thread(_context: Any) -> None:
    raise Fatal


async def exit_on_loop(_context: Any) -> None:
    sys.exit(3)


def exit_in_thread(_context: Any) -> None:
    sys.exit(3)


async def interrupt_on_loop(_context: Any) -> None:
    raise KeyboardInterrupt


def interrupt_in_thread(_context: Any) -> None:
    raise KeyboardInterrupt


async def cancel_itself(_context: Any) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def raise_cancellation(_context: Any) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("node", [cancel_itself, raise_cancellation])
def test_DRV_14_a_node_that_cancels_itself_has_failed_and_cancels_nobody_else(in_world: InWorld, node: Any) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.FAILED
        assert await world.kinds() == [ADMITTED, STARTED, "graph-node-attempt-failed", "graph-run-failed"]
        outcome = (await world.loaded(run_id)).outcome
        assert isinstance(outcome, FailedOutcome)
        assert outcome.failure.code == NODE_TASK_PANICKED
        assert outcome.failure.details is not None
        assert outcome.failure.details.value.value == {"exception_type": "asyncio.exceptions.CancelledError"}

    in_world(work, chain(a=node), lease=LONG)


@pytest.mark.parametrize(
    ("node", "raised"),
    [
        (raise_on_loop, Fatal),
        (raise_in_thread, Fatal),
        (exit_on_loop, SystemExit),
        (exit_in_thread, SystemExit),
        (interrupt_on_loop, KeyboardInterrupt),
        (interrupt_in_thread, KeyboardInterrupt),
    ],
)
def test_DRV_14_what_no_driver_may_swallow_goes_on_and_the_fence_is_released(
    in_world: InWorld, node: Any, raised: type[BaseException]
) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        with pytest.raises(raised):
            async with asyncio.timeout(30):
                await world.driven(run_id)
        assert await world.kinds() == [ADMITTED, STARTED]
        assert (await lease_of(world))[0] is None

    in_world(work, chain(a=node), lease=LONG)


def test_after_an_error_the_run_is_left_alone_for_a_while(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        with pytest.raises(Fatal):
            await world.driven(run_id)
        (row,) = await world.rows("SELECT scheduler_not_before - scheduler_ready_at AS delay FROM agentruns.runs")
        assert row.delay == timedelta(seconds=7)

    in_world(work, chain(a=raise_on_loop), lease=LONG, delay=timedelta(seconds=7))


# --- nodes in threads ------------------------------------------------------------------------------------------------


def test_more_nodes_than_threads_wait_for_one_another_and_none_fails(in_world: InWorld) -> None:
    def sleeps(_context: Any) -> None:
        time.sleep(0.02)

    async def work(world: DriveWorld) -> None:
        run_ids = [await world.submitted() for _ in range(4)]
        results = await asyncio.gather(*(world.driven(run_id) for run_id in run_ids))
        assert {result.outcome for result in results} == {AgentLoopOutcome.SUCCEEDED}
        assert {attempt for _, attempt, _ in await world.attempts()} == {1}

    siblings: dict[str, Any] = dict.fromkeys("abc", sleeps)
    graph = fan(first=siblings, last=lambda _context: Finish({}))
    in_world(work, graph, lease=LONG, maximum_parallel_nodes=3, node_threads=1)


def test_when_every_thread_hangs_no_further_node_is_started(in_world: InWorld) -> None:
    free = threading.Event()

    def hangs(_context: Any) -> Finish:
        free.wait()
        return Finish({})

    async def work(world: DriveWorld) -> None:
        first, second = [await world.submitted() for _ in range(2)]
        driving = asyncio.create_task(world.driven(first))
        await world.until(STARTED)
        world.shutdown.stop()
        result = await driving
        assert result.report.abandoned_nodes == ["a"]
        healthy = ShutdownSignal()
        before = await world.kinds()
        with pytest.raises(DeploymentError) as error:
            await world.loop.run(await world.claimed(second), healthy)
        assert error.value.reason == "node_threads_exhausted"
        assert await world.kinds() == before
        free.set()
        async with asyncio.timeout(30):
            while world.loop.are_threads_exhausted:  # a thread ends
                await asyncio.sleep(0.005)
        ended = await world.loop.run(await world.claimed(second), healthy)
        assert ended.outcome is AgentLoopOutcome.SUCCEEDED

    in_world(work, chain(a=hangs), lease=LONG, node_threads=1, task_abort_wait=timedelta(milliseconds=50))


def test_G2_a_thread_s_late_result_is_dropped(in_world: InWorld) -> None:
    free = threading.Event()

    def hangs(context: Any) -> Finish:
        if context.attempt == 1:
            free.wait()
        return Finish({"by": context.attempt})

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        driving = asyncio.create_task(world.driven(run_id))
        await world.until(STARTED)
        world.shutdown.stop()
        await driving
        healthy = ShutdownSignal()
        await world.loop.run(await world.claimed(run_id), healthy)
        before = await world.everything()
        free.set()
        await asyncio.sleep(0.05)
        assert await world.everything() == before
        (row,) = await world.rows(
            "SELECT convert_from(body, 'UTF8')::json->'output'->>'by' AS by FROM agentruns.run_outcomes"
        )
        assert row.by == "2"

    in_world(work, chain(a=hangs), lease=LONG, node_threads=2, task_abort_wait=timedelta(milliseconds=50))


# --- workers ---------------------------------------------------------------------------------------------------------


def worker_of(world: DriveWorld, loop: DurableAgentLoop | None = None, **options: Any) -> AgentWorker:
    chosen = AgentWorkerOptions(poll_interval=timedelta(milliseconds=20), **options)
    return AgentWorker(world.store, world.executables, tenants=[TENANT], loop=loop or world.loop, options=chosen)


@pytest.mark.parametrize("is_finished", [True, False])
def test_E3_a_worker_lets_nodes_finish_within_its_drain_time(in_world: InWorld, *, is_finished: bool) -> None:
    go_on, drain_timeout = asyncio.Event(), LONG if is_finished else timedelta(seconds=0.5)

    async def a(_context: Any) -> Finish:
        await go_on.wait()
        return Finish({})

    async def work(world: DriveWorld) -> None:
        working = asyncio.create_task(worker_of(world, slots=1, drain_timeout=drain_timeout).run(world.shutdown))
        await world.submitted()
        await world.until(STARTED)
        later = await world.submitted()
        asked_at = time.monotonic()
        world.shutdown.drain()
        if is_finished:
            await asyncio.sleep(0.3)
            go_on.set()
        await working
        assert (0.3 if is_finished else 0.5) <= time.monotonic() - asked_at < 20
        kinds = await world.kinds()
        assert (SUCCEEDED in kinds) == is_finished
        rows = await world.rows(
            "SELECT fencing_epoch FROM agentruns.runs WHERE run_id = cast(:run_id AS uuid)", run_id=later.text
        )
        # Nothing new was claimed, and every lease has been given back.
        assert [row.fencing_epoch for row in rows] == [0]
        assert await world.rows("SELECT 1 FROM agentruns.runs WHERE lease_attempt_id IS NOT NULL") == []

    in_world(work, chain(a=a), lease=LONG, task_abort_wait=timedelta(milliseconds=100))


@pytest.mark.parametrize("tenant_id", [TENANT, TenantId("tenant-b")])
def test_E3_a_worker_that_has_ended_leaves_the_nodes_of_others_on_its_signal_alone(
    in_world: InWorld, tenant_id: TenantId
) -> None:
    """The one that ends first gives its node no time, or has no run at all."""
    go_on, is_busy = asyncio.Event(), tenant_id == TENANT

    async def a(_context: Any) -> Finish:
        await go_on.wait()
        return Finish({})

    async def work(world: DriveWorld) -> None:
        options = AgentWorkerOptions(slots=1, poll_interval=SHORT, drain_timeout=timedelta(0))
        hasty = AgentWorker(world.store, world.executables, tenants=[tenant_id], loop=world.loop, options=options)
        first = asyncio.create_task(hasty.run(world.shutdown))
        if is_busy:
            await world.submitted()
            await world.until(STARTED)
        patient = asyncio.create_task(worker_of(world, slots=1, drain_timeout=LONG).run(world.shutdown))
        await world.submitted()
        await world.until(STARTED, count=1 + is_busy)
        world.shutdown.drain()
        await first
        assert not world.shutdown.is_stopping
        go_on.set()
        await patient
        expected = [*(ADMITTED, STARTED) * is_busy, ADMITTED, STARTED, SUCCEEDED, ENDED]
        assert sorted(await world.kinds()) == sorted(expected)
        assert await world.rows("SELECT 1 FROM agentruns.runs WHERE lease_attempt_id IS NOT NULL") == []

    in_world(work, chain(a=a), lease=LONG)


def test_a_worker_drives_as_many_runs_at_once_as_it_has_slots(in_world: InWorld) -> None:
    running, most = 0, 0
    together = asyncio.Barrier(3)

    async def a(_context: Any) -> Finish:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await together.wait()
        running -= 1
        return Finish({})

    async def work(world: DriveWorld) -> None:
        run_ids = [await world.submitted() for _ in range(9)]
        working = asyncio.create_task(worker_of(world, slots=3).run(world.shutdown))
        for run_id in run_ids:
            snapshot = await world.runs.wait(TENANT, run_id, timeout=timedelta(seconds=20))
            assert snapshot.status.value == "succeeded"
        world.shutdown.drain()
        await working
        assert most == 3

    in_world(work, chain(a=a), lease=LONG)


def test_D5_a_worker_that_is_cancelled_gives_its_runs_back_at_once(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        working = asyncio.create_task(worker_of(world).run(world.shutdown))
        for _ in range(3):
            await world.submitted()
        await world.until(STARTED, count=3)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert not world.shutdown.is_draining
        assert await world.rows("SELECT 1 FROM agentruns.runs WHERE lease_attempt_id IS NOT NULL") == []
        assert (await world.kinds()).count(STARTED) == len(await world.kinds()) - 3 == 3

    in_world(work, chain(a=sleep_for_ever), lease=LONG)


def test_a_worker_names_what_no_driver_may_swallow_and_logs_nothing_that_it_says(
    in_world: InWorld, caplog: pytest.LogCaptureFixture
) -> None:
    async def a(_context: Any) -> None:
        raise Fatal("canary")

    async def work(world: DriveWorld) -> None:
        working = asyncio.create_task(worker_of(world).run(world.shutdown))
        run_id = await world.submitted()
        async with asyncio.timeout(10):
            while (await lease_of(world))[1] is None:
                await asyncio.sleep(0.01)
        world.shutdown.drain()
        await working
        gc.collect()
        given_back = [record for record in caplog.records if "given back" in record.getMessage()]
        assert [(each.__dict__["run_id"], each.__dict__["error"]) for each in given_back] == [(run_id.text, "Fatal")]

    with caplog.at_level(logging.DEBUG):
        in_world(work, chain(a=a), lease=LONG, delay=timedelta(minutes=1))
        gc.collect()
    assert "canary" not in caplog.text
    assert [record for record in caplog.records if record.name == "asyncio" and record.levelno > logging.DEBUG] == []


def test_a_worker_serves_its_tenants_and_no_other(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        await world.submitted()
        elsewhere = AgentWorker(
            world.store, world.executables, tenants=[TenantId("tenant-b"), TenantId("tenant-c")], loop=world.loop
        )
        working = asyncio.create_task(elsewhere.run(world.shutdown))
        await asyncio.sleep(0.3)
        world.shutdown.drain()
        await working
        assert await lease_of(world) == (None, None, 0)

    in_world(work, chain(a=lambda _context: Finish({})), lease=LONG)


@pytest.mark.parametrize(("failures", "seconds"), [(1, 0.2), (2, 0.4), (5, 3.2), (6, 4.0), (5000, 4.0)])
def test_a_worker_s_pauses_in_an_outage_grow_to_four_seconds(failures: int, seconds: float) -> None:
    assert _back_off(failures) == pytest.approx(seconds)


def test_a_worker_without_tenants_is_refused(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        with pytest.raises(InvalidOptionError) as error:
            AgentWorker(world.store, world.executables, tenants=[])
        assert error.value.option == "tenants"

    in_world(work, chain(a=sleep_for_ever), lease=LONG)
