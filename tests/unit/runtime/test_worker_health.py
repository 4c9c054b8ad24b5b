"""Whether a worker can do its work: what each thing that it meets makes of its health."""

from __future__ import annotations

import pytest
from attrs import define

from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.worker_health import NODE_THREADS_EXHAUSTED, HealthRecord, WorkerHealth, WorkerStatus

STARTING, READY = WorkerHealth(status=WorkerStatus.STARTING), WorkerHealth(status=WorkerStatus.READY)
UNAVAILABLE = WorkerHealth(status=WorkerStatus.UNAVAILABLE, reason="store_unavailable")
DEGRADED = WorkerHealth(status=WorkerStatus.DEGRADED, reason="node_threads_exhausted")
DRAINING, STOPPED = WorkerHealth(status=WorkerStatus.DRAINING), WorkerHealth(status=WorkerStatus.STOPPED)


@define
class Surroundings:
    """What a record is told from outside."""

    now: float = 100.0
    are_exhausted: bool = False


@pytest.fixture
def around() -> Surroundings:
    return Surroundings()


@pytest.fixture
def record(around: Surroundings) -> HealthRecord:
    return HealthRecord(lambda: NODE_THREADS_EXHAUSTED if around.are_exhausted else None, monotonic=lambda: around.now)


def test_it_is_ready_once_a_claim_was_answered_and_not_before(record: HealthRecord, around: Surroundings) -> None:
    assert record.health == STARTING
    record.begin(ShutdownSignal())
    around.now += 3600
    assert record.health == STARTING
    record.answered()
    assert record.health == READY


def test_ready_means_that_the_last_answer_is_younger_than_twenty_seconds(
    record: HealthRecord, around: Surroundings
) -> None:
    record.begin(ShutdownSignal())
    record.answered()
    around.now += 19.999
    assert record.health == READY
    around.now += 0.001
    assert record.health == UNAVAILABLE
    record.answered_a_question()
    assert record.health == READY


def test_while_claims_fail_only_a_claim_says_that_they_no_longer_do(record: HealthRecord) -> None:
    """A server that has become a standby answers every question and commits no claim."""
    record.begin(ShutdownSignal())
    record.answered()
    record.failed()
    record.failed()
    assert (record.health, record.failures, record.silence) == (UNAVAILABLE, 2, None)
    record.answered_a_question()
    assert record.health == UNAVAILABLE
    record.answered()
    assert (record.health, record.failures, record.silence) == (READY, 0, 0.0)


def test_a_first_claim_that_fails_is_told_as_well(record: HealthRecord) -> None:
    record.begin(ShutdownSignal())
    record.failed()
    assert record.health == UNAVAILABLE


def test_without_threads_it_is_degraded_as_long_as_it_reaches_the_database(
    record: HealthRecord, around: Surroundings
) -> None:
    around.are_exhausted = True
    record.begin(ShutdownSignal())
    assert record.health == STARTING
    record.answered()
    assert record.health == DEGRADED
    record.failed()
    assert record.health == UNAVAILABLE


def test_it_drains_with_its_signal_and_stops_with_its_work_whatever_the_database_does(record: HealthRecord) -> None:
    shutdown = ShutdownSignal()
    record.begin(shutdown)
    record.failed()
    shutdown.drain()
    assert record.health == DRAINING
    record.end()
    assert record.health == STOPPED


def test_a_worker_that_begins_again_knows_nothing_of_before(record: HealthRecord) -> None:
    record.begin(ShutdownSignal())
    record.answered()
    record.failed()
    record.end()
    record.begin(ShutdownSignal())
    assert (record.health, record.failures, record.silence) == (STARTING, 0, None)


@pytest.mark.parametrize(
    ("health", "is_live", "is_ready"),
    [
        (STARTING, True, False),
        (READY, True, True),
        (DEGRADED, False, True),
        (WorkerHealth(status=WorkerStatus.DEGRADED), True, True),
        (UNAVAILABLE, True, False),
        (DRAINING, True, False),
        (STOPPED, False, False),
    ],
)
def test_only_what_a_new_process_cures_is_not_live(health: WorkerHealth, *, is_live: bool, is_ready: bool) -> None:
    assert (health.is_live, health.is_ready) == (is_live, is_ready)
