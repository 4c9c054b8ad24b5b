"""Requests to end a run inside a caller's transaction, and against each other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from agentruns.domain.ids import EventId, FailureId, RunId
from agentruns.domain.status import RunStatus
from agentruns.domain.submission import MutationOutcome
from agentruns.errors import (
    AgentRunsError,
    CancellationConflictError,
    ContentionError,
    RunNotFoundError,
    RunNotRunnableError,
    UnitOfWorkError,
)
from agentruns.runtime.joined import JoinedAgentRuns
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore
from agentruns.testing import samples

Run = Callable[[Coroutine[Any, Any, Any]], Any]

COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT
SUBMITTERS = 24


def asking(told: Any) -> dict[str, Any]:
    """Name the arguments of a request with fresh ids."""
    failure = evolve(samples.cancellation(), id=FailureId.generate())
    ids = {"tenant_id": told.tenant_id, "run_id": told.run_id}
    return {**ids, "event_id": EventId.generate(), "failure": failure}


async def blocked(connection: Any) -> None:
    """Return once some statement waits for a lock."""
    statement = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    async with asyncio.timeout(30):
        while not (await connection.execute(statement)).scalar_one():
            await connection.rollback()


def test_SUB_24_rolled_back_nothing_happened_and_committed_all_of_it(kit: Any, run: Run, tell: Any) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine(pool_size=1, max_overflow=0, pool_timeout=2) as engine:
            told = await tell(runs, "waiting")
            before, request = await kit.rows(), asking(told)
            async with AsyncSession(engine) as session:
                asked = await runs.request_cancellation(**request, session=session)
                assert asked.outcome is COMMITTED
                seen = await runs.load(told.tenant_id, told.run_id, session=session)
                assert asked.snapshot == seen
                assert (await runs.load(told.tenant_id, told.run_id)).status is RunStatus.WAITING
                await session.rollback()
            assert await kit.rows() == before
            assert (await runs.load(told.tenant_id, told.run_id)).status is RunStatus.WAITING
            async with AsyncSession(engine) as session:
                assert (await runs.request_cancellation(**request, session=session)).outcome is COMMITTED
                assert (await runs.request_cancellation(**request, session=session)).outcome is IDEMPOTENT
                await session.commit()
            assert (await runs.load(told.tenant_id, told.run_id)).status is RunStatus.CANCELLATION_REQUESTED

    run(work())


@pytest.mark.parametrize("story", ["succeeded", "cancelling", "quarantined", None])
def test_SUB_07_after_a_refusal_the_callers_transaction_can_be_used(
    kit: Any, run: Run, tell: Any, story: str | None
) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine, engine.connect() as connection:
            told = await tell(runs, story or "fresh")
            request = asking(told) | ({} if story else {"run_id": RunId.generate()})
            await connection.execute(text("CREATE TEMPORARY TABLE app_notes (number int)"))
            await connection.execute(text("INSERT INTO app_notes VALUES (1)"))
            with pytest.raises(AgentRunsError) as refused:
                await runs.request_cancellation(**request, session=connection)
            assert (story is None) == isinstance(refused.value, RunNotFoundError)
            assert (await connection.execute(text("SELECT 1"))).scalar_one() == 1
            await connection.commit()
            assert (await connection.execute(text("SELECT count(*) FROM app_notes"))).scalar_one() == 1

    run(work())


def test_a_read_only_transaction_is_refused_after_the_evidence_had_its_say(kit: Any, run: Run, tell: Any) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine:
            told, over = await tell(runs, "between"), await tell(runs, "succeeded")
            async with engine.connect() as connection:
                await connection.execute(text("SET TRANSACTION READ ONLY"))
                with pytest.raises(UnitOfWorkError) as read_only:
                    await runs.request_cancellation(**asking(told), session=connection)
                assert read_only.value.reason == "read_only"
                with pytest.raises(RunNotRunnableError) as terminal:
                    await runs.request_cancellation(**asking(over), session=connection)
                assert (terminal.value.reason, terminal.value.status) == ("terminal", RunStatus.SUCCEEDED)

    run(work())


def test_synchronous_code_asks_in_its_own_session(kit: Any, run: Run, tell: Any) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine, AsyncSession(engine) as session:
            told = await tell(runs, "fresh")
            joined, request = JoinedAgentRuns(kit.executables), asking(told)
            asked = await session.run_sync(lambda sync: joined.request_cancellation(**request, session=sync))
            assert asked.outcome is COMMITTED
            await session.commit()
            assert await runs.load(told.tenant_id, told.run_id) == asked.snapshot

    run(work())


@pytest.mark.parametrize("is_same", [True, False])
def test_of_many_requests_at_once_one_is_committed(kit: Any, run: Run, tell: Any, *, is_same: bool) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.runs(publish=False) as others:
            told = await tell(runs, "waiting")
            requests = [asking(told)] * SUBMITTERS if is_same else [asking(told) for _ in range(SUBMITTERS)]
            answers = await asyncio.gather(
                *((runs, others)[n % 2].request_cancellation(**each) for n, each in enumerate(requests)),
                return_exceptions=True,
            )
            kinds = Counter(type(each) if isinstance(each, BaseException) else each.outcome for each in answers)
            rest = IDEMPOTENT if is_same else CancellationConflictError
            assert kinds == {COMMITTED: 1, rest: SUBMITTERS - 1}
            assert (await kit.rows())["run_outcomes"] == 1

    run(work())


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("level", [None, "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_request_that_waits_for_another_reads_again(
    kit: Any, run: Run, tell: Any, *, commits: bool, level: str | None
) -> None:
    """``None`` is a call of our own; the stricter levels of a caller get the database's own answer."""

    async def second(runs: Any, engine: Any, request: dict[str, Any]) -> Any:
        if level is None:
            return await runs.request_cancellation(**request)
        async with engine.connect() as connection:
            await connection.execution_options(isolation_level=level)
            answer = await runs.request_cancellation(**request, session=connection)
            await connection.commit()
            return answer

    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine, engine.connect() as first, engine.connect() as look:
            told = await tell(runs, "waiting")
            await runs.request_cancellation(**asking(told), session=first)
            waiting = asyncio.create_task(second(runs, engine, asking(told)))
            await blocked(look)
            await (first.commit() if commits else first.rollback())
            if not commits:
                assert (await waiting).outcome is COMMITTED
            elif level in (None, "READ COMMITTED"):
                with pytest.raises(CancellationConflictError):
                    await waiting
            else:
                with pytest.raises(DBAPIError) as aborted:
                    await waiting
                assert aborted.value.orig is not None
                assert aborted.value.orig.sqlstate == "40001"  # type: ignore[attr-defined]
            assert (await kit.rows())["run_outcomes"] == 1

    run(work())


def test_a_stamp_that_stays_refused_is_contention(
    kit: Any, run: Run, tell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with AgentRunStore(kit.url) as store:
            runs = DurableAgentRuns(store, kit.executables)
            await runs.publish(samples.TENANT, kit.graph)
            told = await tell(runs, "between")
            store.clock.correct(store.clock.stamp().plus(timedelta(seconds=-2)))
            request = asking(told)
            assert (await runs.request_cancellation(**request)).outcome is COMMITTED
            other = await tell(runs, "between")
            monkeypatch.setattr("agentruns.store.control_commits._STAMP_AGE", timedelta(seconds=-1))
            with pytest.raises(ContentionError) as contended:
                await runs.request_cancellation(**asking(other))
            assert (contended.value.run_id, contended.value.retryable) == (other.run_id, True)
            assert (await runs.load(other.tenant_id, other.run_id)).status is RunStatus.ACTIVE

    run(work())
