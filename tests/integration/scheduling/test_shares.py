"""Shares and bounds with many turns and a long backlog: what a worker claims, counted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from agentruns.domain.fairness import TenantFairnessPolicy
from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import ReservationId
from agentruns.domain.scalars import ShardId, TenantId
from agentruns.runtime.agent_loop import AgentLoopOutcome, AgentLoopResult, DurableAgentLoop
from agentruns.runtime.driver.report import GraphDriveReport
from agentruns.runtime.fair_shard import FairShard, FairTurn
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.testing.drives import DriveWorld, chain

InWorld = Callable[..., None]

LONG = timedelta(minutes=5)
GRAPH = chain(a=lambda _context: Finish({}))
A, B = TenantId("a"), TenantId("b")
POLICY = TenantFairnessPolicy.of({"a": 3, "b": 1})
ONE_SLOT = AgentWorkerOptions(slots=1, poll_interval=timedelta(milliseconds=20), supervision_interval=None)
TURNS, MOST = 4_000, 64
BACKLOG = 10_000
#: Copies of one run, all of a tenant.
COPIES = """
INSERT INTO agentruns.runs SELECT (jsonb_populate_record(r, jsonb_build_object(
  'run_id', '01890000-0000-7000-8000-' || lpad(to_hex(:first + n), 12, '0'), 'tenant_id', cast(:tenant AS text),
  'quarantined_at', NULL))).*
