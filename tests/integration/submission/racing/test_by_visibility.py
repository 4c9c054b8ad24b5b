"""A holds a key and we come second: what we are answered depends on what our transaction can see, and on nothing else.

One test for each row of the table, run for each of its columns. The order of events is the server's: a transaction
that should wait is seen waiting before the other one ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from agentruns.domain.submission import MutationOutcome, key_digest
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import (
    AgentAdmissionRejectedError,
    AgentSubmissionConflictError,
    AgentSubmissionNotFoundError,
    StoreUnavailableError,
)
from agentruns.store.transient import sqlstate_of

Race = Callable[[Any], None]

COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT
ONE_RUN = {"agent_admissions": 1, "agent_submission_keys": 1, "run_checkpoints": 1, "run_events": 1, "runs": 1}
TWO_RUNS = dict.fromkeys(ONE_RUN, 2)
SERIALIZATION, DEADLOCK, LOCK_TIMEOUT, CANCELLED = "40001", "40P01", "55P03", "57014"


def fresh() -> AgentSubmissionKey:
    return AgentSubmissionKey.generate()


def same_or_other(arena: Any, *, is_same: bool) -> Any:
    return arena.request(**({} if is_same else {"input": {"n": 2}}))


async def expect_found(submitted: Any, first: Any, *, is_same: bool) -> None:
    """Idempotent or a conflict, by content."""
    if is_same:
        answer = await submitted
        assert (answer.outcome, answer.snapshot) == (IDEMPOTENT, first.snapshot)
        return
    with pytest.raises(AgentSubmissionConflictError) as conflict:
        await submitted
    assert conflict.value.run_id == first.snapshot.provenance.run_id


async def expect_passed_through(party: Any, submitted: Any, sqlstate: str) -> None:
    """The server's own error, and its transaction that can only be rolled back."""
    with pytest.raises(DBAPIError) as failure:
        await submitted
    assert sqlstate_of(failure.value) == sqlstate
    assert not await party.is_usable()
    await party.rollback()


async def ends_well(arena: Any, party: Any, *, way: Any) -> None:
    """What the caller has written before the call, and after it, commits."""
    assert await party.is_usable()
    await party.write()
    await party.commit()
    assert await arena.notes() == (0 if way.is_own else 2)


@asynccontextmanager
async def second(arena: Any, way: Any, runs: Any = None) -> AsyncIterator[Any]:
    """Come with a row of one's own already written, so with a snapshot that is already taken."""
    async with arena.party(way, runs) as party:
        await party.write()
        yield party


@pytest.mark.parametrize("is_same", [True, False])
def test_SUB_06_A_committed_before_our_snapshot(race: Race, way: Any, *, is_same: bool) -> None:
    async def work(arena: Any) -> None:
        key = fresh()
        async with arena.joining() as a:
            first = await a.submit(key, arena.request())
            await a.commit()
        async with second(arena, way) as us:
            await expect_found(us.submit(key, same_or_other(arena, is_same=is_same)), first, is_same=is_same)
            await ends_well(arena, us, way=way)
        assert await arena.rows() == ONE_RUN

    race(work)


@pytest.mark.parametrize("is_same", [True, False])
def test_SUB_06_A_committed_after_our_snapshot(race: Race, way: Any, *, is_same: bool) -> None:
    async def work(arena: Any) -> None:
        key = fresh()
        async with arena.joining() as a, second(arena, way) as us:
            first = await a.submit(key, arena.request())
            await a.commit()
            ours = us.submit(key, same_or_other(arena, is_same=is_same))
            if way.sees_later_commits:
                await expect_found(ours, first, is_same=is_same)
                await ends_well(arena, us, way=way)
            else:
                await expect_passed_through(us, ours, SERIALIZATION)
                await repeat_whole(arena, us, key, first, is_same=is_same)
        assert await arena.rows() == ONE_RUN

    race(work)


async def repeat_whole(arena: Any, party: Any, key: AgentSubmissionKey, first: Any, *, is_same: bool) -> None:
    """The caller repeats the whole transaction, with the same key."""
    assert await arena.notes() == 0
    await party.write()
    await expect_found(party.submit(key, same_or_other(arena, is_same=is_same)), first, is_same=is_same)
    await party.commit()
    assert await arena.notes() == 1


@pytest.mark.parametrize("is_same", [True, False])
def test_SUB_06_A_uncommitted_then_commits(race: Race, way: Any, *, is_same: bool) -> None:
    async def work(arena: Any) -> None:
        key = fresh()
        async with arena.joining() as a, second(arena, way) as us:
            first = await a.submit(key, arena.request())
            ours = asyncio.create_task(us.submit(key, same_or_other(arena, is_same=is_same)))
            await arena.see_waiting(await a.pid)
            await a.commit()
            if way.sees_later_commits:
                await expect_found(ours, first, is_same=is_same)
                await ends_well(arena, us, way=way)
            else:
                await expect_passed_through(us, ours, SERIALIZATION)
                await repeat_whole(arena, us, key, first, is_same=is_same)
        assert await arena.rows() == ONE_RUN

    race(work)


