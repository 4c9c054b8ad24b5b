"""Reservations of fair scheduling go when their window is over, and no cycle notices."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from attrs import frozen
from click.testing import CliRunner
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.cli import main
from agentruns.domain.fairness import TenantFairnessPolicy
from agentruns.domain.ids import ReservationId
from agentruns.domain.scalars import ShardId, TenantId
from agentruns.errors import InvalidOptionError, SchemaVerificationError
from agentruns.operations.reservations import MOST_RESERVATIONS, prune_reservations
from agentruns.runtime.fair_shard import FairShard, FairTurn
from agentruns.runtime.store import AgentRunStore
from agentruns.testing.movable_clock import MovableClock

Run = Callable[[Coroutine[Any, Any, Any]], Any]

HOUR = timedelta(hours=1)
MICROSECOND = timedelta(microseconds=1)
POLICY = TenantFairnessPolicy.of({"a": 3, "b": 1, "c": 2})
TENANTS = tuple(map(TenantId, "abc"))
#: Reservations of one shard that are as old as is said, with sequences that nobody has.
OLD = """
INSERT INTO agentruns.scheduler_fairness_reservations (shard_id, reservation_id, sequence, slot, reserved_at)
SELECT :shard, cast('01890000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') AS uuid), 100000 + n, 0,
  clock_timestamp() - cast(:age AS interval) FROM generate_series(1, :count) AS s (n)
