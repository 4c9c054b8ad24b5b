"""What the owner of a lease may do with it, and what is refused, by the database's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import (
    DatabaseClockRegressionError,
    LeaseLostError,
    RefusedError,
    RunNotFoundError,
    RunQuarantinedError,
    StaleHeadError,
)
from agentruns.runtime.held_lease import HeldLease
from agentruns.testing.drives import DriveWorld, chain, fan
from agentruns.testing.hand_driven import HandDriven
from agentruns.testing.movable_clock import MovableClock
from agentruns.testing.strangers import Stranger

InWorld = Callable[..., None]

LEASE = timedelta(seconds=12)
HORIZON = timedelta(minutes=5)
MICROSECOND = timedelta(microseconds=1)
GRAPH = chain(a=lambda _context: None, b=lambda _context: Finish({}))


async def run_row(world: DriveWorld) -> Any:
    (row,) = await world.rows("SELECT * FROM agentruns.runs")
    return row


async def owned(world: DriveWorld) -> HeldLease:
    return await world.claimed(await world.submitted())


def at(held: HeldLease, by: timedelta) -> Timestamp:
    """An instant beside the end of a lease."""
    return held.lease.expires_at.plus(by)


# --- renew -----------------------------------------------------------------------------------------------------------


def test_LEA_07_a_renewal_moves_renewal_and_end_and_nothing_else(in_world: InWorld, clock: MovableClock) -> None:
    async def work(world: DriveWorld) -> None:
        held = await owned(world)
        await clock.set(at(held, -MICROSECOND).to_datetime())
        before, now = await run_row(world), await clock.now()
        renewed = await world.store.renew(held.fence, desired=at(held, LEASE))
        after = await run_row(world)
        assert (renewed.fence, renewed.lease.expires_at, renewed.observed_at.to_datetime()) == (
            held.fence,
            at(held, LEASE),
            now,
        )
        moved = {name for name in before._fields if getattr(before, name) != getattr(after, name)}
        assert moved == {"lease_renewed_at", "lease_expires_at"}
        assert (after.lease_renewed_at, after.lease_expires_at) == (now, at(held, LEASE).to_datetime())

    in_world(work, GRAPH)


@pytest.mark.parametrize("is_repeated", [True, False])
def test_LEA_08_at_the_instant_of_its_end_a_lease_is_renewed_no_more(
    in_world: InWorld, clock: MovableClock, *, is_repeated: bool
) -> None:
    async def work(world: DriveWorld) -> None:
        held = await owned(world)
        await clock.set(held.lease.expires_at.to_datetime())
        before = await world.everything()
        # A renewal that asks for what stands there proves bytes, and the look that follows finds no life.
        desired = at(held, timedelta(0) if is_repeated else LEASE)
        with pytest.raises(LeaseLostError) as lost:
            await world.store.renew(held.fence, desired=desired)
        assert lost.value.reason == "expired"
        with pytest.raises(LeaseLostError) as lost:
            await world.store.observe(held.fence)
        assert lost.value.reason == "expired"
        assert await world.everything() == before

    in_world(work, GRAPH)


def test_the_same_renewal_again_extends_nothing(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        held = await owned(world)
        first = await world.store.renew(held.fence, desired=at(held, LEASE))
        before = await world.everything()
        again = await world.store.renew(held.fence, desired=at(held, LEASE))
        assert again.lease == first.lease
        assert await world.everything() == before

    in_world(work, GRAPH)


@pytest.mark.parametrize(("beside_end", "reason"), [(-MICROSECOND, "lease_not_extended"), (HORIZON, "lease_horizon")])
def test_LEA_07_a_renewal_neither_shortens_nor_passes_the_horizon(
    in_world: InWorld, beside_end: timedelta, reason: str
) -> None:
    async def work(world: DriveWorld) -> None:
        held = await owned(world)
        before = await world.everything()
        with pytest.raises(RefusedError) as refusal:
            await world.store.renew(held.fence, desired=at(held, beside_end))
        assert (type(refusal.value), refusal.value.reason) == (RefusedError, reason)
        assert await world.everything() == before

    in_world(work, GRAPH)


def test_LEA_07_a_renewal_may_reach_the_horizon_itself(in_world: InWorld, clock: MovableClock) -> None:
    async def work(world: DriveWorld) -> None:
        held = await owned(world)
        await clock.advance(timedelta(0))
        farthest = Timestamp.from_datetime(await clock.now() + HORIZON)
        with pytest.raises(RefusedError) as refusal:
            await world.store.renew(held.fence, desired=farthest.plus(MICROSECOND))
        assert refusal.value.reason == "lease_horizon"
        assert (await world.store.renew(held.fence, desired=farthest)).lease.expires_at == farthest

    in_world(work, GRAPH)


# --- observe ---------------------------------------------------------------------------------------------------------


def test_an_owner_sees_its_run(in_world: InWorld, clock: MovableClock) -> None:
    async def work(world: DriveWorld) -> None:
        held = await owned(world)
        await clock.set(at(held, -MICROSECOND).to_datetime())
        before = await world.everything()
        seen = await world.store.observe(held.fence)
        snapshot, row = await world.loaded(held.fence.run_id), await run_row(world)
        assert (seen.lease, seen.observed_at) == (held.lease, at(held, -MICROSECOND))
        assert (seen.status, seen.revision) == (snapshot.status, snapshot.revision)
        assert (seen.head.sequence.value, seen.head.digest.raw) == (row.head_sequence, row.head_digest)
        assert seen.superstep.value == 0
        assert await world.everything() == before

    in_world(work, GRAPH)


# --- release ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [None, timedelta(seconds=7)])
def test_LEA_09_a_release_clears_the_lease_keeps_the_epoch_and_sets_the_delay(
    in_world: InWorld, clock: MovableClock, delay: timedelta | None
) -> None:
    async def work(world: DriveWorld) -> None:
        held = await owned(world)
        await clock.advance(timedelta(seconds=1))
        now = await clock.now()
        await world.store.release(held.fence, delay=delay)
        row = await run_row(world)
        assert (row.fencing_epoch, row.lease_attempt_id, row.lease_expires_at) == (1, None, None)
        assert row.scheduler_ready_at == now
        assert row.scheduler_not_before == (None if delay is None else now + delay)

    in_world(work, GRAPH)


def test_LEA_09_a_release_again_is_a_success_and_changes_nothing(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        held = await owned(world)
        await world.store.release(held.fence)
        before = await world.everything()
        await world.store.release(held.fence, delay=timedelta(seconds=1))
        assert await world.everything() == before

    in_world(work, GRAPH)


def test_LEA_09_a_release_never_clears_the_lease_of_another_attempt(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        held = await owned(world)
        other = evolve(held.fence, attempt_id=AttemptId.generate())
        before = await world.everything()
        with pytest.raises(LeaseLostError) as lost:
            await world.store.release(other)
        assert lost.value.reason == "stale_fence"
        assert await world.everything() == before

    in_world(work, GRAPH)


def test_an_owner_that_nobody_has_superseded_lets_go_of_an_expired_lease(
    in_world: InWorld, clock: MovableClock
) -> None:
    async def work(world: DriveWorld) -> None:
        held = await owned(world)
        await clock.set(at(held, timedelta(hours=1)).to_datetime())
        await world.store.release(held.fence)
        assert (await run_row(world)).lease_attempt_id is None

    in_world(work, GRAPH)


# --- defer -----------------------------------------------------------------------------------------------------------


def test_a_deferral_sets_the_gate_and_gives_the_lease_back_in_one(in_world: InWorld, clock: MovableClock) -> None:
    async def work(world: DriveWorld) -> None:
        held = await owned(world)
        head = (await world.store.observe(held.fence)).head
        await clock.advance(timedelta(0))
        gate = Timestamp.from_datetime(await clock.now() + MICROSECOND)
        assert await world.store.defer(held.fence, head=head, not_before=gate)
        row = await run_row(world)
        assert (row.lease_attempt_id, row.fencing_epoch) == (None, 1)
        assert row.scheduler_not_before == gate.to_datetime()
        before = await world.everything()
        # The same deferral again finds what the first one left.
        assert await world.store.defer(held.fence, head=head, not_before=gate)
        with pytest.raises(LeaseLostError) as lost:
            await world.store.defer(held.fence, head=head, not_before=gate.plus(MICROSECOND))
        assert lost.value.reason == "no_lease"
        assert await world.everything() == before

    in_world(work, GRAPH)


def test_LEA_27_a_deferral_to_the_present_instant_is_due_and_changes_nothing(
    in_world: InWorld, clock: MovableClock
) -> None:
    async def work(world: DriveWorld) -> None:
        held = await owned(world)
        head = (await world.store.observe(held.fence)).head
        await clock.advance(timedelta(0))
        before = await world.everything()
        now = Timestamp.from_datetime(await clock.now())
        assert not await world.store.defer(held.fence, head=head, not_before=now)
        assert await world.everything() == before

    in_world(work, GRAPH)


def test_a_deferral_planned_at_another_head_is_refused(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        held = await owned(world)
        head = (await world.store.observe(held.fence)).head
        hand = await HandDriven.of(world, held.fence)
        await hand.commit(hand.start())
        before = await world.everything()
        with pytest.raises(StaleHeadError) as stale:
            await world.store.defer(held.fence, head=head, not_before=at(held, LEASE))
        assert stale.value.reason == "journal"
        assert await world.everything() == before

    in_world(work, GRAPH)


# --- refusals that renew, observe, defer and a commit share ----------------------------------------------------------


async def _renew(world: DriveWorld, held: HeldLease, _hand: HandDriven) -> None:
    await world.store.renew(held.fence, desired=at(held, timedelta(minutes=1)))


async def _observe(world: DriveWorld, held: HeldLease, _hand: HandDriven) -> None:
    await world.store.observe(held.fence)


async def _defer(world: DriveWorld, held: HeldLease, hand: HandDriven) -> None:
    assert hand.state.head is not None
    await world.store.defer(held.fence, head=hand.state.head, not_before=at(held, timedelta(minutes=1)))


async def _commit(_world: DriveWorld, _held: HeldLease, hand: HandDriven) -> None:
    await hand.committer.commit(hand.start())


OPERATIONS: list[Any] = [_renew, _observe, _defer, _commit]


@pytest.mark.parametrize(
    ("damage", "error", "reason"),
    [
        ("quarantined_at = now(), lease_attempt_id = NULL", RunQuarantinedError, "quarantined"),
        ("fencing_epoch = 2", LeaseLostError, "stale_fence"),
        ("lease_attempt_id = '01980000-0000-7000-8000-000000000001'", LeaseLostError, "stale_fence"),
        ("lease_attempt_id = NULL", LeaseLostError, "no_lease"),
        ("lease_expires_at = clock_timestamp()", LeaseLostError, "expired"),
        ("lease_renewed_at = now() + interval '1 min', lease_expires_at = now() + interval '1 h'", None, ""),
    ],
)
def test_a_fence_that_is_not_the_live_one_may_do_nothing(
    in_world: InWorld, damage: str, error: type[RefusedError] | None, reason: str
) -> None:
    if "lease_attempt_id = NULL" in damage:
        damage += ", lease_acquired_at = NULL, lease_renewed_at = NULL, lease_expires_at = NULL"

    async def work(world: DriveWorld) -> None:
        held = await owned(world)
        hand = await HandDriven.of(world, held.fence)
        await world.rows(f"UPDATE agentruns.runs SET {damage}")  # noqa: S608  # stands above
        before = await world.everything()
        for operation in OPERATIONS:
            with pytest.raises(error or DatabaseClockRegressionError) as refusal:
                await operation(world, held, hand)
            assert getattr(refusal.value, "reason", "") == reason
        assert await world.everything() == before

    in_world(work, GRAPH)


def test_a_run_that_does_not_exist_is_not_found(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        held = await owned(world)
        hand = await HandDriven.of(world, held.fence)
        await world.rows("DELETE FROM agentruns.runs")
        for operation in OPERATIONS:
            with pytest.raises(RunNotFoundError) as error:
                await operation(world, held, hand)
            assert error.value.id == held.fence.run_id
        with pytest.raises(RunNotFoundError):
            await world.store.release(held.fence)

    in_world(work, GRAPH)


def test_C2_a_commit_that_waits_for_the_row_until_its_lease_has_ended_is_refused(
    in_world: InWorld, clock: MovableClock
) -> None:
    async def work(world: DriveWorld) -> None:
        held = await owned(world)
        hand = await HandDriven.of(world, held.fence)
        stranger = Stranger(world.url)
        async with stranger.holding(held.fence.run_id):
            before = await world.everything()
            tries = [
                asyncio.create_task(hand.committer.commit(hand.start())),
                asyncio.create_task(_renew(world, held, hand)),
            ]
            await stranger.see_waiting(count=2)
            await clock.set(held.lease.expires_at.to_datetime())
        for each in await asyncio.gather(*tries, return_exceptions=True):
            assert isinstance(each, LeaseLostError)
            assert each.reason == "expired"
        assert await world.everything() == before

    in_world(work, GRAPH)


def test_LEA_27_a_commit_stands_a_microsecond_before_the_end_and_not_at_it(
    in_world: InWorld, clock: MovableClock
) -> None:
    async def work(world: DriveWorld) -> None:
        held = await owned(world)
        hand = await HandDriven.of(world, held.fence)
        world.store.clock.monotonic = lambda: 0.0
        await clock.set(at(held, -MICROSECOND).to_datetime())
        started = await hand.commit(hand.start())
        # A start extends the lease, so that node code begins with a fresh one.
        assert started.held is not None
        assert started.held.lease.expires_at == at(held, LEASE - MICROSECOND)
        await clock.set(started.held.lease.expires_at.to_datetime())
        with pytest.raises(LeaseLostError) as lost:
            await hand.commit(hand.complete())
        assert lost.value.reason == "expired"
        assert [row.sequence for row in await world.rows("SELECT sequence FROM agentruns.run_events")] == [1, 2]

    in_world(work, GRAPH)


def test_a_completion_does_not_extend_the_lease(in_world: InWorld, clock: MovableClock) -> None:
    async def work(world: DriveWorld) -> None:
        held = await owned(world)
        hand = await HandDriven.of(world, held.fence)
        started = await hand.commit(hand.start())
        await clock.advance(timedelta(seconds=1))
        world.store.clock.monotonic = lambda: 0.0
        completed = await hand.commit(hand.complete())
        assert started.held is not None
        assert completed.held is not None
        assert completed.held.lease.expires_at == started.held.lease.expires_at

    in_world(work, GRAPH, lease=timedelta(seconds=30))


def test_LEA_26_a_commit_finds_a_clock_that_is_behind_the_head(in_world: InWorld, clock: MovableClock) -> None:
    async def work(world: DriveWorld) -> None:
        held = await owned(world)
        hand = await HandDriven.of(world, held.fence)
        world.store.clock.monotonic = lambda: 0.0
        await clock.advance(timedelta(seconds=1))
        for node in "ab":
            await hand.commit(hand.start(node))
        await clock.advance(timedelta(seconds=1))
        await world.store.observe(held.fence)
        await hand.commit(hand.complete("a"))
        # Behind the last event, but not behind the lease's renewal.
        await clock.advance(timedelta(seconds=-0.5))
        before = await world.everything()
        with pytest.raises(DatabaseClockRegressionError):
            await hand.commit(hand.complete("b"))
        assert await world.everything() == before

    siblings = {"a": lambda _context: None, "b": lambda _context: None}
    in_world(work, fan(first=siblings, last=lambda _context: Finish({})), lease=timedelta(minutes=1))


@pytest.mark.parametrize("run_count", [1, 3])
def test_operations_on_many_runs_answer_each(in_world: InWorld, run_count: int) -> None:
    async def work(world: DriveWorld) -> None:
        held = [await owned(world) for _ in range(run_count)]
        renewed = await asyncio.gather(
            *(world.store.renew(each.fence, desired=at(each, LEASE)) for each in reversed(held))
        )
        assert [each.fence for each in renewed] == [each.fence for each in reversed(held)]
        await asyncio.gather(*(world.store.release(each.fence) for each in held))
        rows = await world.rows("SELECT run_id FROM agentruns.runs WHERE lease_attempt_id IS NULL")
        assert {RunId(str(row.run_id)) for row in rows} == {each.fence.run_id for each in held}

    in_world(work, GRAPH)