@pytest.mark.parametrize("end", ["rolls back", "rolls back to a savepoint", "dies"])
def test_SUB_06_A_uncommitted_then_rolls_back_or_dies(race: Race, way: Any, end: str) -> None:
    async def work(arena: Any) -> None:
        key, request = fresh(), arena.request(input={"n": 2})
        async with arena.joining() as a, second(arena, way) as us:
            savepoint = await a.connection.begin_nested()
            first = await a.submit(key, arena.request())
            ours = asyncio.create_task(us.submit(key, request))
            pid = await a.pid
            await arena.see_waiting(pid)
            if end == "dies":
                await arena.execute("SELECT pg_terminate_backend(:pid)", pid=pid)
            else:
                await (savepoint.rollback() if "savepoint" in end else a.rollback())
            answer = await ours
            assert answer.outcome is COMMITTED
            assert answer.snapshot.provenance.run_id == request.run_id != first.snapshot.provenance.run_id
            await ends_well(arena, us, way=way)
            with suppress(DBAPIError):
                await a.connection.invalidate() if end == "dies" else await a.rollback()
        assert await arena.rows() == ONE_RUN
        assert await arena.runs.load_by_key(arena.tenant, key) == answer.snapshot

    race(work)


@pytest.mark.parametrize("is_same", [True, False])
def test_SUB_06_A_is_our_own_earlier_call(race: Race, way: Any, *, is_same: bool) -> None:
    async def work(arena: Any) -> None:
        key = fresh()
        async with second(arena, way) as us:
            first = await us.submit(key, arena.request())
            assert first.outcome is COMMITTED
            await expect_found(us.submit(key, same_or_other(arena, is_same=is_same)), first, is_same=is_same)
            await ends_well(arena, us, way=way)
        assert await arena.rows() == ONE_RUN

    race(work)


def test_SUB_06_A_holds_for_longer_than_we_wait_for_a_lock(race: Race, way: Any) -> None:
    options: dict[str, Any] = {"lock_timeout": timedelta(milliseconds=100), "attempts": 2}

    async def work(arena: Any) -> None:
        key = fresh()
        async with (
            arena.kit.runs(publish=False, **options) as runs,
            arena.joining() as a,
            second(arena, way, runs) as us,
        ):
            first = await a.submit(key, arena.request())
            await us.execute("SET LOCAL lock_timeout = '100ms'")
            ours = us.submit(key, arena.request())
            if way.is_own:
                with pytest.raises(StoreUnavailableError) as failure:
                    await ours
                assert (failure.value.attempts, failure.value.sqlstate) == (2, LOCK_TIMEOUT)
            else:
                await expect_passed_through(us, ours, LOCK_TIMEOUT)
            await a.commit()
            await expect_found(us.submit(key, arena.request()), first, is_same=True)
        assert await arena.rows() == ONE_RUN

    race(work)


def test_SUB_06_A_holds_for_longer_than_our_statement_may_run(race: Race, joined: Any) -> None:
    async def work(arena: Any) -> None:
        key = fresh()
        async with arena.joining() as a, second(arena, joined) as us:
            first = await a.submit(key, arena.request())
            await us.execute("SET LOCAL statement_timeout = '100ms'")
            await expect_passed_through(us, us.submit(key, arena.request()), CANCELLED)
            await a.commit()
            await repeat_whole(arena, us, key, first, is_same=True)
        assert await arena.rows() == ONE_RUN

    race(work)


@pytest.mark.usefixtures("own_way")
def test_SUB_06_a_statement_of_our_own_that_is_cancelled_is_sent_again(race: Race) -> None:
    async def work(arena: Any) -> None:
        key = fresh()
        async with arena.joining() as a:
            first = await a.submit(key, arena.request())
            ours = asyncio.create_task(arena.runs.submit(key, arena.request()))
            pid = await a.pid
            for _ in range(2):
                await arena.see_waiting(pid)
                cancelled = (
                    "SELECT pg_cancel_backend(pid), query_start FROM pg_stat_activity"
                    " WHERE :pid = ANY (pg_blocking_pids(pid))"
                )
                ((is_told, began),) = (await arena.execute(cancelled, pid=pid)).all()
                assert is_told
                await gone(arena, pid, began)
            await arena.see_waiting(pid)
            await a.commit()
            await expect_found(ours, first, is_same=True)

    race(work)


