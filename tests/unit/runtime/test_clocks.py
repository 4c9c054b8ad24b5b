"""What a process knows of the database's time, and when the owner of a lease must have stopped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.lease import RunFence, RunLease
from agentruns.domain.numbers import FencingEpoch
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.runtime.clock import DatabaseClock
from agentruns.runtime.held_lease import HeldLease
from agentruns.testing.samples import sample_id

NOON = Timestamp.from_datetime(datetime(2026, 6, 1, 12, tzinfo=UTC))


class Monotonic:
    """The process's monotonic clock, moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_a_stamp_is_the_last_answer_carried_forward_on_the_monotonic_clock() -> None:
    monotonic = Monotonic()
    clock = DatabaseClock(monotonic)
    known = [clock.has_observation]
    clock.observe(NOON)
    known.append(clock.has_observation)
    assert known == [False, True]
    assert clock.stamp() == NOON
    monotonic.seconds += 1.5
    assert clock.stamp() == NOON.plus(timedelta(seconds=1.5))


def test_without_an_answer_there_is_no_stamp() -> None:
    with pytest.raises(RuntimeError, match="no statement has brought"):
        DatabaseClock(Monotonic()).stamp()


def test_an_older_answer_is_no_news_and_a_newer_one_is() -> None:
    monotonic = Monotonic()
    clock = DatabaseClock(monotonic)
    clock.observe(NOON)
    monotonic.seconds += 10
    clock.observe(NOON.plus(timedelta(seconds=9)))
    assert clock.stamp() == NOON.plus(timedelta(seconds=10))
    clock.observe(NOON.plus(timedelta(seconds=11)))
    assert clock.stamp() == NOON.plus(timedelta(seconds=11))


def test_a_refused_stamp_takes_the_clock_back() -> None:
    clock = DatabaseClock(Monotonic())
    clock.observe(NOON.plus(timedelta(hours=1)))
    clock.correct(NOON)
    assert clock.stamp() == NOON


@given(delays=st.lists(st.tuples(st.floats(0, 10), st.floats(0, 2)), min_size=1, max_size=20))
def test_a_stamp_is_never_ahead_of_the_database(delays: list[tuple[float, float]]) -> None:
    monotonic = Monotonic()
    clock = DatabaseClock(monotonic)
    for pause, transit in delays:
        monotonic.seconds += pause
        read = NOON.plus(timedelta(seconds=monotonic.seconds))
        monotonic.seconds += transit
        clock.observe(read)
        assert clock.stamp() <= NOON.plus(timedelta(seconds=monotonic.seconds))


def held(*, duration: timedelta, observed: timedelta, sent_at: float) -> HeldLease:
    """A lease that began at noon, observed that much later by an answer whose request was sent at ``sent_at``."""
    fence = RunFence(
        tenant_id=TenantId("tenant-a"),
        run_id=sample_id(RunId, 1),
        attempt_id=sample_id(AttemptId, 2),
        epoch=FencingEpoch(1),
    )
    lease = RunLease(fence=fence, acquired_at=NOON, renewed_at=NOON, expires_at=NOON.plus(duration))
    return HeldLease(lease=lease, observed_at=NOON.plus(observed), sent_at=sent_at)


def test_the_deadline_counts_from_before_the_request_and_leaves_a_thirtieth() -> None:
    lease = held(duration=timedelta(seconds=30), observed=timedelta(seconds=10), sent_at=1000.0)
    assert lease.deadline(timedelta(seconds=30)) == pytest.approx(1000.0 + 20.0 - 1.0)


@given(sent_at=st.floats(-1e6, 1e6), rate=st.floats(0.99, 1.01), transit=st.floats(0, 5), seconds=st.floats(0.1, 300))
def test_DRV_09_the_deadline_comes_before_the_lease_can_be_taken_over(
    sent_at: float, rate: float, transit: float, seconds: float
) -> None:
    duration = timedelta(seconds=seconds)
    # The database reads its clock after the request has arrived, and grants the lease from there.
    lease = held(duration=duration, observed=timedelta(0), sent_at=sent_at)
    assert lease.deadline(duration) < sent_at + transit + duration.total_seconds() * rate


@given(
    rate=st.floats(0.99, 1.01),
    transit=st.floats(0, 5),
    seconds=st.floats(0.1, 300),
    seen=st.floats(0, 1, exclude_max=True),
)
def test_DRV_09_nor_does_a_later_look_at_a_lease_move_the_deadline_past_its_end(
    rate: float, transit: float, seconds: float, seen: float
) -> None:
    duration = timedelta(seconds=seconds)
    observed = duration * seen
    lease = held(duration=duration, observed=observed, sent_at=1000.0)
    # What is left by the database's clock, which the request reached after its transit, passes at the database's rate.
    left = (duration - observed).total_seconds()
    assert lease.deadline(duration) < 1000.0 + transit + left / rate
