"""Who gets a run's lease: claims by name, and what refuses them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.scalars import TenantId
from agentruns.domain.status import RunStatus
from agentruns.errors import (
    DatabaseClockRegressionError,
    NotYetAvailableError,
    RefusedError,
    RunNotFoundError,
    RunNotRunnableError,
    RunQuarantinedError,
)
from agentruns.testing.drives import TENANT, DriveWorld, chain
from agentruns.testing.movable_clock import MovableClock
from agentruns.testing.strangers import Stranger

InWorld = Callable[..., None]

LEASE = timedelta(seconds=12)
MICROSECOND = timedelta(microseconds=1)
GRAPH = chain(a=lambda _context: Finish({}))


async def run_row(world: DriveWorld) -> Any:
    (row,) = await world.rows("SELECT * FROM agentruns.runs")
    return row


def test_LEA_02_each_claim_raises_the_epoch_by_one_and_nothing_else_does(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await run_row(world)).fencing_epoch == 0
        for epoch in (1, 2, 3):
            held = await world.claimed(run_id)
            assert held.fence.epoch.value == epoch
            await world.store.renew(held.fence, desired=held.lease.expires_at.plus(LEASE))
            await world.store.release(held.fence)
            assert (await run_row(world)).fencing_epoch == epoch

    in_world(work, GRAPH)


def test_a_claim_writes_the_lease_that_it_answers(in_world: InWorld, clock: MovableClock) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await clock.advance(timedelta(minutes=1))
        attempt_id = AttemptId.generate()
        held = await world.store.claim(TENANT, run_id, attempt_id)
        now, row = await clock.now(), await run_row(world)
        assert held.observed_at.to_datetime() == now
        assert (row.lease_acquired_at, row.lease_renewed_at, row.lease_expires_at) == (now, now, now + LEASE)
        assert held.lease.expires_at.to_datetime() == now + LEASE
        assert (str(row.lease_attempt_id), row.fencing_epoch) == (attempt_id.text, 1)

    in_world(work, GRAPH)


def test_LEA_05_the_same_id_while_its_lease_lives_is_answered_with_that_lease(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id, attempt_id = await world.submitted(), AttemptId.generate()
        first = await world.store.claim(TENANT, run_id, attempt_id)
        before = await world.everything()
        again = await world.store.claim(TENANT, run_id, attempt_id)
        assert again.lease == first.lease
        assert await world.everything() == before

    in_world(work, GRAPH)


@pytest.mark.parametrize("is_released", [True, False])
def test_LEA_04_an_id_whose_lease_has_ended_is_a_new_claim_with_the_next_epoch(
    in_world: InWorld, clock: MovableClock, *, is_released: bool
) -> None:
    async def work(world: DriveWorld) -> None:
        run_id, attempt_id = await world.submitted(), AttemptId.generate()
        first = await world.store.claim(TENANT, run_id, attempt_id)
        if is_released:
            await world.store.release(first.fence)
        else:
            await clock.advance(LEASE)
        second = await world.store.claim(TENANT, run_id, attempt_id)
        assert (first.fence.epoch.value, second.fence.epoch.value) == (1, 2)
        assert second.fence.attempt_id == attempt_id

    in_world(work, GRAPH)


@pytest.mark.parametrize("count", [2, 16])
def test_LEA_06_one_of_many_concurrent_claims_gets_the_lease(in_world: InWorld, count: int) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        answers = await asyncio.gather(*(world.claimed(run_id) for _ in range(count)), return_exceptions=True)
        (claimed,) = (answer for answer in answers if not isinstance(answer, BaseException))
        refused = [answer for answer in answers if isinstance(answer, NotYetAvailableError)]
        assert len(refused) == count - 1
        assert {(error.reason, error.not_before) for error in refused} == {("leased", claimed.lease.expires_at)}
        assert (await run_row(world)).fencing_epoch == 1

    in_world(work, GRAPH)


async def _quarantined(world: DriveWorld) -> None:
    await world.rows("UPDATE agentruns.runs SET quarantined_at = clock_timestamp()")


async def _terminal(world: DriveWorld) -> None:
    await world.rows("UPDATE agentruns.runs SET status = 'failed', revision = 2, scheduler_ready_at = NULL")


async def _waiting(world: DriveWorld) -> None:
    await world.rows("UPDATE agentruns.runs SET status = 'waiting', revision = 2, scheduler_ready_at = NULL")


async def _exhausted(world: DriveWorld) -> None:
    await world.rows("UPDATE agentruns.runs SET fencing_epoch = 9223372036854775807")


async def _without_checkpoint(world: DriveWorld) -> None:
    await world.rows("UPDATE agentruns.runs SET superstep = NULL, checkpoint_digest = NULL, scheduler_ready_at = NULL")


@pytest.mark.parametrize(
    ("arrange", "error", "reason"),
    [
        (_quarantined, RunQuarantinedError, "quarantined"),
        (_terminal, RunNotRunnableError, "terminal"),
        (_waiting, RunNotRunnableError, "waiting"),
        (_without_checkpoint, RunNotRunnableError, "no_checkpoint"),
        (_exhausted, RefusedError, "epoch_exhausted"),
    ],
)
def test_a_claim_says_why_it_is_refused_and_changes_nothing(
    in_world: InWorld, arrange: Callable[[DriveWorld], Any], error: type[RefusedError], reason: str
) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await arrange(world)
        before = await world.everything()
        with pytest.raises(error) as refusal:
            await world.claimed(run_id)
        assert type(refusal.value) is error
        assert (refusal.value.reason, refusal.value.run_id) == (reason, run_id)
        assert await world.everything() == before

    in_world(work, GRAPH)


def test_B1_a_run_that_has_ended_is_claimed_by_nobody(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await world.driven(run_id)
        before = await world.everything()
        with pytest.raises(RunNotRunnableError) as refusal:
            await world.claimed(run_id)
        assert (refusal.value.reason, refusal.value.status) == ("terminal", RunStatus.SUCCEEDED)
        assert refusal.value.revision == (await world.loaded(run_id)).revision
        assert await world.everything() == before

    in_world(work, GRAPH)


@pytest.mark.parametrize("is_foreign", [True, False])
def test_a_run_that_the_tenant_does_not_have_is_not_found(in_world: InWorld, *, is_foreign: bool) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        tenant = TenantId("tenant-b") if is_foreign else TENANT
        wanted = run_id if is_foreign else RunId.generate()
        with pytest.raises(RunNotFoundError) as error:
            await world.store.claim(tenant, wanted, AttemptId.generate())
        assert (error.value.tenant_id, error.value.id) == (tenant, wanted)

    in_world(work, GRAPH)


def test_LEA_27_a_gate_refuses_a_microsecond_before_its_instant_and_permits_at_it(
    in_world: InWorld, clock: MovableClock
) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        held = await world.claimed(run_id)
        await clock.advance(timedelta(0))
        await world.store.release(held.fence, delay=timedelta(seconds=30))
        gate = (await run_row(world)).scheduler_not_before
        assert gate == await clock.now() + timedelta(seconds=30)
        await clock.set(gate - MICROSECOND)
        with pytest.raises(NotYetAvailableError) as refusal:
            await world.claimed(run_id)
        assert (refusal.value.reason, refusal.value.not_before.to_datetime()) == ("deferred", gate)  # type: ignore[attr-defined]  # an instant
        await clock.set(gate)
        assert (await world.claimed(run_id)).fence.epoch.value == 2
        assert (await run_row(world)).scheduler_not_before is None

    in_world(work, GRAPH)


def test_LEA_27_a_lease_keeps_others_away_until_the_instant_of_its_end(in_world: InWorld, clock: MovableClock) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        expires_at = (await world.claimed(run_id)).lease.expires_at
        await clock.set(expires_at.to_datetime() - MICROSECOND)
        with pytest.raises(NotYetAvailableError) as refusal:
            await world.claimed(run_id)
        assert (refusal.value.reason, refusal.value.not_before) == ("leased", expires_at)
        await clock.set(expires_at.to_datetime())
        assert (await world.claimed(run_id)).fence.epoch.value == 2

    in_world(work, GRAPH)


@pytest.mark.parametrize("is_same_id", [True, False])
def test_LEA_26_a_clock_before_the_lease_s_renewal_gives_no_lease(
    in_world: InWorld, clock: MovableClock, *, is_same_id: bool
) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await clock.advance(timedelta(minutes=1))
        held = await world.claimed(run_id)
        before = await world.everything()
        await clock.advance(-MICROSECOND)
        attempt_id = held.fence.attempt_id if is_same_id else AttemptId.generate()
        with pytest.raises(DatabaseClockRegressionError):
            await world.store.claim(TENANT, run_id, attempt_id)
        assert await world.everything() == before

    in_world(work, GRAPH)


def test_LEA_26_a_clock_before_the_run_was_ready_gives_no_lease(in_world: InWorld, clock: MovableClock) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await clock.set((await run_row(world)).scheduler_ready_at - MICROSECOND)
        with pytest.raises(DatabaseClockRegressionError):
            await world.claimed(run_id)
        assert (await run_row(world)).fencing_epoch == 0

    in_world(work, GRAPH)


def test_C2_a_claim_that_waits_for_the_row_decides_by_the_clock_after_the_wait(
    in_world: InWorld, clock: MovableClock
) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        expires_at = (await world.claimed(run_id)).lease.expires_at.to_datetime()
        stranger = Stranger(world.url)
        async with stranger.holding(run_id):
            claiming = asyncio.create_task(world.claimed(run_id))
            await stranger.see_waiting()
            await clock.set(expires_at + timedelta(seconds=1))
        held = await claiming
        assert held.fence.epoch.value == 2
        # The new lease counts from after the wait, so it is not born short.
        assert held.lease.acquired_at.to_datetime() == expires_at + timedelta(seconds=1)
        assert held.lease.expires_at.to_datetime() == expires_at + timedelta(seconds=1) + LEASE

    in_world(work, GRAPH)
