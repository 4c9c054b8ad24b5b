"""Calls that are cancelled at random moments leave connections, rows and the next call as they should be."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from sqlalchemy import text

from agentruns.domain.ids import RunId
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import StoreOptions

Run = Callable[[Coroutine[Any, Any, Any]], Any]

COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT
ONE_RUN = {"agent_admissions": 1, "agent_submission_keys": 1, "run_checkpoints": 1, "run_events": 1, "runs": 1}
ROUNDS, AT_ONCE, POOL = 25, 8, 2
LONGEST = 0.02


async def plainly(calls: list[Coroutine[Any, Any, Any]], dice: random.Random) -> list[Any]:
    """Cancel each of the calls by itself, after a moment of its own; some of them before they have begun to wait."""

    async def cancelled(call: Coroutine[Any, Any, Any], moment: float) -> Any:
        task = asyncio.create_task(call)
        await asyncio.sleep(max(moment, 0))
        task.cancel()
        return (await asyncio.gather(task, return_exceptions=True))[0]

    return await asyncio.gather(*(cancelled(call, dice.uniform(-LONGEST / 4, LONGEST)) for call in calls))


async def in_a_group(calls: list[Coroutine[Any, Any, Any]], dice: random.Random) -> list[Any]:
    """Cancel all of the calls at once, as a task group does when its owner is cancelled."""
    tasks: list[asyncio.Task[Any]] = []

    async def group() -> None:
        async with asyncio.TaskGroup() as together:
            tasks.extend(together.create_task(call) for call in calls)

    owner = asyncio.create_task(group())
    await asyncio.sleep(dice.uniform(0, LONGEST))
    owner.cancel()
    await asyncio.gather(owner, return_exceptions=True)
    return await asyncio.gather(*tasks, return_exceptions=True)


async def connections(kit: Any) -> set[int]:
    """The server's processes of the store's connections."""
    ours = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'agentruns'"
    async with kit.engine() as engine, engine.connect() as connection:
        return set((await connection.execute(text(ours))).scalars())


async def run_ids(kit: Any) -> list[RunId]:
    async with kit.engine() as engine, engine.connect() as connection:
        found = await connection.execute(text("SELECT run_id::text FROM agentruns.runs"))
        return [RunId(each) for each in found.scalars()]


async def settled(store: AgentRunStore) -> None:
    """Return once no connection is checked out."""
    pool: Any = store._engine.pool
    async with asyncio.timeout(30):
        while pool.checkedout():
            await asyncio.sleep(0.005)
    assert (pool.size(), pool.checkedin(), pool.overflow()) == (POOL, POOL, 0)


@pytest.mark.direct("it counts backends")
@pytest.mark.parametrize("cancel", [plainly, in_a_group])
def test_SUB_12_two_hundred_cancelled_calls_leave_nothing_half_done(kit: Any, run: Run, cancel: Any) -> None:
    dice = random.Random(12)

    async def work() -> None:
        async with AgentRunStore(kit.url, StoreOptions(pool_size=POOL)) as store:
            runs = DurableAgentRuns(store, kit.executables)
            tenant = kit.request().tenant_id
            await runs.publish(tenant, kit.graph)
            known = await asyncio.gather(*(runs.submit(AgentSubmissionKey.generate(), kit.request()) for _ in range(9)))
            await asyncio.gather(*(runs.load(tenant, each.snapshot.provenance.run_id) for each in known))
            await settled(store)
            before = await connections(kit)
            assert len(before) == POOL
            asked: dict[AgentSubmissionKey, Any] = {}
            for _ in range(ROUNDS):
                fresh = {AgentSubmissionKey.generate(): kit.request() for _ in range(AT_ONCE // 2)}
                asked |= fresh
                calls: list[Any] = [runs.submit(key, request) for key, request in fresh.items()]
                calls += [runs.load(tenant, dice.choice(known).snapshot.provenance.run_id) for _ in range(AT_ONCE // 2)]
                dice.shuffle(calls)
                answers = await cancel(calls, dice)
                assert all(not isinstance(each, Exception) for each in answers)
            await settled(store)
            assert await connections(kit) == before
            await check_runs(kit, runs, asked, len(known))
            await settled(store)
            assert await connections(kit) == before

    run(work())


async def check_runs(kit: Any, runs: DurableAgentRuns, asked: dict[AgentSubmissionKey, Any], known: int) -> None:
    """Every run that is there is there whole, and the next call of each key finds it or makes it."""
    tenant = kit.request().tenant_id
    there = await run_ids(kit)
    assert await kit.rows() == dict.fromkeys(ONE_RUN, len(there))
    shown = await asyncio.gather(*(runs.load(tenant, run_id) for run_id in there))
    assert [each.provenance.run_id for each in shown] == there
    again = await asyncio.gather(*(runs.submit(key, kit.request()) for key in asked))
    expected = [IDEMPOTENT if request.run_id in there else COMMITTED for request in asked.values()]
    assert [each.outcome for each in again] == expected
    # Of those that had been sent the answer was dropped, and no more than that.
    assert IDEMPOTENT in expected
    assert await kit.rows() == dict.fromkeys(ONE_RUN, known + len(asked))


def test_SUB_12_a_cancelled_joined_call_leaves_nothing_in_the_callers_transaction(kit: Any, run: Run) -> None:
    dice = random.Random(21)

    async def work() -> None:
        async with kit.runs() as runs, kit.engine(pool_size=POOL, max_overflow=0, pool_timeout=30) as engine:
            keys = [AgentSubmissionKey.generate() for _ in range(40)]

            async def submit(key: AgentSubmissionKey) -> Any:
                async with engine.begin() as connection:
                    await connection.execute(text("SELECT 1"))
                    return await runs.submit(key, kit.request(), session=connection)

            there = 0
            for key in keys:
                (answer,) = await plainly([submit(key)], dice)
                there += getattr(answer, "outcome", None) is COMMITTED
            found = await kit.rows()
            assert found in ({}, dict.fromkeys(ONE_RUN, found.get("runs")))
            assert there <= found.get("runs", 0) < len(keys)
            assert engine.pool.checkedout() == 0
            again = [(await submit(key)).outcome for key in keys]
            assert again.count(IDEMPOTENT) == found.get("runs", 0)

    run(work())
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, 40)


def test_S3_a_call_that_is_cancelled_before_its_set_is_formed_leaves_no_row(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with AgentRunStore(kit.url) as store:
            runs = DurableAgentRuns(store, kit.executables)
            await runs.publish(kit.request().tenant_id, kit.graph)
            sent = kit.sent(store._engine)
            calls = [runs.submit(AgentSubmissionKey.generate(), kit.request()) for _ in range(3)]
            early, *others = [asyncio.create_task(call) for call in calls]
            # One turn of the loop: all of them have asked, and nothing has been sent.
            await asyncio.sleep(0)
            assert sent == []
            early.cancel()
            assert [each.outcome for each in await asyncio.gather(*others)] == [COMMITTED, COMMITTED]
            assert early.cancelled()

    run(work())
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, 2)