"""
#: What another removal would hold.
HELD = "SELECT 1 FROM agentruns.scheduler_fairness_reservations ORDER BY sequence LIMIT 4 FOR UPDATE"
COUNT = "SELECT count(*) AS n FROM agentruns.scheduler_fairness_reservations"
PLACES = "SELECT shard_id, policy, next_slot, next_sequence, xmin FROM agentruns.scheduler_fairness_shards ORDER BY 1"


@frozen
class Shards:
    """Two cycles of the same policy: one is pruned meanwhile, the other one never."""

    archive: Any
    url: str
    run: Run

    def reserve(self, name: str, eligible: Sequence[TenantId], count: int) -> list[tuple[int, int, TenantId]]:
        """Take turns, and say which."""
        ids = [ReservationId.generate() for _ in range(count)]
        return [(turn.sequence, turn.slot, turn.tenant_id) for turn in self.repeat(name, ids, eligible)]

    def repeat(self, name: str, ids: Sequence[ReservationId], eligible: Sequence[TenantId]) -> tuple[FairTurn, ...]:
        async def call() -> tuple[FairTurn, ...]:
            async with AgentRunStore(self.url) as store:
                shard = FairShard(store, ShardId(name), POLICY)
                await shard.publish()
                return await shard.reserve(ids, eligible)

        turns: tuple[FairTurn, ...] = self.run(call())
        return turns

    def grow_old(self, name: str, *, count: int, age: timedelta) -> None:
        self.archive.execute(OLD, shard=name, count=count, age=age)

    def prune(self, window: timedelta = HOUR, *, role: str | None = None, **options: Any) -> int:
        count: int = self.archive.on_connection(lambda each: prune_reservations(each, window, **options), role=role)
        return count

    @property
    def left(self) -> int:
        (row,) = self.archive.execute(COUNT)
        return int(row.n)

    @property
    def places(self) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.archive.execute(PLACES)]


@pytest.fixture
def shards(archive: Any, database_url: str, run: Run) -> Shards:
    return Shards(archive, database_url, run)


def test_SCH_07_pruning_changes_neither_a_cycle_s_place_nor_any_later_turn(shards: Shards, role: str) -> None:
    eligible = [TENANTS, TENANTS[:1], TENANTS[1:], TENANTS[2:], TENANTS]
    for count, each in enumerate(eligible, start=1):
        both = [shards.reserve(name, each, count) for name in ("kept", "pruned")]
        assert both[0] == both[1]
        shards.archive.execute(
            "UPDATE agentruns.scheduler_fairness_reservations SET reserved_at = reserved_at - interval '2 h'"
            " WHERE shard_id = 'pruned'"
        )
        before = shards.places
        assert shards.prune(role=role) == count
        assert shards.places == before
        assert shards.prune(role=role) == 0
    # Nothing is left that a next sequence could be counted from.
    assert shards.left == sum(range(1, 6))


def test_SCH_07_whoever_repeats_a_removed_reservation_takes_a_turn_of_its_own(shards: Shards) -> None:
    ids = [ReservationId.generate() for _ in range(2)]
    first = shards.repeat("main", ids, TENANTS)
    assert shards.repeat("main", ids, TENANTS) == first
    shards.archive.execute("UPDATE agentruns.scheduler_fairness_reservations SET reserved_at = '2020-01-01Z'")
    assert shards.prune() == 2
    again = shards.repeat("main", ids, TENANTS)
    assert [turn.sequence for turn in again] == [2, 3]
    assert [turn.slot for turn in again] == [2, 3]


def test_a_window_is_over_by_the_database_s_clock_and_not_a_microsecond_before(shards: Shards, run: Run) -> None:
    clock = MovableClock(shards.archive.url)
    run(clock.install())
    run(clock.advance(timedelta(0)))
    shards.reserve("main", TENANTS, 3)
    run(clock.advance(HOUR))
    assert shards.prune() == 0
    run(clock.advance(MICROSECOND))
    assert shards.prune() == 3


def test_the_oldest_of_all_shards_go_first_and_no_more_than_were_asked_for(shards: Shards) -> None:
    shards.grow_old("a", count=3, age=2 * HOUR)
    shards.grow_old("b", count=4, age=3 * HOUR)
    assert shards.prune(limit=5) == 5
    rows = shards.archive.execute("SELECT shard_id, sequence FROM agentruns.scheduler_fairness_reservations")
    assert [tuple(row) for row in rows] == [("a", 100002), ("a", 100003)]
    assert shards.prune(limit=5) == 2


def test_what_another_one_removes_is_passed_over_without_waiting(shards: Shards) -> None:
    shards.grow_old("main", count=9, age=2 * HOUR)

    async def work() -> None:
        engine = create_async_engine(shards.archive.url, poolclass=NullPool)
        async with engine.begin() as other, engine.connect() as connection, asyncio.timeout(10):
            await other.exec_driver_sql(HELD)
            counts.append(await connection.run_sync(partial(prune_reservations, window=HOUR)))

    counts: list[int] = []
    shards.run(work())
    assert counts == [5]
    assert shards.left == 4


@pytest.mark.parametrize(
    ("window", "limit", "option"),
    [
        (HOUR - MICROSECOND, 1, "window"),
        (timedelta(days=366) + MICROSECOND, 1, "window"),
        (HOUR, 0, "limit"),
        (HOUR, 10_001, "limit"),
    ],
)
def test_window_and_limit_have_bounds(shards: Shards, window: timedelta, limit: int, option: str) -> None:
    shards.grow_old("main", count=2, age=timedelta(days=999))
    with pytest.raises(InvalidOptionError) as refused:
        shards.prune(window, limit=limit)
    assert refused.value.option == option
    assert shards.left == 2
    assert shards.prune(timedelta(days=366), limit=10_000) == 2


def test_a_runtime_may_not_prune(shards: Shards) -> None:
    shards.grow_old("main", count=2, age=2 * HOUR)
    with pytest.raises(SchemaVerificationError) as refused:
        shards.prune(role=str(make_url(shards.url).username))
    assert refused.value.reason == "missing_privileges"
    assert shards.left == 2


def pruned(shards: Shards, *arguments: str, role: str = "") -> tuple[int, str, str]:
    url = make_url(shards.archive.url)
    shown = (url.set(username=role) if role else url).render_as_string(hide_password=False)
    command = ("retention", "prune-reservations", *arguments)
    done = CliRunner(env={"AGENTRUNS_DATABASE_URL": shown}).invoke(main, command)
    return done.exit_code, done.stdout, done.stderr


def test_the_command_goes_on_until_nothing_is_left(shards: Shards, role: str) -> None:
    shards.grow_old("main", count=MOST_RESERVATIONS + 5, age=48 * HOUR)
    shards.grow_old("young", count=3, age=HOUR)
    code, out, err = pruned(shards, "--window", "1d12h", "--format", "json", role=role)
    assert (code, json.loads(out)) == (0, {"reservations": MOST_RESERVATIONS + 5, "complete": True})
    assert err == "removed 10000 reservations\n"
    assert shards.left == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [((), "--window"), (("--window", "59m"), "1:00:00..366 days"), (("--window", "soon"), "no duration")],
)
def test_a_window_that_is_none_is_refused(shards: Shards, arguments: tuple[str, ...], says: str) -> None:
    code, out, err = pruned(shards, *arguments)
    assert (code, out) == (2, "")
    assert says in err
