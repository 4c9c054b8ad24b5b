"""Renew many leases without a database: who goes together, and who waits for nobody."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from attrs import define, field

from agentruns.runtime.lease_renewals import LeaseRenewals

Within = Callable[[Callable[[], Awaitable[None]]], None]

INTERVAL = 0.4


@define(eq=False)
class Lease:
    """A lease that was extended some time ago, and that notes when it is renewed.

    Attributes:
        gate: a renewal waits for it.
        renewals: monotonic instants at which a renewal began.
    """

    extended_at: float
    gate: asyncio.Event = field(factory=asyncio.Event)
    renewals: list[float] = field(factory=list)

    def renewal_at(self, share: float) -> float:
        return self.extended_at + share * INTERVAL

    async def renew(self) -> None:
        self.renewals.append(time.monotonic())
        await self.gate.wait()
        self.extended_at = time.monotonic()


def aged(*shares: float) -> list[Lease]:
    """Leases that were extended that share of an interval ago, whose renewals are answered at once."""
    leases = [Lease(time.monotonic() - share * INTERVAL) for share in shares]
    for lease in leases:
        lease.gate.set()
    return leases


def joined(*leases: Lease) -> LeaseRenewals:
    renewals = LeaseRenewals()
    for lease in leases:
        renewals.join(lease)
    return renewals


def looks(leases: list[Lease]) -> int:
    """Count the looks that renewed something."""
    return len({instant for lease in leases for instant in lease.renewals})


def test_DRV_21_the_oldest_lease_takes_along_what_is_half_as_old_and_nothing_younger(within: Within) -> None:
    async def work() -> None:
        oldest, older, younger = aged(0.8, 0.5, 0.1)
        joined(oldest, older, younger)
        await asyncio.sleep(0.3 * INTERVAL)
        assert [len(each.renewals) for each in (oldest, older, younger)] == [1, 1, 0]
        assert oldest.renewals == older.renewals

    within(work)


def test_DRV_21_leases_of_every_age_are_renewed_at_most_twice_an_interval(within: Within) -> None:
    async def work() -> None:
        leases = aged(*(place / 200 for place in range(200)))
        joined(*leases)
        await asyncio.sleep(4 * INTERVAL)
        assert min(len(lease.renewals) for lease in leases) >= 3
        assert looks(leases) <= 2 * 4 + 1

    within(work)


def test_a_lease_that_is_extended_meanwhile_is_renewed_an_interval_later(within: Within) -> None:
    async def work() -> None:
        (lease,) = aged(0.5)
        joined(lease)
        await asyncio.sleep(0.25 * INTERVAL)
        lease.extended_at = extended_at = time.monotonic()
        await asyncio.sleep(1.3 * INTERVAL)
        assert lease.renewals == [pytest.approx(extended_at + INTERVAL)]

    within(work)


def test_one_that_is_due_before_the_others_is_not_kept_waiting(within: Within) -> None:
    async def work() -> None:
        young, old = aged(0.0, 0.9)
        renewals = joined(young)
        renewals.join(old)
        await asyncio.sleep(0.3 * INTERVAL)
        assert (len(young.renewals), len(old.renewals)) == (0, 1)

    within(work)


def test_a_renewal_that_hangs_delays_no_other_and_is_not_begun_twice(within: Within) -> None:
    async def work() -> None:
        hanging, other = aged(1.0, 1.0)
        hanging.gate.clear()
        joined(hanging, other)
        await asyncio.sleep(2.5 * INTERVAL)
        assert len(hanging.renewals) == 1
        assert len(other.renewals) == 3
        hanging.gate.set()
        await asyncio.sleep(1.3 * INTERVAL)
        assert len(hanging.renewals) == 2

    within(work)


def test_who_has_left_is_renewed_no_more_and_a_renewal_under_way_is_withdrawn(within: Within) -> None:
    async def work() -> None:
        hanging, waiting = aged(1.0, 0.4)
        hanging.gate.clear()
        renewals = joined(hanging, waiting)
        await asyncio.sleep(0.1 * INTERVAL)
        assert (len(hanging.renewals), len(waiting.renewals)) == (1, 0)
        extended_at = hanging.extended_at
        renewals.leave(hanging)
        renewals.leave(waiting)
        hanging.gate.set()
        await asyncio.sleep(1.2 * INTERVAL)
        assert (len(hanging.renewals), len(waiting.renewals)) == (1, 0)
        assert hanging.extended_at == extended_at
        assert [task for task in asyncio.all_tasks() if task.get_name() == "agentruns:renewal"] == []

    within(work)


def test_who_joins_again_while_its_renewal_is_withdrawn_is_renewed_once_that_has_ended(within: Within) -> None:
    async def work() -> None:
        (lease,) = aged(1.0)
        lease.gate.clear()
        renewals = joined(lease)
        await asyncio.sleep(0.1 * INTERVAL)
        renewals.leave(lease)
        renewals.join(lease)
        lease.gate.set()
        await asyncio.sleep(0.1 * INTERVAL)
        assert len(lease.renewals) == 2

    within(work)
