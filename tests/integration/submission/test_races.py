"""Transactions that meet at one key, and calls that meet in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncSession

from agentruns.domain.submission import MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey

Run = Callable[[Coroutine[Any, Any, Any]], Any]


COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT


ONE_RUN = {"agent_admissions": 1, "agent_submission_keys": 1, "run_checkpoints": 1, "run_events": 1, "runs": 1}


def fresh() -> AgentSubmissionKey:
    return AgentSubmissionKey.generate()


def test_A7_at_read_committed_the_second_waits_for_the_first(kit: Any, run: Run) -> None:
    async def work(*, commits: bool) -> tuple[Any, Any]:
        async with kit.runs() as runs, kit.engine() as engine:
            key = fresh()
            async with engine.connect() as one, engine.connect() as two, two.begin():
                transaction = await one.begin()
                first = await runs.submit(key, kit.request(), session=one)
                second = asyncio.create_task(runs.submit(key, kit.request(), session=two))
                await waits_for_lock(engine)
                await (transaction.commit() if commits else transaction.rollback())
                answer = await second
                await two.commit()
            return first, answer

    first, second = run(work(commits=False))
    assert second.outcome is COMMITTED
    assert second.snapshot.provenance.run_id != first.snapshot.provenance.run_id
    first, second = run(work(commits=True))
    assert (second.outcome, second.snapshot) == (IDEMPOTENT, first.snapshot)


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("commits", [True, False])
def test_A7_at_stricter_levels_a_lost_race_is_the_servers_own_error(
    kit: Any,
    run: Run,
    level: str,
    commits: bool,  # noqa: FBT001
) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine(isolation_level=level) as engine:
            key = fresh()
            async with engine.connect() as one, engine.connect() as two, two.begin():
                await two.execute(text("SELECT 1"))
                transaction = await one.begin()
                await runs.submit(key, kit.request(), session=one)
                second = asyncio.create_task(runs.submit(key, kit.request(), session=two))
                await waits_for_lock(engine)
                await (transaction.commit() if commits else transaction.rollback())
                if not commits:
                    assert (await second).outcome is COMMITTED
                    return
                with pytest.raises(DBAPIError) as failure:
                    await second
                assert getattr(failure.value.orig, "sqlstate", "") == "40001"

    run(work())


async def waits_for_lock(engine: Any) -> None:
    """Return when somebody in this database waits for a lock."""
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    async with engine.connect() as connection:
        for _ in range(3000):
            found = (await connection.execute(waiting)).scalar_one()
            await connection.rollback()
            if found:
                return
            await asyncio.sleep(0.01)
    raise AssertionError("nobody waits")


def test_S6_a_joined_submit_is_sent_alone_and_own_ones_go_on(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs(pool_size=2) as runs, kit.engine() as engine, engine.connect() as connection:
            transaction = await connection.begin()
            own = [asyncio.create_task(runs.submit(fresh(), kit.request())) for _ in range(30)]
            joined = await runs.submit(fresh(), kit.request(), session=connection)
            assert joined.outcome is COMMITTED
            assert [each.outcome for each in await asyncio.gather(*own)] == [COMMITTED] * 30
            await transaction.rollback()

    run(work())
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, 30)


def test_O2_one_session_for_two_calls_at_once_leaves_no_partial_run(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine, AsyncSession(engine) as session:
            answers = await asyncio.gather(
                *(runs.submit(fresh(), kit.request(), session=session) for _ in range(2)), return_exceptions=True
            )
            assert any(isinstance(each, InvalidRequestError) for each in answers)
            await session.rollback()
            assert (await session.execute(text("SELECT 1"))).scalar_one() == 1

    run(work())
    assert run(kit.rows()) == {}
