"""However many drives a process has, their leases are renewed in few statements, and each is lost for itself alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import AttemptId
from agentruns.errors import LeaseLostError
from agentruns.runtime.agent_loop import AgentLoopOutcome, AgentLoopResult, DurableAgentLoop
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.store import AgentRunStore
from agentruns.testing.drives import TENANT, DriveWorld, chain
from agentruns.testing.strangers import Stranger

InWorld = Callable[..., None]
Sent = Callable[[AgentRunStore], AbstractContextManager[list[str]]]

#: More than a set of any other kind may hold.
DRIVES = 300
#: So many drives take a while to begin on a slow machine.
LEASE = timedelta(minutes=1)
INTERVAL = timedelta(seconds=2)
INTERVALS = 3.5
RARELY: dict[str, Any] = {"cancellation_poll_interval": timedelta(seconds=60)}


class Held:
    """A node that lasts until it is let go, in every run at once."""

    def __init__(self) -> None:
        self.running = 0
        self.let_go = asyncio.Event()

    async def __call__(self, _context: Any) -> Finish:
        self.running += 1
        await self.let_go.wait()
        return Finish({})

    async def all_running(self, count: int) -> None:
        async with asyncio.timeout(120):
            while self.running < count:  # many tasks raise it
                await asyncio.sleep(0.01)


def held_graph() -> tuple[Held, Any]:
    node = Held()

    async def a(context: Any) -> Finish:
        return await node(context)

    return node, chain(a=a)


async def claimed(world: DriveWorld, count: int) -> list[HeldLease]:
    await asyncio.gather(*(world.submitted() for _ in range(count)))
    leases: list[HeldLease] = []
    while len(leases) < count:
        ids = [AttemptId.generate() for _ in range(64)]
        digests = world.executables.graph_digests
        leases += await world.store.claim_ready(TENANT, 64, attempt_ids=ids, graph_digests=digests)
    return leases


def driving(
    world: DriveWorld, leases: Sequence[HeldLease], *, loop: DurableAgentLoop | None = None
) -> list[asyncio.Task[AgentLoopResult]]:
    return [asyncio.create_task((loop or world.loop).run(held, world.shutdown)) for held in leases]


def renewals_of(texts: Sequence[str]) -> int:
    """Statements that renew for whoever waits; one sent alone waits for its row."""
    return sum("desired" in text and "SKIP LOCKED" in text for text in texts)


@pytest.mark.slow
def test_DRV_21_renewals_cost_at_most_two_statements_an_interval_for_any_number_of_drives(
    in_world: InWorld, sent: Sent
) -> None:
    node, graph = held_graph()

    async def work(world: DriveWorld) -> None:
        options = DurableGraphDriverOptions(lease_renewal_interval=INTERVAL, **RARELY)
        loop = DurableAgentLoop(world.store, world.executables, driver_options=options)
        tasks = driving(world, await claimed(world, DRIVES), loop=loop)
        await node.all_running(DRIVES)
        began = time.monotonic()
        with sent(world.store) as texts:
            await asyncio.sleep(INTERVALS * INTERVAL.total_seconds())
            async with asyncio.timeout(30):
                while renewals_of(texts) < 3:  # where the machine stood still
                    await asyncio.sleep(0.05)
            passed = (time.monotonic() - began) / INTERVAL.total_seconds()
        # Whoever began at another time is taken along once, and from then on all are due together: on a quiet machine
        # that makes one in each interval and one more.
        assert 3 <= renewals_of(texts) <= 2 * passed
        rows = await world.rows(
            "SELECT lease_expires_at - lease_renewed_at AS granted, lease_expires_at > clock_timestamp() AS lives,"
            " lease_renewed_at > lease_acquired_at AS is_renewed FROM agentruns.runs"
        )
        assert [(row.lives, row.is_renewed) for row in rows] == [(True, True)] * DRIVES
        # However often a lease is taken along, a dead worker's run is free one duration after it.
        assert max(row.granted for row in rows) <= LEASE
        node.let_go.set()
        results = await asyncio.gather(*tasks)
        assert {result.outcome for result in results} == {AgentLoopOutcome.SUCCEEDED}
        assert min(result.report.lease_renewals for result in results) >= 2

    in_world(work, graph, lease=LEASE)


def test_DRV_21_a_lease_that_cannot_be_renewed_ends_its_own_drive_only(in_world: InWorld, sent: Sent) -> None:
    node, graph = held_graph()

    async def work(world: DriveWorld) -> None:
        leases = await claimed(world, 20)
        tasks = driving(world, leases)
        await node.all_running(20)
        with sent(world.store) as texts:
            async with Stranger(world.url).holding(leases[7].fence.run_id):
                await asyncio.wait([tasks[7]], timeout=40)
                ended = [place for place, task in enumerate(tasks) if task.done()]
        assert ended == [7]
        lost = tasks[7].exception()
        assert isinstance(lost, LeaseLostError)
        assert lost.reason == "expired"
        # The row that is held is asked for alone, and the others' renewals do not wait for it.
        assert any("desired" in text and "SKIP LOCKED" not in text for text in texts)
        node.let_go.set()
        outcomes = [(await task).outcome for place, task in enumerate(tasks) if place != 7]
        assert set(outcomes) == {AgentLoopOutcome.SUCCEEDED}

    in_world(work, graph, lease=timedelta(seconds=5), **RARELY)
