"""A process that drains starts nothing further, and commits what the record decides without another start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.waits import NodeWait
from agentruns.runtime.agent_loop import AgentLoopOutcome, AgentLoopResult
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import DriveWorld, builder, chain

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
ADMITTED, STARTED = "agent-admitted", "graph-node-attempt-started"
SUCCEEDED, FAILED = "graph-node-attempt-succeeded", "graph-node-attempt-failed"
CONTINUED, WAITING, ENDED = "graph-barrier-continued", "graph-barrier-waiting", "graph-barrier-succeeded"
RUN_FAILED = "graph-run-failed"


class Gate:
    """Let a test drain while a node runs."""

    def __init__(self) -> None:
        self.running = asyncio.Event()
        self.go_on = asyncio.Event()

    async def passed(self) -> None:
        self.running.set()
        await self.go_on.wait()


async def drained(world: DriveWorld, gate: Gate) -> AgentLoopResult:
    """Drive one run, drain while its node runs, and let the node end."""
    driving = asyncio.create_task(world.driven(await world.submitted()))
    await gate.running.wait()
    world.shutdown.drain()
    gate.go_on.set()
    async with asyncio.timeout(10):
        return await driving


async def is_leased(world: DriveWorld) -> bool:
    (row,) = await world.rows("SELECT lease_attempt_id FROM agentruns.runs")
    return row.lease_attempt_id is not None


def suspending(gate: Gate) -> GraphBundle:
    graph = builder()

    @graph.node(entry=True, wait_to="b")
    async def a(_context: Any) -> Suspend:
        await gate.passed()
        return Suspend(NodeWait.timer(due_in=timedelta(hours=1)))

    @graph.node(terminal=True)
    def b(_context: Any) -> Finish:
        return Finish({})

    return graph.build()


def finishing(gate: Gate) -> GraphBundle:
    async def a(_context: Any) -> Finish:
        await gate.passed()
        return Finish({})

    return chain(a=a)


def failing(gate: Gate) -> GraphBundle:
    async def a(_context: Any) -> None:
        await gate.passed()
        raise ValueError

    return chain(a=a)


@pytest.mark.parametrize("is_fused", [True, False])
@pytest.mark.parametrize(
    ("graph", "outcome", "kinds"),
    [
        (finishing, AgentLoopOutcome.SUCCEEDED, [SUCCEEDED, ENDED]),
        (suspending, AgentLoopOutcome.WAITING, [SUCCEEDED, WAITING]),
        (failing, AgentLoopOutcome.FAILED, [FAILED, RUN_FAILED]),
    ],
)
def test_a_run_whose_end_needs_no_further_start_is_not_left_to_the_next_worker(
    in_world: InWorld,
    graph: Callable[[Gate], GraphBundle],
    outcome: AgentLoopOutcome,
    kinds: list[str],
    *,
    is_fused: bool,
) -> None:
    gate = Gate()

    async def work(world: DriveWorld) -> None:
        assert (await drained(world, gate)).outcome is outcome
        assert await world.kinds() == [ADMITTED, STARTED, *kinds]
        assert not await is_leased(world)

    in_world(work, graph(gate), lease=LONG, fuse_supersteps=is_fused)


@pytest.mark.parametrize("is_fused", [True, False])
def test_DRV_12_after_draining_nothing_starts_and_the_barrier_is_committed(
    in_world: InWorld, *, is_fused: bool
) -> None:
    gate = Gate()
    calls: list[str] = []

    async def a(_context: Any) -> None:
        calls.append("a")
        await gate.passed()

    def b(_context: Any) -> Finish:
        calls.append("b")
        return Finish({})

    async def work(world: DriveWorld) -> None:
        result = await drained(world, gate)
        assert result.outcome is AgentLoopOutcome.CANCELLED
        assert await world.kinds() == [ADMITTED, STARTED, SUCCEEDED, CONTINUED]
        assert calls == ["a"]
        assert not await is_leased(world)
        (row,) = await world.rows("SELECT run_id::text AS run_id, scheduler_not_before FROM agentruns.runs")
        assert row.scheduler_not_before is None

    in_world(work, chain(a=a, b=b), lease=LONG, fuse_supersteps=is_fused)


def test_DRV_12_a_drive_that_begins_after_draining_starts_nothing(in_world: InWorld) -> None:
    gate = Gate()

    async def work(world: DriveWorld) -> None:
        world.shutdown.drain()
        result = await world.driven(await world.submitted())
        assert result.outcome is AgentLoopOutcome.CANCELLED
        assert await world.kinds() == [ADMITTED]
        assert not await is_leased(world)

    in_world(work, finishing(gate), lease=LONG)


def test_DRV_12_stopping_leaves_even_a_decided_end_to_the_next_worker(in_world: InWorld) -> None:
    gate = Gate()

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        # Room for a start and its completion: the end is decided, and not yet written.
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.YIELDED
        before = await world.kinds()
        world.shutdown.stop()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.CANCELLED
        assert await world.kinds() == before == [ADMITTED, STARTED, SUCCEEDED]
        draining = ShutdownSignal()
        draining.drain()
        ended = await world.loop.run(await world.claimed(run_id), draining)
        assert ended.outcome is AgentLoopOutcome.SUCCEEDED

    gate.go_on.set()
    in_world(work, finishing(gate), lease=LONG, maximum_durable_events=2)


def test_a_request_to_cancel_is_confirmed_while_draining(in_world: InWorld) -> None:
    gate = Gate()

    async def a(context: Any) -> None:
        gate.running.set()
        await context.wait_cancelled()

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        driving = asyncio.create_task(world.driven(run_id))
        await gate.running.wait()
        world.shutdown.drain()
        await request_cancellation(world, run_id)
        assert (await driving).outcome is AgentLoopOutcome.CANCELLATION_CONFIRMED
        assert (await world.kinds())[-2:] == ["agent-cancellation-requested", "agent-cancellation-confirmed"]

    in_world(work, chain(a=a), lease=LONG, cancellation_poll_interval=timedelta(milliseconds=20))
