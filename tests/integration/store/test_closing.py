"""A store that is closed leaves no connection, whoever was at work."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

from agentruns.domain.graph.returns import Finish
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore
from agentruns.testing.drives import DriveWorld, chain
from agentruns.testing.strangers import Stranger

InWorld = Callable[..., None]


def test_SCH_15_a_statement_that_outlives_its_store_returns_its_connection_to_nobody(in_world: InWorld) -> None:
    """What a caller has given up goes on to its end, and its connection ends with it."""

    async def work(world: DriveWorld) -> None:
        stranger = Stranger(world.url)
        before = await stranger.connection_count()
        async with stranger.locking("runs"), AgentRunStore(world.store_url) as store:
            submitting = asyncio.create_task(DurableAgentRuns(store, world.executables).admit(world.request()))
            await stranger.see_waiting()
            submitting.cancel()
            await asyncio.wait({submitting})
        async with asyncio.timeout(20):
            while await stranger.connection_count() > before:  # it happens in the server
                await asyncio.sleep(0.05)

    gc.disable()
    try:
        in_world(work, chain(a=lambda _context: Finish({})))
    finally:
        gc.enable()
