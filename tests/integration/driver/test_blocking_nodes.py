"""A node that blocks the event loop past its lease has lost its run to whoever else works, and its result with it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import RunId
from agentruns.domain.outcome import SucceededOutcome
from agentruns.errors import LeaseLostError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.testing.drives import TENANT, DriveWorld, chain, open_world

InWorld = Callable[..., None]

LEASE = timedelta(seconds=5)
#: A machine that stands still for a while beside a node that blocks does not use it up.
PATIENT = timedelta(seconds=7)
LONG = timedelta(minutes=1)


def blocking(block: Callable[[], object]) -> tuple[GraphBundle, GraphBundle]:
    """Build one graph twice: in its first attempt its node blocks the loop, or it blocks a thread."""

    async def on_loop(context: Any) -> Finish:
        if context.attempt == 1:
            block()  # that is the misbehaviour
        return Finish({"by": context.attempt})

    def in_thread(context: Any) -> Finish:
        block()
        return Finish({"by": context.attempt})

    return chain(a=on_loop), chain(a=in_thread)


def finished_elsewhere(world: DriveWorld, run_id: RunId) -> threading.Thread:
    """Work on the run on another loop, as another process would."""

    async def work() -> None:
        async with open_world(world.url, world.bundle, store_url=world.store_url, lease=LONG) as other:
            options = AgentWorkerOptions(poll_interval=timedelta(milliseconds=20))
            worker = AgentWorker(other.store, other.executables, tenants=[TENANT], loop=other.loop, options=options)
            working = asyncio.create_task(worker.run(other.shutdown))
            await other.runs.wait(TENANT, run_id, timeout=timedelta(seconds=40))
            other.shutdown.drain()
            await working

    thread = threading.Thread(target=lambda: asyncio.run(work()), name="another worker")
    thread.start()
    return thread


async def output(world: DriveWorld, run_id: RunId) -> Any:
    outcome = (await world.loaded(run_id)).outcome
    assert isinstance(outcome, SucceededOutcome)
    return outcome.result.output.value


def test_B5_a_node_that_blocks_the_loop_past_its_lease_has_lost_its_run(in_world: InWorld) -> None:
    others = list[threading.Thread]()

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        held = await world.claimed(run_id)
        others.append(finished_elsewhere(world, run_id))
        with pytest.raises(LeaseLostError) as lost:
            await world.loop.run(held, world.shutdown)
        assert lost.value.reason in ("expired", "stale_fence")
        # The other worker's result stands; the late one was dropped, and the first attempt is a start without an end.
        assert await output(world, run_id) == {"by": 2}
        assert await world.attempts() == [("a", 1, 1), ("a", 2, 2)]
        results = await world.rows("SELECT attempt FROM agentruns.node_results")
        assert [row.attempt for row in results] == [2]

    # The loop stands still until the other worker has ended the run.
    def until_it_has() -> None:
        others[0].join()

    in_world(work, blocking(until_it_has)[0], lease=LEASE)


@pytest.mark.slow
def test_R4_a_node_that_blocks_the_loop_again_and_again_lives_by_renewals(in_world: InWorld) -> None:
    worlds = list[DriveWorld]()

    async def ends_at() -> Any:
        (row,) = await worlds[0].rows("SELECT lease_expires_at AS at FROM agentruns.runs")
        return row.at

    async def a(_context: Any) -> Finish:
        began = time.monotonic()
        while time.monotonic() - began < 1.1 * PATIENT.total_seconds():
            before = await ends_at()
            time.sleep(0.35 * PATIENT.total_seconds())  # noqa: ASYNC251  # that is the misbehaviour
            async with asyncio.timeout(0.5 * PATIENT.total_seconds()):
                while await ends_at() == before:  # another task renews it
                    await asyncio.sleep(0.05)
        return Finish({"by": 1})

    async def work(world: DriveWorld) -> None:
        worlds.append(world)
        result = await world.loop.run(await world.claimed(await world.submitted()), world.shutdown)
        assert result.outcome is AgentLoopOutcome.SUCCEEDED
        assert result.report.lease_renewals >= 2
        assert await world.attempts() == [("a", 1, 1)]

    in_world(work, chain(a=a), lease=PATIENT)


@pytest.mark.parametrize("is_in_thread", [True, False])
def test_B5_in_a_thread_or_for_half_a_lease_a_node_keeps_its_run(in_world: InWorld, *, is_in_thread: bool) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        held = await world.claimed(run_id)
        other = finished_elsewhere(world, run_id)
        assert (await world.loop.run(held, world.shutdown)).outcome is AgentLoopOutcome.SUCCEEDED
        await asyncio.to_thread(other.join)
        assert await output(world, run_id) == {"by": 1}
        assert await world.attempts() == [("a", 1, 1)]

    seconds = LEASE.total_seconds() * (1.2 if is_in_thread else 0.5)
    in_world(work, blocking(lambda: time.sleep(seconds))[is_in_thread], lease=LEASE)
