"""What is ready to be claimed, as it is listed for people, is what is claimed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from agentruns.domain.digests import plain_digest
from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import InvalidOptionError
from agentruns.runtime.discovery import DurableRunDiscovery
from agentruns.store.discovery import ReadyCursor, ReadyPage
from agentruns.testing.drives import TENANT, DriveWorld, chain
from agentruns.testing.movable_clock import MovableClock
from agentruns.testing.strangers import Stranger

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
MICROSECOND = timedelta(microseconds=1)
GRAPH = chain(a=lambda _context: Finish({}))
DIGEST = GRAPH.graph.reference.definition_digest

#: What may have become of a run, and whether it is ready all the same.
STATES = {
    "quarantined_at = now()": False,
    "status = 'waiting', scheduler_ready_at = NULL": False,
    "status = 'succeeded', scheduler_ready_at = NULL": False,
    "status = 'cancellation_requested'": True,
    "superstep = NULL, checkpoint_digest = NULL, scheduler_ready_at = NULL": False,
    "fencing_epoch = 9223372036854775807": False,
    "fencing_epoch = 9223372036854775806": True,
    "graph_definition_digest = sha256('another')": False,
    "graph_definition_digest = NULL": False,
    "scheduler_not_before = clock_timestamp() + interval '1 h'": False,
    "scheduler_not_before = scheduler_ready_at": True,
    "scheduler_ready_at = clock_timestamp() + interval '1 h'": False,
    "fencing_epoch = 1, lease_attempt_id = run_id, lease_acquired_at = now(), lease_renewed_at = now(),"
    " lease_expires_at = clock_timestamp() + interval '1 h'": False,
    "fencing_epoch = 1, lease_attempt_id = run_id, lease_acquired_at = now() - interval '1 h',"
    " lease_renewed_at = now() - interval '1 h', lease_expires_at = now() - interval '1 min'": True,
}


def discovery_of(world: DriveWorld) -> DurableRunDiscovery:
    return DurableRunDiscovery(world.store, world.executables)


def runs_of(page: ReadyPage) -> list[RunId]:
    return [each.run_id for each in page.runs]


async def pages(world: DriveWorld, *, limit: int) -> AsyncIterator[ReadyPage]:
    discovery, cursor = discovery_of(world), None
    while True:
        page = await discovery.discover_ready(TENANT, limit=limit, cursor=cursor)
        yield page
        if page.cursor is None:
            return
        cursor = page.cursor


async def claimed(world: DriveWorld, *, limit: int = 64) -> list[RunId]:
    ids = [AttemptId.generate() for _ in range(limit)]
    digests = world.executables.graph_digests
    return [
        each.fence.run_id
        for each in await world.store.claim_ready(TENANT, limit, attempt_ids=ids, graph_digests=digests)
    ]


def test_SCH_01_what_is_listed_is_what_a_claim_takes_in_the_same_order(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_ids = [await world.submitted() for _ in range(len(STATES) + 2)]
        for run_id, state in zip(run_ids, STATES, strict=False):
            await world.rows(
                f"UPDATE agentruns.runs SET {state} WHERE run_id = cast(:run_id AS uuid)",  # noqa: S608  # stands above
                run_id=run_id.text,
            )
        # The last one is the oldest: the order is not that of the ids.
        await world.rows(
            "UPDATE agentruns.runs SET scheduler_ready_at = '2020-01-01Z' WHERE run_id = cast(:run_id AS uuid)",
            run_id=run_ids[-1].text,
        )
        ready_ones = [run_id for run_id, is_ready in zip(run_ids, STATES.values(), strict=False) if is_ready]
        before = await world.everything()
        page = await discovery_of(world).discover_ready(TENANT)
        assert await world.everything() == before
        assert runs_of(page) == [run_ids[-1], *ready_ones, run_ids[-2]]
        assert page.cursor is None
        assert {each.graph_digest for each in page.runs} == {DIGEST}
        assert page.runs[0].available_at == Timestamp.parse("2020-01-01T00:00:00.000000Z")
        assert (await discovery_of(world).discover_ready(TenantId("another"))).runs == ()
        assert await claimed(world) == runs_of(page)
        assert runs_of(await discovery_of(world).discover_ready(TENANT)) == []

    in_world(work, GRAPH, lease=LONG)


def test_SCH_01_the_pages_of_a_list_are_judged_at_one_instant(in_world: InWorld, clock: MovableClock) -> None:
    async def work(world: DriveWorld) -> None:
        discovery = discovery_of(world)
        run_ids = [await world.submitted() for _ in range(5)]
        await clock.advance(SECOND)
        gated = await world.claimed(run_ids[4])
        await world.store.release(gated.fence, delay=SECOND)
        first = await discovery.discover_ready(TENANT, limit=2)
        assert runs_of(first) == run_ids[:2]
        assert first.cutoff_at == Timestamp.from_datetime(await clock.now())
        assert first.cursor == ReadyCursor(
            cutoff_at=first.cutoff_at, available_at=first.runs[1].available_at, run_id=run_ids[1]
        )
        # Later: a gate is past, a run is new, and one of those that are left was claimed.
        await clock.advance(2 * SECOND)
        late = await world.submitted()
        await world.claimed(run_ids[2])
        second = await discovery.discover_ready(TENANT, limit=2, cursor=first.cursor)
        assert (runs_of(second), second.cutoff_at, second.cursor) == ([run_ids[3]], first.cutoff_at, None)
        anew = runs_of(await discovery.discover_ready(TENANT))
        assert (anew[:3], sorted(anew[3:])) == ([*run_ids[:2], run_ids[3]], [run_ids[4], late])

    in_world(work, GRAPH, lease=LONG)


def test_a_cutoff_that_lies_ahead_shows_nothing_that_is_not_ready_yet(in_world: InWorld, clock: MovableClock) -> None:
    async def work(world: DriveWorld) -> None:
        discovery = discovery_of(world)
        ready_one, gated = [await world.submitted() for _ in range(2)]
        await clock.advance(SECOND)
        await world.store.release((await world.claimed(gated)).fence, delay=SECOND)
        (first,) = (await discovery.discover_ready(TENANT)).runs
        assert first.run_id == ready_one
        ahead = Timestamp.from_datetime(await clock.now()).plus(timedelta(hours=1))
        cursor = ReadyCursor(cutoff_at=ahead, available_at=first.available_at, run_id=first.run_id)
        page = await discovery.discover_ready(TENANT, cursor=cursor)
        assert (page.runs, page.cutoff_at) == ((), Timestamp.from_datetime(await clock.now()))
        before = evolve(cursor, available_at=Timestamp.STORED_MIN)
        assert runs_of(await discovery.discover_ready(TENANT, cursor=before)) == [ready_one]

    in_world(work, GRAPH, lease=LONG)


def test_SCH_10_a_gate_is_listed_and_claimed_at_its_instant_and_not_a_microsecond_before(
    in_world: InWorld, clock: MovableClock
) -> None:
    async def work(world: DriveWorld) -> None:
        discovery = discovery_of(world)
        released, deferred = [await world.submitted() for _ in range(2)]
        await clock.advance(timedelta(0))
        await world.store.release((await world.claimed(released)).fence, delay=SECOND)
        held = await world.claimed(deferred)
        run = await world.store.observe(held.fence)
        not_before = Timestamp.from_datetime(await clock.now()).plus(SECOND)
        assert await world.store.defer(held.fence, head=run.head, not_before=not_before)
        await clock.advance(SECOND - MICROSECOND)
        assert runs_of(await discovery.discover_ready(TENANT)) == []
        assert await discovery.ready_tenants() == ()
        assert await claimed(world) == []
        await clock.advance(MICROSECOND)
        assert runs_of(await discovery.discover_ready(TENANT)) == sorted([released, deferred])
        assert await discovery.ready_tenants() == (TENANT,)
        assert await claimed(world) == sorted([released, deferred])

    in_world(work, GRAPH, lease=LONG)


def test_SCH_11_a_run_of_another_graph_is_neither_found_nor_touched(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        await world.submitted()
        await world.rows("UPDATE agentruns.runs SET graph_definition_digest = sha256('another')")
        before = await world.everything()
        discovery = discovery_of(world)
        assert (await discovery.discover_ready(TENANT)).runs == ()
        assert await discovery.ready_tenants() == await discovery.ready_among([TENANT]) == ()
        assert await claimed(world) == []
        assert await world.everything() == before
        digests = [plain_digest(b"another")]
        found = await world.store.read(lambda work: work.discovery.ready_tenants(digests, after=None, limit=1))
        assert found == (TENANT,)

    in_world(work, GRAPH, lease=LONG)


def test_SCH_18_one_claim_for_all_idle_slots_takes_the_runs_that_single_ones_take(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_ids = [await world.submitted() for _ in range(7)]
        await world.rows(
            "UPDATE agentruns.runs SET scheduler_ready_at = now() - abs(hashtext(run_id::text)) * '1 us'::interval"
        )
        in_line = runs_of(await discovery_of(world).discover_ready(TENANT))
        assert sorted(in_line) == sorted(run_ids) != in_line
        assert [run_id async for page in pages(world, limit=3) for run_id in runs_of(page)] == in_line
        assert await claimed(world, limit=4) == in_line[:4]
        assert [await claimed(world, limit=1) for _ in range(2)] == [in_line[4:5], in_line[5:6]]
        assert await claimed(world, limit=4) == in_line[6:]
        assert await claimed(world, limit=4) == []

    in_world(work, GRAPH, lease=LONG)


def test_SCH_19_what_cannot_be_claimed_makes_no_claim_of_its_neighbours_fail(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        exhausted, held, foreign, *others = [await world.submitted() for _ in range(6)]
        for run_id, state in (
            (exhausted, "fencing_epoch = 9223372036854775807"),
            (foreign, "graph_definition_digest = sha256('another')"),
        ):
            await world.rows(
                f"UPDATE agentruns.runs SET {state} WHERE run_id = cast(:run_id AS uuid)",  # noqa: S608  # stands above
                run_id=run_id.text,
            )
        async with Stranger(world.url).holding(held):
            # Who looks does not lock, and so sees the run that is held.
            assert runs_of(await discovery_of(world).discover_ready(TENANT)) == [held, *others]
            assert await discovery_of(world).ready_tenants() == (TENANT,)
            assert await claimed(world) == others
        assert await claimed(world) == [held]

    in_world(work, GRAPH, lease=LONG)


@pytest.mark.parametrize("limit", [0, 65])
def test_pages_have_bounds(in_world: InWorld, limit: int) -> None:
    async def work(world: DriveWorld) -> None:
        discovery = discovery_of(world)
        calls = (discovery.discover_ready(TENANT, limit=limit), discovery.ready_tenants(limit=limit))
        for call in (*calls, discovery.due_tenants(limit=limit)):
            with pytest.raises(InvalidOptionError) as refused:
                await call
            assert (refused.value.option, refused.value.bound) == ("limit", "1..64")
        unknown: Any = "tenant-a"
        for misused in (discovery.discover_ready(unknown), discovery.ready_tenants(after=unknown)):
            with pytest.raises(TypeError):
                await misused

    in_world(work, GRAPH)
