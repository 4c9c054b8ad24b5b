"""Turns in a shared cycle: reserved once, in the order of the cycle, whoever asks and however often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.fairness import TenantFairnessPolicy
from agentruns.domain.ids import ReservationId
from agentruns.domain.scalars import ShardId, TenantId
from agentruns.errors import DeploymentError, IdConflictError, InvalidValueError
from agentruns.runtime.fair_shard import FairShard, FairTurn
from agentruns.runtime.store import AgentRunStore
from agentruns.testing.strangers import Stranger

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Within = Callable[[str, Callable[[Any], Any]], Any]

A, B, C = TenantId("a"), TenantId("b"), TenantId("c")
POLICY = TenantFairnessPolicy.of({"a": 3, "b": 1, "c": 2})
SHARD = ShardId("main")
ALL = (A, B, C)


def fresh(count: int) -> list[ReservationId]:
    return [ReservationId.generate() for _ in range(count)]


@pytest.fixture
def in_shard(database_url: str, run: Run) -> Callable[[Callable[[FairShard], Coroutine[Any, Any, None]]], None]:
    """Run a test with a published shard, under the runtime role."""

    def call(work: Callable[[FairShard], Coroutine[Any, Any, None]]) -> None:
        async def within() -> None:
            async with AgentRunStore(database_url) as store:
                shard = FairShard(store, SHARD, POLICY)
                await shard.publish()
                await work(shard)

        run(within())

    return call


InShard = Callable[[Callable[[FairShard], Coroutine[Any, Any, None]]], None]


async def rows(shard: FairShard) -> list[tuple[int, int]]:
    """Read what was reserved, in order, from the database itself."""
    statement = "SELECT sequence, slot FROM agentruns.scheduler_fairness_reservations ORDER BY sequence"
    found = await shard._store.run(lambda work: work.connection.exec_driver_sql(statement).all())
    return [(row.sequence, row.slot) for row in found]


async def place(shard: FairShard) -> tuple[int, int]:
    statement = "SELECT next_slot, next_sequence FROM agentruns.scheduler_fairness_shards"
    row = await shard._store.run(lambda work: work.connection.exec_driver_sql(statement).one())
    return row.next_slot, row.next_sequence


def walked(turns: tuple[FairTurn, ...]) -> list[tuple[int, TenantId, int]]:
    return [(turn.slot, turn.tenant_id, turn.bound) for turn in turns]


def test_turns_are_those_of_the_cycle_and_say_whose_they_are(in_shard: InShard) -> None:
    async def work(shard: FairShard) -> None:
        ids = fresh(8)
        turns = await shard.reserve(ids, ALL)
        assert [turn.reservation_id for turn in turns] == ids
        assert [turn.sequence for turn in turns] == list(range(8))
        assert [turn.slot for turn in turns] == [0, 1, 2, 3, 4, 5, 0, 1] == shard.cycle.walk(0, ALL, 8)
        assert [turn.tenant_id for turn in turns] == [*shard.cycle.turns, *shard.cycle.turns[:2]]
        assert [turn.bound for turn in turns] == [shard.cycle.bounds[turn.tenant_id] for turn in turns]
        assert await place(shard) == (2, 8)

    in_shard(work)


def test_who_has_no_work_is_passed_over_and_the_next_turn_follows_the_last_one(in_shard: InShard) -> None:
    async def work(shard: FairShard) -> None:
        next_slot = 0
        for eligible, count in (([B], 2), ([A, C], 5), ([C], 1), (list(ALL), 4)):
            expected = shard.cycle.walk(next_slot, eligible, count)
            turns = await shard.reserve(fresh(count), eligible)
            assert [turn.slot for turn in turns] == expected
            next_slot = (expected[-1] + 1) % len(shard.cycle)
            assert (await place(shard))[0] == next_slot
        assert [sequence for sequence, _ in await rows(shard)] == list(range(12))

    in_shard(work)


def test_SCH_06_concurrent_reservations_leave_no_gap_and_the_slots_of_a_serial_walk(in_shard: InShard) -> None:
    async def work(shard: FairShard) -> None:
        counts = [1, 3, 2, 5, 1, 7, 1, 4] * 4
        answers = await asyncio.gather(*(shard.reserve(fresh(count), ALL) for count in counts))
        total = sum(counts)
        serial = shard.cycle.walk(0, ALL, total)
        assert await rows(shard) == list(enumerate(serial))
        for count, turns in zip(counts, answers, strict=True):
            first = turns[0].sequence
            assert [(turn.sequence, turn.slot) for turn in turns] == list(enumerate(serial))[first : first + count]
        assert await place(shard) == (total % len(shard.cycle), total)

    in_shard(work)


def test_SCH_06_the_same_list_at_once_and_again_is_one_set_of_turns(in_shard: InShard) -> None:
    async def work(shard: FairShard) -> None:
        await shard.reserve(fresh(1), ALL)
        ids = fresh(5)
        answers = await asyncio.gather(*(shard.reserve(ids, ALL) for _ in range(12)))
        again = await shard.reserve(ids, [B])  # who has work by now does not matter
        assert {tuple(walked(turns)) for turns in answers} == {tuple(walked(again))}
        assert [turn.sequence for turn in again] == [1, 2, 3, 4, 5]
        assert await rows(shard) == list(enumerate(shard.cycle.walk(0, ALL, 6)))
        assert await place(shard) == (0, 6)

    in_shard(work)


def test_SCH_06_the_same_list_that_waits_for_the_same_row_inserts_once(in_shard: InShard, owner_url: str) -> None:
    async def work(shard: FairShard) -> None:
        ids = fresh(3)
        engine = create_async_engine(owner_url, poolclass=NullPool)
        async with engine.connect() as holder, holder.begin():
            await holder.execute(text("SELECT 1 FROM agentruns.scheduler_fairness_shards FOR UPDATE"))
            asked = [asyncio.create_task(shard.reserve(ids, ALL)) for _ in range(2)]
            await Stranger(owner_url).see_waiting(2)
        first, second = await asyncio.gather(*asked)
        assert walked(first) == walked(second)
        assert await rows(shard) == [(0, 0), (1, 1), (2, 2)]
        assert await place(shard) == (3, 3)
        await engine.dispose()

    in_shard(work)


def test_ids_of_another_list_are_a_conflict_and_change_nothing(in_shard: InShard) -> None:
    async def work(shard: FairShard) -> None:
        ids = fresh(2)
        await shard.reserve(ids, ALL)
        before = await rows(shard), await place(shard)
        for others in ([*ids, *fresh(1)], [*fresh(1), ids[0]], ids[::-1]):
            with pytest.raises(IdConflictError) as refused:
                await shard.reserve(others, ALL)
            assert refused.value.kind == "reservation"
        assert (await rows(shard), await place(shard)) == before

    in_shard(work)


@pytest.mark.parametrize(
    ("ids", "eligible", "reason"),
    [
        ([], ALL, "out_of_range"),
        (fresh(65), ALL, "out_of_range"),
        (fresh(1) * 2, ALL, "duplicate"),
        (fresh(1), [], "empty"),
        (fresh(1), [TenantId("d")], "unknown_tenant"),
    ],
)
def test_what_cannot_be_reserved_is_refused_before_anything_is_sent(
    in_shard: InShard, ids: list[ReservationId], eligible: Any, reason: str
) -> None:
    async def work(shard: FairShard) -> None:
        with pytest.raises(InvalidValueError) as refused:
            await shard.reserve(ids, eligible)
        assert refused.value.reason == reason
        assert (await rows(shard), await place(shard)) == ([], (0, 0))

    in_shard(work)


def test_a_shard_keeps_its_policy_for_ever(in_shard: InShard) -> None:
    async def work(shard: FairShard) -> None:
        await shard.publish()
        others = FairShard(shard._store, SHARD, TenantFairnessPolicy.of({"a": 3, "b": 1, "c": 3}))
        with pytest.raises(IdConflictError) as refused:
            await others.publish()
        assert (refused.value.kind, refused.value.id) == ("fairness_policy", SHARD)
        with pytest.raises(DeploymentError) as unpublished:
            await others.reserve(fresh(1), ALL)
        assert unpublished.value.reason == "fairness_policy_not_published"
        another = FairShard(shard._store, ShardId("second"), others.cycle.policy)
        await asyncio.gather(*(another.publish() for _ in range(12)))
        (turn,) = await another.reserve(fresh(1), ALL)
        assert (turn.sequence, turn.slot) == (0, 0)
        assert await place_of(another) == (1, 1)

    async def place_of(shard: FairShard) -> tuple[int, int]:
        statement = "SELECT next_slot, next_sequence FROM agentruns.scheduler_fairness_shards WHERE shard_id = 'second'"
        row = await shard._store.run(lambda work: work.connection.exec_driver_sql(statement).one())
        return row.next_slot, row.next_sequence

    in_shard(work)