FROM agentruns.runs AS r, generate_series(1, :count) AS s (n) WHERE r.tenant_id = 'tenant-a'
"""


class Noting(DurableAgentLoop):
    """Note whose run was claimed, and keep its lease: whoever is claimed is so once."""

    def __init__(self, world: DriveWorld) -> None:
        super().__init__(world.store, world.executables)
        self.tenants: list[TenantId] = []

    async def run(self, held: HeldLease, shutdown: ShutdownSignal) -> AgentLoopResult:
        del shutdown
        self.tenants.append(held.fence.tenant_id)
        return AgentLoopResult(outcome=AgentLoopOutcome.YIELDED, report=GraphDriveReport())

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not reached():  # the worker is another task
                await asyncio.sleep(0.005)


async def backlog(world: DriveWorld, tenant: TenantId, *, count: int, first: int = 0) -> None:
    await world.rows(COPIES, tenant=tenant.text, count=count, first=first)


def widest_gap(places: Sequence[int]) -> int:
    """Count the turns from before the first one on: a tenant that has work waits for its first as well."""
    return max(after - before for before, after in pairwise((-1, *places)))


def test_SCH_05_shares_of_three_to_one_are_exact_over_four_thousand_turns(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        shard = FairShard(world.store, ShardId("main"), POLICY)
        await shard.publish()
        turns: list[FairTurn] = []
        for first in range(0, TURNS, MOST):
            ids = [ReservationId.generate() for _ in range(min(MOST, TURNS - first))]
            turns += await shard.reserve(ids, [A, B])
        assert [turn.sequence for turn in turns] == list(range(TURNS))
        assert Counter(turn.tenant_id for turn in turns) == {A: 3 * TURNS // 4, B: TURNS // 4}
        for tenant, bound in ((A, 2), (B, 4)):
            places = [turn.sequence for turn in turns if turn.tenant_id == tenant]
            assert widest_gap(places) == shard.cycle.bounds[tenant] == bound

    in_world(work, GRAPH, lease=LONG)


@pytest.mark.parametrize(("weighted", "bound"), [(True, 4), (False, 2)], ids=["weights", "rotation"])
@pytest.mark.parametrize("comes_late", [False, True], ids=["at once", "late"])
def test_SCH_16_ten_thousand_runs_of_one_tenant_delay_anothers_first_run_by_no_more_than_the_bound(
    in_world: InWorld, *, weighted: bool, bound: int, comes_late: bool
) -> None:
    async def work(world: DriveWorld) -> None:
        await world.submitted()
        await backlog(world, A, count=BACKLOG)
        if not comes_late:
            await backlog(world, B, count=1, first=BACKLOG)
        await world.rows("UPDATE agentruns.runs SET quarantined_at = now() WHERE tenant_id = 'tenant-a'")
        await world.rows("ANALYZE agentruns.runs")
        noting = Noting(world)
        shard = FairShard(world.store, ShardId("main"), POLICY) if weighted else None
        worker = AgentWorker(world.store, world.executables, loop=noting, options=ONE_SLOT, fairness=shard)
        working = asyncio.create_task(worker.run(world.shutdown))
        before = 0
        if comes_late:
            await noting.until(lambda: len(noting.tenants) >= 20)
            await backlog(world, B, count=1, first=BACKLOG)
            before = len(noting.tenants) + 1  # one turn may have been dealt before
        await noting.until(lambda: B in noting.tenants)
        world.shutdown.drain()
        await working
        assert noting.tenants.index(B) - before < bound

    in_world(work, GRAPH, lease=LONG)


def test_P1_a_thousand_runs_delay_anothers_first_run_by_no_more_than_two_turns(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        await world.submitted()
        await backlog(world, A, count=1_000)
        await backlog(world, B, count=1, first=1_000)
        await world.rows("DELETE FROM agentruns.runs WHERE tenant_id = 'tenant-a'")
        noting = Noting(world)
        shard = FairShard(world.store, ShardId("main"), TenantFairnessPolicy.of({"a": 1, "b": 1}))
        worker = AgentWorker(world.store, world.executables, loop=noting, options=ONE_SLOT, fairness=shard)
        working = asyncio.create_task(worker.run(world.shutdown))
        await noting.until(lambda: B in noting.tenants)
        world.shutdown.drain()
        await working
        # It is among the first so many, which is what the scheduler says.
        assert noting.tenants.index(B) < shard.cycle.bounds[B] == 2

    in_world(work, GRAPH, lease=LONG)


def test_P2_whoever_has_work_is_served_in_its_bound_though_a_worker_is_killed(in_world: InWorld) -> None:
    weights = {"a": 3, "b": 1, "c": 1, "d": 1, "e": 1}

    async def work(world: DriveWorld) -> None:
        await world.submitted()
        for first, name in enumerate(weights):
            await backlog(world, TenantId(name), count=100, first=1_000 * first)
        await world.rows("DELETE FROM agentruns.runs WHERE tenant_id = 'tenant-a'")
        noting = Noting(world)
        shards = [FairShard(world.store, ShardId("main"), TenantFairnessPolicy.of(weights)) for _ in range(4)]
        workers = [
            AgentWorker(world.store, world.executables, loop=noting, options=ONE_SLOT, fairness=shard)
            for shard in shards
        ]
        working = [asyncio.create_task(worker.run(world.shutdown)) for worker in workers]
        await noting.until(lambda: len(noting.tenants) >= 100)
        working[0].cancel()
        # What the killed one had claimed but not begun, a lease holds back.
        await noting.until(lambda: len(noting.tenants) >= 499)
        world.shutdown.drain()
        await asyncio.gather(*working, return_exceptions=True)
        # While everybody has work, at every start before and after the death. Each worker may hold a turn that is not
        # begun, however long the machine stands still, and what the killed one held is lost.
        contested, holders = noting.tenants[:200], len(workers)
        for tenant, bound in shards[0].cycle.bounds.items():
            places = [place for place, served in enumerate(contested) if served == tenant]
            assert widest_gap([*places, len(contested)]) <= (holders + 1) * bound + holders
        assert set(Counter(noting.tenants)) == {TenantId(name) for name in weights}

    in_world(work, GRAPH, lease=LONG)


def test_SCH_16_in_the_long_run_a_worker_claims_by_the_weights(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        await world.submitted()
        for first, tenant in enumerate((A, B)):
            await backlog(world, tenant, count=300, first=1_000 * first)
        await world.rows("DELETE FROM agentruns.runs WHERE tenant_id = 'tenant-a'")
        noting = Noting(world)
        shard = FairShard(world.store, ShardId("main"), POLICY)
        options = AgentWorkerOptions(slots=4, supervision_interval=None)
        worker = AgentWorker(world.store, world.executables, loop=noting, options=options, fairness=shard)
        report: Any = await worker.run_until_idle()
        assert report.outcomes == {AgentLoopOutcome.YIELDED: 600}
        # A claim for several slots brings one tenant's runs after the other's, so it may be that much ahead.
        for count in range(1, 400):
            assert abs(noting.tenants[:count].count(B) - count / 4) <= options.slots
        assert noting.tenants.count(B) == 300

    in_world(work, GRAPH, lease=LONG)
