"""Batch claims: the oldest ready runs of a tenant, of the graphs that the process has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from agentruns.domain.digests import Digest, plain_digest
from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.scalars import TenantId
from agentruns.runtime.held_lease import HeldLease
from agentruns.testing.drives import TENANT, DriveWorld, chain
from agentruns.testing.movable_clock import MovableClock
from agentruns.testing.strangers import Stranger

InWorld = Callable[..., None]

LEASE = timedelta(seconds=12)
MICROSECOND = timedelta(microseconds=1)
GRAPH = chain(a=lambda _context: Finish({}))
DIGESTS = [GRAPH.graph.reference.definition_digest]


async def claim(
    world: DriveWorld, limit: int, *, tenant: TenantId = TENANT, digests: Sequence[Digest] = tuple(DIGESTS)
) -> tuple[HeldLease, ...]:
    ids = [AttemptId.generate() for _ in range(limit)]
    claimed = await world.store.claim_ready(tenant, limit, attempt_ids=ids, graph_digests=digests)
    assert len({each.fence.attempt_id for each in claimed}) == len(claimed)
    assert {each.fence.attempt_id for each in claimed} <= set(ids)
    return claimed


def runs_of(claimed: Sequence[HeldLease]) -> list[RunId]:
    return [each.fence.run_id for each in claimed]


def test_LEA_12_the_oldest_come_first_and_each_once(in_world: InWorld, clock: MovableClock) -> None:
    async def work(world: DriveWorld) -> None:
        first, second, third = [await world.submitted() for _ in range(3)]
        await clock.advance(timedelta(seconds=1))
        # The second is given back later than the others were ready; the third waits behind a gate until then.
        held = await world.claimed(second)
        await world.store.release(held.fence)
        held = await world.claimed(third)
        await world.store.release(held.fence, delay=timedelta(seconds=1))
        await clock.advance(timedelta(seconds=1))
        assert runs_of(await claim(world, 2)) == [first, second]
        assert runs_of(await claim(world, 2)) == [third]
        assert await claim(world, 2) == ()

    in_world(work, GRAPH)


def test_a_batch_claim_writes_the_lease_that_it_answers(in_world: InWorld, clock: MovableClock) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await clock.advance(timedelta(0))
        (held,) = await claim(world, 5)
        now = await clock.now()
        (row,) = await world.rows("SELECT * FROM agentruns.runs")
        assert (held.fence.tenant_id, held.fence.run_id, held.fence.epoch.value) == (TENANT, run_id, 1)
        assert str(row.lease_attempt_id) == held.fence.attempt_id.text
        assert (row.lease_acquired_at, row.lease_renewed_at, row.lease_expires_at) == (now, now, now + LEASE)
        assert held.lease.expires_at.to_datetime() == now + LEASE
        assert held.observed_at.to_datetime() == now
        assert (await world.store.observe(held.fence)).lease == held.lease

    in_world(work, GRAPH)


def test_a_run_of_a_graph_that_the_process_lacks_is_never_claimed(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        other = plain_digest(b"another graph")
        assert await claim(world, 5, digests=[other]) == ()
        assert await claim(world, 5, digests=[]) == ()
        assert await claim(world, 5, tenant=TenantId("tenant-b")) == ()
        assert runs_of(await claim(world, 5, digests=[other, *DIGESTS])) == [run_id]

    in_world(work, GRAPH)


@pytest.mark.parametrize(
    "damage",
    [
        "quarantined_at = now()",
        "status = 'waiting', scheduler_ready_at = NULL",
        "status = 'succeeded', scheduler_ready_at = NULL",
        "superstep = NULL, checkpoint_digest = NULL, scheduler_ready_at = NULL",
        "fencing_epoch = 9223372036854775807",
        "scheduler_not_before = clock_timestamp() + interval '1 min'",
        "scheduler_ready_at = clock_timestamp() + interval '1 min'",
    ],
)
def test_a_run_that_is_not_ready_is_passed_over_and_its_neighbour_is_not(in_world: InWorld, damage: str) -> None:
    async def work(world: DriveWorld) -> None:
        first, second = [await world.submitted() for _ in range(2)]
        await world.rows(
            f"UPDATE agentruns.runs SET {damage} WHERE run_id = cast(:run_id AS uuid)",  # noqa: S608  # stands above
            run_id=first.text,
        )
        assert runs_of(await claim(world, 5)) == [second]

    in_world(work, GRAPH)


def test_LEA_27_gate_and_lease_are_passed_at_their_instant(in_world: InWorld, clock: MovableClock) -> None:
    async def work(world: DriveWorld) -> None:
        gated, leased = [await world.submitted() for _ in range(2)]
        await clock.advance(timedelta(0))
        held = await world.claimed(gated)
        await world.store.release(held.fence, delay=LEASE)
        await world.claimed(leased)
        await clock.advance(LEASE - MICROSECOND)
        assert await claim(world, 5) == ()
        await clock.advance(MICROSECOND)
        claimed = await claim(world, 5)
        assert {each.fence.run_id: each.fence.epoch.value for each in claimed} == {gated: 2, leased: 2}

    in_world(work, GRAPH)


def test_LEA_12_concurrent_batch_claims_share_the_runs_out(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        submitted = {await world.submitted() for _ in range(20)}
        batches = await asyncio.gather(*(claim(world, 4) for _ in range(8)))
        taken = [run_id for batch in batches for run_id in runs_of(batch)]
        assert len(taken) == len(set(taken))
        # Whoever found rows locked passed them over; what is left goes to the next ones who ask.
        while batch := await claim(world, 8):
            taken += runs_of(batch)
        assert len(taken) == len(set(taken))
        assert set(taken) == submitted
        rows = await world.rows("SELECT fencing_epoch FROM agentruns.runs")
        assert {row.fencing_epoch for row in rows} == {1}

    in_world(work, GRAPH, lease=timedelta(minutes=1))


def test_a_row_that_somebody_holds_is_passed_over_without_waiting(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        first, second = [await world.submitted() for _ in range(2)]
        async with Stranger(world.url).holding(first):
            # Whoever waited would be refused after the lock timeout.
            async with asyncio.timeout(30):
                assert runs_of(await claim(world, 5)) == [second]
        assert runs_of(await claim(world, 5)) == [first]

    in_world(work, GRAPH)
