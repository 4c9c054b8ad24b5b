"""A tenant's limit holds for any number of claimers, and nothing that dies or sleeps takes room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.scalars import TenantId
from agentruns.errors import InvalidOptionError, NotYetAvailableError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.discovery import DurableRunDiscovery
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.store import AgentRunStore
from agentruns.testing.drives import TENANT, DriveWorld, chain

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
GRAPH = chain(a=lambda _context: Finish({}))


async def claim(world: DriveWorld, limit: int, *, store: AgentRunStore | None = None) -> tuple[HeldLease, ...]:
    ids = [AttemptId.generate() for _ in range(limit)]
    digests = world.executables.graph_digests
    return await (store or world.store).claim_ready(TENANT, limit, attempt_ids=ids, graph_digests=digests)


async def submitted(world: DriveWorld, count: int) -> list[RunId]:
    return [await world.submitted() for _ in range(count)]


async def places(world: DriveWorld) -> list[tuple[int, RunId | None, int | None, int]]:
    found = await world.rows("SELECT slot, run_id, fencing_epoch, serial FROM agentruns.tenant_slots ORDER BY slot")
    return [(each.slot, each.run_id and RunId(str(each.run_id)), each.fencing_epoch, each.serial) for each in found]


async def live(world: DriveWorld) -> int:
    (row,) = await world.rows("SELECT count(*) AS n FROM agentruns.runs WHERE lease_expires_at > clock_timestamp()")
    return int(row.n)


def test_SCH_08_a_batch_takes_no_more_than_the_limit_leaves_and_the_oldest_first(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        await world.store.set_tenant_limit(TENANT, 3)
        runs = await submitted(world, 5)
        first = await claim(world, 2)
        assert [each.fence.run_id for each in first] == runs[:2]
        second = await claim(world, 9)
        assert [each.fence.run_id for each in second] == runs[2:3]
        assert await claim(world, 9) == ()
        assert await places(world) == [(0, runs[0], 1, 1), (1, runs[1], 1, 1), (2, runs[2], 1, 1)]
        await world.store.release(first[1].fence)
        (third,) = await claim(world, 9)
        assert third.fence.run_id == runs[3]
        assert await places(world) == [(0, runs[0], 1, 1), (1, runs[3], 1, 2), (2, runs[2], 1, 1)]

    in_world(work, GRAPH, lease=LONG)


def test_SCH_08_any_number_of_concurrent_claims_never_leaves_more_leases_than_the_limit(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        await world.store.set_tenant_limit(TENANT, 7)
        await submitted(world, 24)
        held: list[HeldLease] = []
        for _ in range(12):
            answers = await asyncio.gather(*(claim(world, size) for size in (1, 4, 2, 7, 1, 3, 2, 1)))
            held += [each for answer in answers for each in answer]
            assert await live(world) == len(held) <= 7
            # With ready work and room, a claim that races no other succeeds.
            held += await claim(world, 9)
            assert await live(world) == len(held) == 7
            for each in held[::2]:
                await world.store.release(each.fence)
            held = held[1::2]

    in_world(work, GRAPH, lease=LONG)


def test_LEA_13_named_claims_and_batches_share_the_limit(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        await world.store.set_tenant_limit(TENANT, 2)
        runs = await submitted(world, 4)
        held = await world.claimed(runs[3])
        (batch,) = await claim(world, 4)
        assert batch.fence.run_id == runs[0]
        before = await world.everything()
        with pytest.raises(NotYetAvailableError) as refused:
            await world.claimed(runs[1])
        assert (refused.value.reason, refused.value.not_before) == ("tenant_at_capacity", None)
        assert await world.everything() == before
        # The same id finds its own live lease, whatever the room.
        again = await world.store.claim(TENANT, runs[3], held.fence.attempt_id)
        assert again.lease == held.lease
        await world.store.release(held.fence)
        assert (await world.driven(runs[1])).outcome is AgentLoopOutcome.SUCCEEDED

    in_world(work, GRAPH, lease=LONG)


def test_SCH_09_a_dead_worker_takes_no_room_longer_than_its_lease(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        await world.store.set_tenant_limit(TENANT, 2)
        runs = await submitted(world, 4)
        assert len(await claim(world, 4)) == 2
        await world.expire_leases()
        again = await claim(world, 4)
        # The oldest are ready again, at their old places.
        assert [(each.fence.run_id, each.fence.epoch.value) for each in again] == [(runs[0], 2), (runs[1], 2)]
        assert await claim(world, 4) == ()

    in_world(work, GRAPH, lease=LONG)


def test_a_place_that_names_an_earlier_claim_of_a_live_run_is_free(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        await world.store.set_tenant_limit(TENANT, 2)
        runs = await submitted(world, 2)
        for held in await claim(world, 2):
            await world.store.release(held.fence)
        await world.claimed(runs[1])
        assert await places(world) == [(0, runs[1], 2, 2), (1, runs[1], 1, 1)]
        await world.claimed(runs[0])
        assert await places(world) == [(0, runs[1], 2, 2), (1, runs[0], 2, 2)]

    in_world(work, GRAPH, lease=LONG)


def test_a_run_that_sleeps_or_is_over_takes_no_room(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        await world.store.set_tenant_limit(TENANT, 1)
        runs = await submitted(world, 3)
        held = await world.claimed(runs[0])
        await world.store.release(held.fence, delay=timedelta(minutes=5))
        assert (await world.driven(runs[1])).outcome is AgentLoopOutcome.SUCCEEDED
        (third,) = await claim(world, 4)
        assert third.fence.run_id == runs[2]

    in_world(work, GRAPH, lease=LONG)


def test_a_superseding_owner_needs_no_room_and_takes_the_place_over(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        await world.store.set_tenant_limit(TENANT, 1)
        runs = await submitted(world, 2)
        await world.claimed(runs[0])
        await world.store.supersede(TENANT, runs[0], AttemptId.generate())
        assert await places(world) == [(0, runs[0], 2, 2)]
        await world.store.supersede(TENANT, runs[1], AttemptId.generate())
        assert await live(world) == 2
        assert await places(world) == [(0, runs[0], 2, 2)]
        assert await claim(world, 4) == ()

    in_world(work, GRAPH, lease=LONG)


def test_a_limit_may_be_raised_lowered_and_lifted(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        store = world.store
        assert await store.tenant_limit(TENANT) is None
        await submitted(world, 9)
        uncounted = await claim(world, 2)
        await store.set_tenant_limit(TENANT, 4)
        assert len(await claim(world, 9)) == 4
        await store.set_tenant_limit(TENANT, 1)
        assert await store.tenant_limit(TENANT) == 1
        assert await claim(world, 9) == ()
        assert len(await places(world)) == 4
        await store.set_tenant_limit(TENANT, 5)
        assert [slot for slot, *_ in await places(world)] == [0, 1, 2, 3, 4]
        assert len(await claim(world, 9)) == 1
        await store.set_tenant_limit(TENANT, None)
        assert await store.tenant_limit(TENANT) is None
        assert len(await claim(world, 9)) == 9 - len(uncounted) - 5
        assert await store.tenant_limit(TenantId("another")) is None

    in_world(work, GRAPH, lease=LONG)


def test_who_has_no_room_is_not_dealt_a_turn(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        await submitted(world, 2)
        discovery = DurableRunDiscovery(world.store, world.executables)

        async def ready() -> tuple[TenantId, ...]:
            """Say who has work: the same whether the tenant was named or found."""
            named, found = await discovery.ready_among([TENANT]), await discovery.ready_tenants()
            assert named == found
            return found

        await world.store.set_tenant_limit(TENANT, 1)
        assert await ready() == (TENANT,)
        (held,) = await claim(world, 1)
        assert await ready() == ()
        await world.store.release(held.fence)
        assert await ready() == (TENANT,)
        await claim(world, 1)
        await world.expire_leases()
        assert await ready() == (TENANT,)

    in_world(work, GRAPH, lease=LONG)


@pytest.mark.parametrize("beyond", [0, 1_025])
def test_limits_have_bounds(in_world: InWorld, beyond: int) -> None:
    async def work(world: DriveWorld) -> None:
        for bound in (1, 1_024):
            await world.store.set_tenant_limit(TENANT, bound)
        before: Any = await world.everything()
        with pytest.raises(InvalidOptionError) as refused:
            await world.store.set_tenant_limit(TENANT, beyond)
        assert (refused.value.option, refused.value.bound) == ("maximum_live", "1..1024")
        assert await world.everything() == before

    in_world(work, GRAPH)
