"""Nodes that never end hold every thread: nothing that needs one is started, what has ended is kept, and it is said."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.errors import DeploymentError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_health import WorkerHealth, WorkerStatus
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.testing.drives import TENANT, DriveWorld, builder

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
SHORT = timedelta(milliseconds=200)
ONE_THREAD: dict[str, Any] = {
    "lease": LONG,
    "node_threads": 1,
    "node_execution_timeout": SHORT,
    "task_abort_wait": timedelta(milliseconds=50),
}
ADMITTED, STARTED, SUCCEEDED = "agent-admitted", "graph-node-attempt-started", "graph-node-attempt-succeeded"


def mixed(free: threading.Event, calls: list[str]) -> GraphBundle:
    """A node on the loop, and after it one that hangs in a thread until it is set free."""
    graph = builder()

    @graph.node(entry=True, then="b")
    async def a(_context: Any) -> None:
        calls.append("a")

    @graph.node(terminal=True)
    def b(_context: Any) -> Finish:
        calls.append("b")
        free.wait()
        return Finish({})

    return graph.build()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # a thread changes it
            await asyncio.sleep(0.005)


async def kinds_of(world: DriveWorld, run_id: Any) -> list[str]:
    rows = await world.rows(
        "SELECT kind FROM agentruns.run_events WHERE run_id = cast(:run_id AS uuid) ORDER BY sequence",
        run_id=run_id.text,
    )
    return [row.kind for row in rows]


def test_what_ended_before_a_node_that_gets_no_thread_is_committed(in_world: InWorld) -> None:
    free, calls = threading.Event(), list[str]()

    async def work(world: DriveWorld) -> None:
        first, second = [await world.submitted() for _ in range(2)]
        driving = asyncio.create_task(world.driven(first))
        await world.until(STARTED, count=2)
        world.shutdown.stop()
        assert (await driving).report.abandoned_nodes == ["b"]
        assert world.loop.are_threads_exhausted
        healthy = ShutdownSignal()
        with pytest.raises(DeploymentError) as error:
            await world.loop.run(await world.claimed(second), healthy)
        assert error.value.reason == "node_threads_exhausted"
        assert await kinds_of(world, second) == [ADMITTED, STARTED, SUCCEEDED, "graph-barrier-continued"]
        assert calls == ["a", "b", "a"]
        free.set()
        await until(lambda: not world.loop.are_threads_exhausted)
        # Neither node runs twice.
        assert (await world.loop.run(await world.claimed(second), healthy)).outcome is AgentLoopOutcome.SUCCEEDED
        assert calls == ["a", "b", "a", "b"]

    in_world(work, mixed(free, calls), **{**ONE_THREAD, "node_execution_timeout": LONG})


@pytest.mark.direct("nobody hears a notification through a pooler")
def test_a_worker_without_threads_says_that_it_is_not_healthy(in_world: InWorld) -> None:
    free, calls = threading.Event(), list[str]()

    async def work(world: DriveWorld) -> None:
        options = AgentWorkerOptions(poll_interval=timedelta(milliseconds=20), supervision_interval=None)
        worker = AgentWorker(world.store, world.executables, tenants=[TENANT], loop=world.loop, options=options)
        assert (worker.health, worker.health.is_live) == (WorkerHealth(status=WorkerStatus.STARTING), True)
        working = asyncio.create_task(worker.run(world.shutdown))
        run_id = await world.submitted()
        await world.runs.wait(TENANT, run_id, timeout=timedelta(seconds=30))
        assert worker.health == WorkerHealth(status=WorkerStatus.DEGRADED, reason="node_threads_exhausted")
        assert (worker.health.is_live, worker.health.is_ready) == (False, True)
        free.set()
        await until(lambda: worker.health == WorkerHealth(status=WorkerStatus.READY))
        world.shutdown.drain()
        await working

    in_world(work, mixed(free, calls), **ONE_THREAD)
