"""Which runs may go: those that are over, for long enough by the database's clock, and that nothing waits for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve

from agentruns.operations.retention import RetentionPolicy
from agentruns.testing.movable_clock import MovableClock

HOUR = timedelta(hours=1)
MICROSECOND = timedelta(microseconds=1)
NOW = datetime(2026, 3, 4, 5, 6, 7, 8, UTC)
KEEPS = {"succeeded": 2 * HOUR, "failed": 3 * HOUR, "cancelled": 4 * HOUR}
POLICY = RetentionPolicy(
    keep_succeeded=KEEPS["succeeded"],
    keep_failed=KEEPS["failed"],
    keep_cancelled=KEEPS["cancelled"],
    retry_guarantee=HOUR,
)


@pytest.fixture
def at(archive: Any, run: Any) -> Any:
    """Hold the database's clock at an instant."""
    clock = MovableClock(archive.url)
    run(clock.install())
    run(clock.set(NOW))
    return NOW


def test_each_status_is_kept_for_its_own_time_to_the_microsecond(archive: Any, at: datetime, sample: Any) -> None:
    old = {status: sample(status=status, since=at - keep - MICROSECOND) for status, keep in KEEPS.items()}
    young = {status: sample(status=status, since=at - keep) for status, keep in KEEPS.items()}
    archive.write(*old.values(), *young.values())
    assert archive.removed(POLICY) == [3]
    assert archive.left() == {each.run_id for each in young.values()}


def test_a_run_that_is_not_over_never_goes(archive: Any, at: datetime, sample: Any) -> None:
    ages = at - 1000 * HOUR
    live = [sample(status=status, since=ages) for status in ("active", "waiting", "cancellation_requested")]
    archive.write(*live)
    before = archive.everything()
    assert archive.steps(evolve(POLICY, include_quarantined=True)) == []
    assert archive.everything() == before


@pytest.mark.parametrize("status", ["active", "waiting", "cancellation_requested", "succeeded", "failed", "cancelled"])
def test_a_quarantined_run_goes_only_when_asked_and_is_kept_longest(
    archive: Any, at: datetime, sample: Any, status: str
) -> None:
    longest = max(KEEPS.values())
    old, young = (
        sample(status=status, since=at - 1000 * HOUR, quarantined_at=at - longest - age)
        for age in (MICROSECOND, timedelta(0))
    )
    archive.write(old, young)
    assert archive.steps(POLICY) == []
    assert archive.removed(evolve(POLICY, include_quarantined=True)) == [1]
    assert archive.left() == {young.run_id}


@pytest.mark.parametrize("status", ["pending", "delivering", "retry_scheduled"])
@pytest.mark.parametrize("is_quarantined", [False, True])
def test_an_open_delivery_keeps_its_run(
    archive: Any, at: datetime, sample: Any, status: str, *, is_quarantined: bool
) -> None:
    long_ago = at - 1000 * HOUR
    each = sample(since=long_ago, quarantined_at=long_ago if is_quarantined else None)
    is_delivering = status == "delivering"
    delivery = {"status": status, "next_attempt_at": at, "attempt_expires_at": at if is_delivering else None}
    archive.write(each, outbox_deliveries=delivery)
    policy = evolve(POLICY, include_quarantined=True)
    assert archive.steps(policy) == []
    assert archive.plans(policy) == []
    archive.execute(
        "UPDATE agentruns.outbox_deliveries SET status = 'dead_letter', next_attempt_at = NULL,"
        " attempt_expires_at = NULL"
    )
    assert archive.removed(policy) == [1]


def test_days_are_of_24_hours_in_every_time_zone(archive: Any, at: datetime, sample: Any) -> None:
    """The night in which clocks there go forward lies between."""
    keep = timedelta(days=30)
    policy = RetentionPolicy(keep_succeeded=keep, keep_failed=keep, keep_cancelled=keep)
    now = at + timedelta(days=28)
    archive.execute("UPDATE moved.clock SET at = :now", now=now)
    ended = now - keep
    old, young = sample(since=ended - MICROSECOND), sample(since=ended)
    archive.write(old, young)
    database = archive.url.partition("?")[0].rpartition("/")[2]
    archive.execute(f"ALTER DATABASE {database} SET TimeZone = 'Europe/Berlin'")
    assert archive.removed(policy) == [1]
    assert archive.left() == {young.run_id}


def test_another_tenants_runs_stay(archive: Any, sample: Any) -> None:
    foreign = [sample(tenant=name) for name in ("tenant-", "tenant-aa", "tenant-A", "tenant_a")]
    archive.write(sample(), *foreign)
    assert archive.removed() == [1]
    assert archive.left() == {each.run_id for each in foreign}


def test_all_tenants_have_to_be_said(archive: Any, sample: Any) -> None:
    tenants = ("a", "b", "c:d", "z")
    samples = [sample(tenant=name) for name in tenants]
    archive.write(*samples, sample(tenant="b"), sample(tenant="m", status="active"))
    steps = archive.steps(all_tenants=True)
    assert [(step.tenant_id.text, step.run_count) for step in steps] == [("a", 1), ("b", 2), ("c:d", 1), ("z", 1)]
