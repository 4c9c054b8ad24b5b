"""A node that ends in its first turn is not watched; one that stops the process in it counts for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.driver.drive import Drive
from agentruns.testing.drives import DriveWorld, chain

InWorld = Callable[..., None]


async def at_once(_context: Any) -> dict[str, int]:
    return {"seen": 1}


async def after_a_while(_context: Any) -> Finish:
    await asyncio.sleep(0.01)
    return Finish({"seen": 1})


def test_only_a_node_that_waits_is_watched(in_world: InWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[int] = []
    original = Drive._cancellation

    async def cancellation(drive: Drive) -> None:
        watched.append(drive.state.superstep.value)
        await original(drive)

    monkeypatch.setattr(Drive, "_cancellation", cancellation)

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
        assert watched == [2]

    in_world(work, chain(a=at_once, b=at_once, c=after_a_while), lease=timedelta(minutes=1))


def test_a_stop_within_the_first_turn_ends_the_batch_without_a_completion(in_world: InWorld) -> None:
    worlds: list[DriveWorld] = []

    async def stops(_context: Any) -> Finish:
        worlds[0].shutdown.stop()
        return Finish({"seen": 1})

    async def work(world: DriveWorld) -> None:
        worlds.append(world)
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.CANCELLED
        assert await world.kinds() == ["agent-admitted", "graph-node-attempt-started"]

    in_world(work, chain(a=stops), lease=timedelta(minutes=1))