async def gone(arena: Any, pid: int, began: datetime) -> None:
    """Return once the statement that began then no longer waits for ``pid``; another one may."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE :pid = ANY (pg_blocking_pids(pid)) AND query_start = :began"
    while (await arena.execute(waiting, pid=pid, began=began)).scalar_one():
        await asyncio.sleep(0.001)


def test_SUB_06_the_deadline_has_passed_and_A_committed_after_our_snapshot(race: Race, way: Any) -> None:
    async def work(arena: Any) -> None:
        key = fresh()
        now = (await arena.execute("SELECT clock_timestamp()")).scalar_one()
        deadline = Timestamp.from_datetime(now).plus_micros(2_500_000)
        async with arena.joining() as a, second(arena, way) as us:
            first = await a.submit(key, arena.request(deadline=deadline))
            await a.commit()
            await arena.execute("SELECT pg_sleep_until(:at)", at=deadline.to_datetime())
            ours = us.submit(key, arena.request(deadline=deadline))
            if way.sees_later_commits:
                await expect_found(ours, first, is_same=True)
            else:
                # No proof that no run exists: only a read in a fresh transaction is.
                with pytest.raises(AgentAdmissionRejectedError) as refused:
                    await ours
                assert refused.value.reason == "deadline"
            await ends_well(arena, us, way=way)
            await expect_found(us.submit(key, arena.request(deadline=deadline)), first, is_same=True)
        assert await arena.rows() == ONE_RUN

    race(work)


def test_SUB_06_two_transactions_with_two_keys_in_opposite_order(race: Race, joined: Any) -> None:
    async def work(arena: Any) -> None:
        one, two = fresh(), fresh()
        async with arena.joining() as a, second(arena, joined) as us:
            # Whoever looks for a deadlock first is its victim.
            await a.execute("SET LOCAL deadlock_timeout = '60s'")
            await us.execute("SET LOCAL deadlock_timeout = '50ms'")
            firsts = [await a.submit(one, arena.request()), await us.submit(two, arena.request())]
            theirs = asyncio.create_task(a.submit(two, arena.request()))
            await arena.see_waiting(await us.pid)
            await expect_passed_through(us, us.submit(one, arena.request()), DEADLOCK)
            answer = await theirs
            assert answer.outcome is COMMITTED
            assert answer.snapshot != firsts[1].snapshot
            await a.commit()
            await repeat_whole(arena, us, one, firsts[0], is_same=True)
        assert await arena.rows() == TWO_RUNS

    race(work)


def test_SUB_06_what_serializable_finds_out_late_is_the_servers_own_error_too(race: Race) -> None:
    """Each looks for the key of the other in vain and then takes its own: one of them must not commit."""

    async def work(arena: Any) -> None:
        one, two = fresh(), fresh()
        async with arena.joining("SERIALIZABLE") as a, arena.joining("SERIALIZABLE") as us:
            for party, key in ((a, two), (us, one)):
                with pytest.raises(AgentSubmissionNotFoundError):
                    await arena.runs.load_by_key(arena.tenant, key, session=party.connection)
            assert (await a.submit(one, arena.request())).outcome is COMMITTED
            await a.commit()
            with pytest.raises(DBAPIError) as failure:
                await submit_and_commit(us, two, arena.request())
            assert sqlstate_of(failure.value) == SERIALIZATION
            await us.rollback()
            assert await arena.rows() == ONE_RUN
            assert (await us.submit(two, arena.request())).outcome is COMMITTED
            await us.commit()
        assert await arena.rows() == TWO_RUNS

    race(work)


@pytest.mark.usefixtures("own_way")
def test_SUB_06_a_set_of_our_own_that_is_a_deadlocks_victim_is_sent_again(race: Race) -> None:
    async def work(arena: Any) -> None:
        options = {"pool_size": 1, "lane_connections": 1}
        async with arena.kit.runs(publish=False, **options) as runs, arena.joining() as a:
            # A set is inserted in the order of the key digests.
            low, middle, high = in_order(arena, fresh(), fresh(), fresh())
            await a.execute("SET LOCAL deadlock_timeout = '60s'")
            held, pid = await a.submit(high, arena.request()), await a.pid
            async with arena.joining() as other:
                await other.submit(middle, arena.request())
                calls = [runs.submit(key, arena.request()) for key in (low, middle, high)]
                ours = [asyncio.create_task(each) for each in calls]
                await arena.see_waiting(await other.pid)
                theirs = asyncio.create_task(a.submit(low, arena.request()))
                await arena.see_blocked(pid)
                # Now the set goes on to what A holds: it closes the circle, so it is the one that finds it.
                await other.rollback()
            lower = await theirs
            await a.commit()
            answers = await asyncio.gather(*ours)
            assert [each.outcome for each in answers[1:]] == [COMMITTED, IDEMPOTENT]
            assert answers[2].snapshot == held.snapshot
            # Either A or the repeated set is the first to insert the key that both of them waited for.
            assert {answers[0].outcome, lower.outcome} == {COMMITTED, IDEMPOTENT}
            assert answers[0].snapshot == lower.snapshot
        assert await arena.rows() == dict.fromkeys(ONE_RUN, 3)

    race(work)


async def submit_and_commit(party: Any, key: AgentSubmissionKey, request: Any) -> None:
    await party.submit(key, request)
    await party.commit()


def in_order(arena: Any, *keys: AgentSubmissionKey) -> list[AgentSubmissionKey]:
    return sorted(keys, key=lambda key: key_digest(arena.tenant, key).raw)
