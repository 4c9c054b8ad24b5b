"""What ends a batch is heard whatever the batch waits for, and the nodes of one batch are ended together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from agentruns.domain.graph.returns import Finish
from agentruns.runtime.agent_loop import AgentLoopOutcome, AgentLoopResult
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import DriveWorld, chain, fan, sleep_for_ever

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
ADMITTED, STARTED = "agent-admitted", "graph-node-attempt-started"
REQUESTED, CONFIRMED = "agent-cancellation-requested", "agent-cancellation-confirmed"
#: Whoever waits for the grace to end fails the test.
GRACIOUS: dict[str, Any] = {
    "lease": LONG,
    "cancellation_poll_interval": timedelta(milliseconds=20),
    "cancellation_grace_period": LONG,
}


async def ended(driving: asyncio.Task[AgentLoopResult]) -> AgentLoopResult:
    async with asyncio.timeout(40):
        return await driving


async def lease_of(world: DriveWorld) -> Any:
    (row,) = await world.rows("SELECT lease_attempt_id FROM agentruns.runs")
    return row.lease_attempt_id


class Deaf:
    """A node that hears that it is asked to end, and goes on."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()

    async def __call__(self, context: Any) -> None:
        await context.wait_cancelled()
        self.heard.set()
        await sleep_for_ever(context)


def test_DRV_12_stopping_ends_the_grace_of_a_cancellation(in_world: InWorld) -> None:
    node = Deaf()

    async def a(context: Any) -> None:
        await node(context)

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        driving = asyncio.create_task(world.driven(run_id))
        await world.until(STARTED)
        await request_cancellation(world, run_id)
        await node.heard.wait()
        world.shutdown.stop()
        assert (await ended(driving)).outcome is AgentLoopOutcome.CANCELLED
        # The request stands: whoever claims the run next confirms it.
        assert await world.kinds() == [ADMITTED, STARTED, REQUESTED]
        assert await lease_of(world) is None

    in_world(work, chain(a=a), **GRACIOUS)


def test_a_node_s_deadline_holds_in_the_grace_of_a_cancellation(in_world: InWorld) -> None:
    node, worlds = Deaf(), list[DriveWorld]()

    async def a(context: Any) -> None:
        await request_cancellation(worlds[0], context.run_id)
        await node(context)

    async def work(world: DriveWorld) -> None:
        worlds.append(world)
        driving = asyncio.create_task(world.driven(await world.submitted()))
        result = await ended(driving)
        assert result.outcome is AgentLoopOutcome.CANCELLATION_CONFIRMED
        assert node.heard.is_set()
        assert result.report.abandoned_nodes == []
        assert await world.kinds() == [ADMITTED, STARTED, REQUESTED, CONFIRMED]

    in_world(work, chain(a=a), node_execution_timeout=timedelta(seconds=4), **GRACIOUS)


class Chorus:
    """Nodes that end when they are aborted, and not before all of them are."""

    def __init__(self, *, count: int) -> None:
        self._together = asyncio.Barrier(count)

    async def __call__(self, _context: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await self._together.wait()


def test_DRV_12_nodes_whose_deadlines_have_passed_are_aborted_together(in_world: InWorld) -> None:
    nodes = Chorus(count=3)

    async def sibling(context: Any) -> None:
        await nodes(context)

    async def work(world: DriveWorld) -> None:
        driving = asyncio.create_task(world.driven(await world.submitted()))
        result = await ended(driving)
        assert result.outcome is AgentLoopOutcome.FAILED
        # One after the other, the first would be waited for in vain.
        assert result.report.abandoned_nodes == []
        failed = ["graph-node-attempt-failed"] * 3
        assert await world.kinds() == [ADMITTED, *(STARTED,) * 3, *failed, "graph-run-failed"]

    siblings: dict[str, Any] = dict.fromkeys("abc", sibling)
    in_world(
        work,
        fan(first=siblings, last=lambda _context: Finish({})),
        lease=LONG,
        maximum_parallel_nodes=3,
        node_execution_timeout=timedelta(milliseconds=200),
        task_abort_wait=timedelta(seconds=20),
    )


def test_nodes_are_asked_to_end_where_a_commit_meets_the_cancellation(in_world: InWorld) -> None:
    """The request is not polled for: it is found when the completion of a sibling is refused for it."""
    seen: list[str] = []
    worlds: list[DriveWorld] = []

    async def a(context: Any) -> None:
        await request_cancellation(worlds[0], context.run_id)

    async def b(context: Any) -> None:
        await context.wait_cancelled()
        seen.append("asked")
        await asyncio.sleep(0.05)
        seen.append("ended by itself")

    async def work(world: DriveWorld) -> None:
        worlds.append(world)
        driving = asyncio.create_task(world.driven(await world.submitted()))
        assert (await ended(driving)).outcome is AgentLoopOutcome.CANCELLATION_CONFIRMED
        assert seen == ["asked", "ended by itself"]
        assert await world.kinds() == [ADMITTED, STARTED, STARTED, REQUESTED, CONFIRMED]

    options = {**GRACIOUS, "cancellation_poll_interval": LONG}
    in_world(work, fan(first={"a": a, "b": b}, last=lambda _context: Finish({})), maximum_parallel_nodes=2, **options)
