"""A result that a fence left behind is used once, and one that fits nowhere is never used."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.errors import CorruptDataError, RunQuarantinedError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.held_lease import HeldLease
from agentruns.testing.drives import DriveWorld, chain
from agentruns.testing.hand_driven import HandDriven

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)


def counting() -> tuple[list[str], Any]:
    """Make a chain of two nodes that note their calls."""
    calls: list[str] = []

    def a(_context: Any) -> None:
        calls.append("a")

    def b(_context: Any) -> Finish:
        calls.append("b")
        return Finish({})

    return calls, chain(a=a, b=b)


async def left_result(world: DriveWorld) -> HeldLease:
    """Begin a run whose first node has its result, and no barrier yet."""
    held = await world.claimed(await world.submitted())
    hand = await HandDriven.of(world, held.fence)
    await hand.commit(hand.start())
    await hand.commit(hand.complete())
    return held


def test_G4_a_result_without_its_barrier_is_used_once_by_the_next_fence(in_world: InWorld) -> None:
    calls, graph = counting()

    async def work(world: DriveWorld) -> None:
        held = await left_result(world)
        assert "graph-barrier-continued" not in await world.kinds()
        await world.expire_leases()
        assert (await world.driven(held.fence.run_id)).outcome is AgentLoopOutcome.SUCCEEDED
        assert calls == ["b"]
        assert await world.attempts() == [("a", 1, 1), ("b", 1, 2)]
        assert (await world.kinds())[1:] == [
            "graph-node-attempt-started",
            "graph-node-attempt-succeeded",
            "graph-barrier-continued",
            "graph-node-attempt-started",
            "graph-node-attempt-succeeded",
            "graph-barrier-succeeded",
        ]

    in_world(work, graph, lease=LONG)


def test_G4_a_result_of_a_node_that_is_not_ready_is_a_contradiction(in_world: InWorld) -> None:
    calls, graph = counting()

    async def work(world: DriveWorld) -> None:
        held = await left_result(world)
        await world.rows(
            'INSERT INTO agentruns.node_results SELECT (jsonb_populate_record(r, \'{"node_id": "b"}\')).*'
            " FROM agentruns.node_results AS r"
        )
        await world.expire_leases()
        before = await world.rows("SELECT superstep, status, head_sequence FROM agentruns.runs")
        with pytest.raises(CorruptDataError):
            await HandDriven.of(world, held.fence)
        with pytest.raises(RunQuarantinedError):
            await world.driven(held.fence.run_id)
        assert await world.rows("SELECT superstep, status, head_sequence FROM agentruns.runs") == before
        with pytest.raises(RunQuarantinedError):
            await world.claimed(held.fence.run_id)
        assert calls == []

    in_world(work, graph, lease=LONG)
