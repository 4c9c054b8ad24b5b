"""A node that waits for a thread loses none of its own time, and still ends when it is asked to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import RunId
from agentruns.errors import DeploymentError
from agentruns.runtime.agent_loop import AgentLoopOutcome, AgentLoopResult
from agentruns.runtime.driver.threads import NodeThreads
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import DriveWorld, chain

InWorld = Callable[..., None]

ADMITTED, STARTED = "agent-admitted", "graph-node-attempt-started"
LIMIT = 3.0
OPTIONS: dict[str, Any] = {"lease": timedelta(minutes=1), "node_threads": 1}


def threads_of(world: DriveWorld) -> NodeThreads:
    return world.loop._driver._parts.threads


@asynccontextmanager
async def waiting(world: DriveWorld) -> AsyncIterator[tuple[asyncio.Task[AgentLoopResult], asyncio.Future[object]]]:
    """Drive a run whose node has started and waits for the only thread, until the block is left."""
    free = threading.Event()
    try:
        holder = await threads_of(world).start(free.wait)
        driving = asyncio.create_task(world.driven(await world.submitted()))
        await world.until(STARTED)
        yield driving, holder
    finally:
        free.set()


async def ended(driving: asyncio.Task[AgentLoopResult]) -> AgentLoopOutcome:
    async with asyncio.timeout(30):
        return (await driving).outcome


def test_a_node_s_own_time_begins_when_it_has_got_its_thread(in_world: InWorld) -> None:
    calls: list[bool] = []

    def a(context: Any) -> Finish:
        calls.append(0 < context.time_left <= LIMIT)
        return Finish({})

    async def work(world: DriveWorld) -> None:
        async with waiting(world) as (driving, _):
            await asyncio.sleep(1.1 * LIMIT)
            assert (driving.done(), calls) == (False, [])
        assert await ended(driving) is AgentLoopOutcome.SUCCEEDED
        assert (calls, await world.attempts()) == ([True], [("a", 1, 1)])

    in_world(work, chain(a=a), node_execution_timeout=timedelta(seconds=LIMIT), **OPTIONS)


def never(_context: Any) -> Finish:
    raise AssertionError


def test_a_node_that_waits_for_a_thread_is_given_back_by_a_stop(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        async with waiting(world) as (driving, _):
            world.shutdown.stop()
            assert await ended(driving) is AgentLoopOutcome.CANCELLED
        assert await world.kinds() == [ADMITTED, STARTED]

    in_world(work, chain(a=never), **OPTIONS)


def test_a_node_that_waits_for_a_thread_gets_no_grace_to_end_by_itself(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        async with waiting(world) as (driving, _):
            (row,) = await world.rows("SELECT run_id::text AS run_id FROM agentruns.runs")
            await request_cancellation(world, RunId(row.run_id))
            assert await ended(driving) is AgentLoopOutcome.CANCELLATION_CONFIRMED
            assert driving.result().report.abandoned_nodes == []

    in_world(work, chain(a=never), cancellation_grace_period=timedelta(minutes=1), **OPTIONS)


def test_when_the_last_thread_is_given_up_who_waits_for_it_is_given_back(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        async with waiting(world) as (driving, holder):
            threads_of(world).abandon(holder)
            with pytest.raises(DeploymentError) as error:
                await ended(driving)
            assert error.value.reason == "node_threads_exhausted"
            assert await world.kinds() == [ADMITTED, STARTED]
            assert await world.rows("SELECT 1 FROM agentruns.runs WHERE lease_attempt_id IS NOT NULL") == []

    in_world(work, chain(a=never), **OPTIONS)
