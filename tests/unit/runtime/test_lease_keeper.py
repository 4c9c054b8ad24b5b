"""Keep a lease against a store that is a script: when it is renewed, to what, and what ends the work under it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import define, evolve, field

from agentruns.domain.digests import plain_digest
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.lease import LeaseObservation, RunFence, RunLease
from agentruns.domain.ledger.event import JournalHead
from agentruns.domain.numbers import FencingEpoch, JournalSequence, RunRevision, Superstep
from agentruns.domain.scalars import TenantId
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import (
    AgentRunsError,
    LeaseLostError,
    RefusedError,
    RunQuarantinedError,
    StoreUnavailableError,
)
from agentruns.runtime.clock import DatabaseClock
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.lease_keeper import LeaseKeeper
from agentruns.runtime.lease_renewals import LeaseRenewals, RenewedLease
from agentruns.store.options import StoreOptions
from agentruns.testing.samples import sample_id

Within = Callable[[Callable[[], Awaitable[None]]], None]

NOON = Timestamp.from_datetime(datetime(2026, 6, 1, 12, tzinfo=UTC))
LEASE = timedelta(seconds=0.3)
INTERVAL = timedelta(seconds=0.1)
FENCE = RunFence(
    tenant_id=TenantId("tenant-a"),
    run_id=sample_id(RunId, 1),
    attempt_id=sample_id(AttemptId, 2),
    epoch=FencingEpoch(1),
)


def seconds() -> float:
    return time.monotonic()


@define
class Store:
    """Renew as the database would, or raise what stands in the script.

    Attributes:
        faults: raised by the next renewals; ``None`` is no fault.
        fault: raised by every further one.
        seen: what a look at the run finds.
        renews: what happens before a renewal is answered.
        asked: what each renewal wanted, and the database's instant of it.
    """

    options: StoreOptions
    clock: DatabaseClock = field(factory=lambda: DatabaseClock(seconds))
    lease_renewals: LeaseRenewals = field(factory=LeaseRenewals)
    faults: list[AgentRunsError | None] = field(factory=list)
    fault: AgentRunsError | None = None
    hangs: bool = False
    seen: RunLease | None = None
    renews: Callable[[], Awaitable[None]] | None = None
    asked: list[tuple[Timestamp, Timestamp]] = field(factory=list)

    async def renew(self, fence: RunFence, *, desired: Timestamp) -> HeldLease:
        if self.renews is not None:
            await self.renews()
        sent_at, now = time.monotonic(), self.clock.stamp()
        self.asked.append((desired, now))
        await asyncio.sleep(1000 if self.hangs else 0)
        fault = self.faults.pop(0) if self.faults else self.fault
        if fault is not None:
            raise fault
        lease = RunLease(fence=fence, acquired_at=NOON, renewed_at=now, expires_at=desired)
        return HeldLease(lease=lease, observed_at=now, sent_at=sent_at)

    async def observe(self, fence: RunFence) -> LeaseObservation:
        assert self.seen is not None
        assert self.seen.fence == fence
        return LeaseObservation(
            lease=self.seen,
            observed_at=self.clock.stamp(),
            status=RunStatus.ACTIVE,
            revision=RunRevision(1),
            head=JournalHead(sequence=JournalSequence(1), digest=plain_digest(b"head"), recorded_at=NOON),
            superstep=Superstep(0),
        )


class Hanging(LeaseRenewals):
    """Renewals that never come."""

    def join(self, lease: RenewedLease) -> None:
        """Take the lease and do nothing for it."""


def kept(**changes: Any) -> tuple[Store, LeaseKeeper]:
    """A store, and the keeper of a lease that has just been claimed."""
    duration = changes.pop("lease", LEASE)
    options = StoreOptions(lease_duration=duration, maximum_lease_horizon=changes.pop("horizon", timedelta(minutes=5)))
    store = evolve(Store(options), **changes)
    store.clock.observe(NOON)
    lease = RunLease(fence=FENCE, acquired_at=NOON, renewed_at=NOON, expires_at=NOON.plus(duration))
    held = HeldLease(lease=lease, observed_at=NOON, sent_at=time.monotonic())
    return store, LeaseKeeper(store, held, interval=INTERVAL)  # type: ignore[arg-type]  # what a keeper needs of a store


def lost(reason: str) -> LeaseLostError:
    return LeaseLostError(tenant_id=FENCE.tenant_id, run_id=FENCE.run_id, reason=reason)


AWAY = StoreUnavailableError(attempts=3, sqlstate="57P01")


def test_work_that_is_longer_than_the_lease_is_kept_alive(within: Within) -> None:
    async def work() -> None:
        store, keeper = kept()
        async with keeper:
            await keeper.guard(asyncio.sleep(0.75))
        assert keeper.renewals == len(store.asked) == 7
        assert all(desired > now.plus(LEASE / 2) for desired, now in store.asked)

    within(work)


def test_a_lease_that_a_commit_extends_is_not_renewed_beside_it(within: Within) -> None:
    async def work() -> None:
        store, keeper = kept()
        async with keeper:
            for _ in range(6):
                await keeper.guard(asyncio.sleep(0.05))
                now = store.clock.stamp()
                lease = evolve(keeper.held.lease, renewed_at=now, expires_at=now.plus(LEASE))
                keeper.extended(HeldLease(lease=lease, observed_at=now, sent_at=time.monotonic()))
        assert store.asked == []

    within(work)


def test_a_renewal_never_asks_for_more_than_the_horizon(within: Within) -> None:
    async def work() -> None:
        store, keeper = kept(horizon=LEASE)
        async with keeper:
            await keeper.guard(asyncio.sleep(0.35))
        assert [desired.minus(now) for desired, now in store.asked] == [LEASE] * 3

    within(work)


def test_an_answer_that_tells_of_an_earlier_end_moves_nothing_back(within: Within) -> None:
    async def work() -> None:
        _, keeper = kept()
        before = keeper.held
        earlier = evolve(before, sent_at=before.sent_at - 1)
        keeper.extended(earlier)
        assert keeper.held is before

    within(work)


@pytest.mark.parametrize("hangs", [True, False])
def test_B10_when_renewals_fail_the_work_ends_before_the_lease_does(within: Within, *, hangs: bool) -> None:
    async def work() -> None:
        lease = timedelta(seconds=0.9)
        _, keeper = kept(fault=AWAY, hangs=hangs, lease=lease)
        began = time.monotonic()
        ended: list[float] = []

        async def node() -> None:
            try:
                await asyncio.sleep(10)
            finally:
                ended.append(time.monotonic() - began)

        async with keeper:
            with pytest.raises(LeaseLostError) as error:
                await keeper.guard(node())
        assert error.value.reason == "expired"
        # A thirtieth of the lease before its end.
        assert ended == [pytest.approx(0.87)]

    within(work)


def test_an_outage_shorter_than_the_rest_of_the_lease_is_survived(within: Within) -> None:
    async def work() -> None:
        _, keeper = kept(faults=[AWAY, AWAY])
        async with keeper:
            await keeper.guard(asyncio.sleep(0.5))
        assert keeper.renewals >= 1

    within(work)


@pytest.mark.parametrize("fault", [lost("stale_fence"), lost("no_lease"), RunQuarantinedError(run_id=FENCE.run_id)])
def test_a_lease_that_is_gone_ends_the_work_with_the_reason(within: Within, fault: AgentRunsError) -> None:
    async def work() -> None:
        _, keeper = kept(fault=fault)
        async with keeper:
            with pytest.raises(type(fault)) as error:
                await keeper.guard(asyncio.sleep(10))
        assert error.value is fault

    within(work)


def test_work_under_a_lease_that_was_lost_before_does_not_go_on(within: Within) -> None:
    async def work() -> None:
        _, keeper = kept(fault=lost("stale_fence"))
        async with keeper:
            await asyncio.sleep(0.15)
            with pytest.raises(LeaseLostError) as error:
                await keeper.guard(asyncio.sleep(10))
        assert error.value.reason == "stale_fence"

    within(work)


def test_a_renewal_that_finds_the_lease_given_back_by_ourselves_is_no_loss(within: Within) -> None:
    async def work() -> None:
        store, keeper = kept(fault=lost("no_lease"))

        async def give_back() -> str:
            await asyncio.sleep(0.095)
            keeper.let_go()
            await asyncio.sleep(0.1)
            return "given back"

        async with keeper:
            assert await keeper.guard(give_back()) == "given back"
        assert store.asked == []

    within(work)


def test_a_renewal_under_way_while_the_lease_is_given_back_is_no_loss(within: Within) -> None:
    async def work() -> None:
        store, keeper = kept(fault=lost("no_lease"))
        renewing = asyncio.Event()

        async def renew() -> None:
            renewing.set()
            await asyncio.sleep(0.05)

        async def give_back() -> str:
            await renewing.wait()
            keeper.let_go()
            await asyncio.sleep(0.1)
            return "given back"

        store.renews = renew
        async with keeper:
            assert await keeper.guard(give_back()) == "given back"

    within(work)


def test_a_renewal_that_a_start_of_ours_has_overtaken_is_no_loss(within: Within) -> None:
    refused = RefusedError(tenant_id=FENCE.tenant_id, run_id=FENCE.run_id, reason="lease_not_extended")

    async def work() -> None:
        store, keeper = kept(faults=[refused])
        longer = store.clock.stamp().plus(LEASE * 2)
        store.seen = evolve(keeper.held.lease, expires_at=longer)
        async with keeper:
            await keeper.guard(asyncio.sleep(0.15))
        assert len(store.asked) == 1
        assert keeper.held.lease.expires_at == longer

    within(work)


@pytest.mark.parametrize("reason", ["lease_horizon", "epoch_exhausted"])
def test_any_other_refusal_of_a_renewal_ends_the_work(within: Within, reason: str) -> None:
    refused = RefusedError(tenant_id=FENCE.tenant_id, run_id=FENCE.run_id, reason=reason)

    async def work() -> None:
        _, keeper = kept(fault=refused)
        async with keeper:
            with pytest.raises(RefusedError) as error:
                await keeper.guard(asyncio.sleep(10))
        assert error.value is refused

    within(work)


def test_a_lease_that_is_kept_after_all_is_renewed_again(within: Within) -> None:
    async def work() -> None:
        store, keeper = kept()

        async def due() -> None:
            keeper.let_go()
            await asyncio.sleep(0.15)
            assert store.asked == []
            keeper.keep()
            await asyncio.sleep(0.4)

        async with keeper:
            await keeper.guard(due())
        assert keeper.renewals >= 2

    within(work)


def test_what_the_work_raises_and_returns_passes_through(within: Within) -> None:
    async def fails() -> None:
        raise KeyError("mine")

    async def returns() -> str:
        return "mine"

    async def work() -> None:
        _, keeper = kept()
        async with keeper:
            assert await keeper.guard(returns()) == "mine"
            with pytest.raises(KeyError):
                await keeper.guard(fails())

    within(work)


def test_cancelling_whoever_waits_ends_the_work_first(within: Within) -> None:
    async def work() -> None:
        _, keeper = kept()
        ended = asyncio.Event()

        async def node() -> None:
            try:
                await asyncio.sleep(10)
            finally:
                await asyncio.sleep(0.02)
                ended.set()

        async with keeper:
            waiting = asyncio.create_task(keeper.guard(node()))
            await asyncio.sleep(0.02)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert ended.is_set()

    within(work)


def test_whoever_waits_may_go_on_after_the_lease_of_its_work_was_lost(within: Within) -> None:
    async def work() -> None:
        _, keeper = kept(fault=lost("stale_fence"))
        task = asyncio.current_task()
        assert task is not None
        async with keeper:
            with pytest.raises(LeaseLostError) as error:
                await keeper.guard(asyncio.sleep(10))
        assert error.value.reason == "stale_fence"
        assert error.value.__context__ is None
        assert task.cancelling() == 0
        await asyncio.sleep(0)

    within(work)


def test_work_that_ends_by_itself_while_its_lease_is_lost_has_ended(within: Within) -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "ended"

    async def work() -> None:
        _, keeper = kept(fault=lost("stale_fence"))
        task = asyncio.current_task()
        assert task is not None
        async with keeper:
            assert await keeper.guard(stubborn()) == "ended"
        assert task.cancelling() == 0

    within(work)


def test_a_cancellation_of_whoever_waits_goes_before_the_loss_of_the_lease(within: Within) -> None:
    async def work() -> None:
        _, keeper = kept(fault=lost("stale_fence"))
        losing = asyncio.Event()

        async def node() -> None:
            try:
                await asyncio.sleep(10)
            finally:
                losing.set()
                await asyncio.sleep(0.05)

        async def driven() -> None:
            async with keeper:
                await keeper.guard(node())

        waiting = asyncio.create_task(driven())
        await losing.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    within(work)


def test_the_watchdog_needs_nobody_who_renews(within: Within) -> None:
    async def work() -> None:
        store, keeper = kept()
        store.lease_renewals = Hanging()
        async with keeper:
            with pytest.raises(LeaseLostError) as error:
                # Nothing else ends this within the time that a test has.
                await keeper.guard(asyncio.sleep(10))
        assert error.value.reason == "expired"
        assert store.asked == []

    within(work)


@pytest.mark.parametrize(("left", "renewals"), [(0.2, 1), (0.8, 0)])
def test_a_lease_is_renewed_at_once_when_at_most_half_of_it_is_left(within: Within, left: float, renewals: int) -> None:
    async def work() -> None:
        store, keeper = kept(lease=timedelta(seconds=1))
        lease = evolve(keeper.held.lease, expires_at=NOON.plus(timedelta(seconds=left)))
        held = evolve(keeper.held, lease=lease, sent_at=time.monotonic())
        async with LeaseKeeper(store, held, interval=INTERVAL) as other:  # type: ignore[arg-type]  # as above
            await other.guard(asyncio.sleep(0.05))
        assert other.renewals == len(store.asked) == renewals

    within(work)


def test_a_renewal_asks_for_one_lease_from_now_however_often_it_comes(within: Within) -> None:
    async def work() -> None:
        store, keeper = kept()
        async with keeper:
            for _ in range(5):
                await keeper.renew()
                await asyncio.sleep(0.01)
        # It asks before it is sent, and its clock is never ahead of the database's.
        assert [desired.minus(now) for desired, now in store.asked] == [LEASE] * 5

    within(work)


def test_renewals_that_bring_nothing_are_not_repeated_without_a_pause(within: Within) -> None:
    refused = RefusedError(tenant_id=FENCE.tenant_id, run_id=FENCE.run_id, reason="lease_not_extended")

    async def work() -> None:
        store, keeper = kept(fault=refused, lease=timedelta(seconds=2))
        store.seen = keeper.held.lease
        async with keeper:
            await keeper.guard(asyncio.sleep(0.4))
        assert 2 <= len(store.asked) <= 7

    within(work)


def test_outside_of_its_block_a_keeper_guards_nothing(within: Within) -> None:
    async def work() -> None:
        _, keeper = kept()
        with pytest.raises(LeaseLostError) as error:
            await keeper.guard(asyncio.sleep(10))
        assert error.value.reason == "no_lease"

    within(work)
