"""Callers that are cancelled at any moment leave connections, runs and the next call as they should be."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import RunId
from agentruns.errors import AgentRunsError
from agentruns.runtime.agent_loop import AgentLoopResult
from agentruns.runtime.committer import RunCommitter
from agentruns.runtime.replay import RunReader
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import StoreOptions
from agentruns.testing.drives import TENANT, DriveWorld, chain
from agentruns.testing.hand_driven import HandDriven
from agentruns.testing.strangers import Stranger

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
ROUNDS = 200
POOL = 2


def test_D6_cancelled_calls_leak_no_connection_and_leave_every_run_legal(in_world: InWorld) -> None:
    dice = random.Random(6)

    async def work(world: DriveWorld) -> None:
        async with AgentRunStore(world.store_url, StoreOptions(pool_size=POOL, lease_duration=LONG)) as small:
            committer = RunCommitter(small)

            async def starts() -> None:
                held = await world.claimed(await world.submitted())
                hand = await HandDriven.of(world, held.fence, committer=committer)
                await call(hand.committer.commit(hand.start()))

            async def claims() -> None:
                run_id = await world.submitted()
                attempt_id = (await world.claimed(run_id)).fence.attempt_id
                await call(small.claim(TENANT, run_id, attempt_id))

            async def reads() -> None:
                run_id = await world.submitted()
                await call(RunReader(small, world.executables).read(TENANT, run_id))

            async def submits() -> None:
                await call(world.submitted())

            async def call(made: Coroutine[Any, Any, Any]) -> None:
                """Make a call and give up on it after a moment."""
                calling = asyncio.create_task(made)
                await asyncio.sleep(dice.uniform(0, 0.01))
                calling.cancel()
                await asyncio.gather(calling, return_exceptions=True)

            kinds = [starts, claims, reads, submits]
            for _ in range(ROUNDS // 20):
                await asyncio.gather(*(dice.choice(kinds)() for _ in range(20)))
            pool: Any = small._engine.pool
            async with asyncio.timeout(30):
                while pool.checkedout():
                    await asyncio.sleep(0.01)
            assert pool.size() == POOL
            assert pool.overflow() <= 0
            # The next call works, and every run is a legal one.
            run_ids = await world.rows("SELECT run_id::text AS run_id FROM agentruns.runs")
            reader = RunReader(small, world.executables)
            for row in run_ids:
                replayed = await reader.read(TENANT, RunId(row.run_id))
                assert replayed.state.status.value == "active"
            assert await Stranger(world.url).connection_count() <= POOL + StoreOptions().pool_size

    in_world(work, chain(a=lambda _context: None, b=lambda _context: Finish({})), lease=LONG)


def test_drives_that_are_cancelled_at_any_moment_are_finished_by_others(in_world: InWorld) -> None:
    dice = random.Random(7)

    async def work(world: DriveWorld) -> None:
        run_ids = [await world.submitted() for _ in range(20)]
        for _ in range(3):
            drives = [asyncio.create_task(world.driven(run_id)) for run_id in run_ids]
            for driving in drives:
                await asyncio.sleep(dice.uniform(0, 0.01))
                driving.cancel()
            for result in await asyncio.gather(*drives, return_exceptions=True):
                assert isinstance(result, AgentLoopResult | asyncio.CancelledError | AgentRunsError)
            # A claim that was cancelled on its way may have happened, or be about to: its lease ends by itself.
            await Stranger(world.url).see_idle()
            await world.expire_leases()
        await asyncio.gather(*(world.driven(run_id) for run_id in run_ids), return_exceptions=True)
        for run_id in run_ids:
            replayed = await RunReader(world.store, world.executables).read(TENANT, run_id)
            assert replayed.state.status.value == "succeeded"

    in_world(work, chain(a=lambda _context: None, b=lambda _context: Finish({})), lease=LONG)
