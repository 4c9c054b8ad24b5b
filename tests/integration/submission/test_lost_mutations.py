"""Sets and requests whose statement or answer is lost on the wire: the same keys and ids say what became of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.ids import EventId
from agentruns.domain.status import RunStatus
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.submission import AgentRunAdmission
from agentruns.store.options import StoreOptions
from agentruns.testing import samples
from agentruns.testing.faults import WireProxy

Run = Callable[[Coroutine[Any, Any, Any]], Any]

COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT
ADMITTED, REQUESTED, COMMIT = b"agent-admitted", b"agent-cancellation-requested", b"COMMIT"
ITEMS = 20

#: Whether the server gets what is cut, so that only its answer is lost.
REACHES = pytest.mark.parametrize("reaches_server", [True, False])


def admissions(answers: Sequence[object]) -> list[AgentRunAdmission]:
    """Insist that every item has been admitted."""
    found = [each for each in answers if isinstance(each, AgentRunAdmission)]
    assert len(found) == len(answers)
    return found


@asynccontextmanager
async def cut(proxy: WireProxy, needle: bytes, *, reaches_server: bool) -> AsyncIterator[None]:
    """Cut the next statement with these bytes, behind the server or before it."""
    if reaches_server:
        before = proxy.lost
        proxy.lose_answer(needle)
        yield
        assert proxy.lost == before + 1
        return
    held = proxy.hold(needle)

    async def drop() -> None:
        await held.arrived.wait()
        proxy.take_down()
        proxy.bring_up()
        held.let_go()

    dropping = asyncio.create_task(drop())
    yield
    await dropping


@asynccontextmanager
async def behind(kit: Any) -> AsyncIterator[tuple[WireProxy, DurableAgentRuns]]:
    """Open a store of one connection a lane behind a proxy, and let it learn its statements."""
    options = StoreOptions(lane_connections=1)
    async with WireProxy.before(kit.url) as proxy, AgentRunStore(proxy.url, options) as store:
        runs = DurableAgentRuns(store, kit.executables)
        await runs.publish(samples.TENANT, kit.graph)
        await runs.submit(AgentSubmissionKey.generate(), kit.request())
        yield proxy, runs


@asynccontextmanager
async def losing_its_commit(proxy: WireProxy, *, reaches_server: bool) -> AsyncIterator[AsyncConnection]:
    """Give a caller's transaction whose COMMIT is cut."""
    engine = create_async_engine(proxy.url, poolclass=NullPool)
    async with engine.connect() as connection:
        transaction = await connection.begin()
        yield connection
        async with cut(proxy, COMMIT, reaches_server=reaches_server):
            with pytest.raises(DBAPIError):
                await transaction.commit()
    await engine.dispose()


@REACHES
def test_a_set_whose_answer_or_statement_is_lost_is_sent_again(kit: Any, run: Run, *, reaches_server: bool) -> None:
    async def work() -> None:
        async with behind(kit) as (proxy, runs):
            items = [(AgentSubmissionKey.generate(), kit.request()) for _ in range(ITEMS)]
            async with cut(proxy, ADMITTED, reaches_server=reaches_server):
                answers = admissions(await runs.submit_many(items))
            assert {each.outcome for each in answers} == {IDEMPOTENT if reaches_server else COMMITTED}
            assert [each.snapshot.provenance.run_id for each in answers] == [each.run_id for _, each in items]
            again = admissions(await runs.submit_many([(key, kit.request()) for key, _ in items]))
            assert {each.outcome for each in again} == {IDEMPOTENT}
            assert [each.snapshot for each in again] == [each.snapshot for each in answers]

    run(work())
    assert run(kit.rows())["runs"] == 1 + ITEMS


@REACHES
def test_a_joined_set_whose_commit_is_lost_converges(kit: Any, run: Run, *, reaches_server: bool) -> None:
    async def work() -> None:
        async with behind(kit) as (proxy, runs):
            items = [(AgentSubmissionKey.generate(), kit.request()) for _ in range(ITEMS)]
            async with losing_its_commit(proxy, reaches_server=reaches_server) as connection:
                answers = admissions(await runs.submit_many(items, session=connection))
                assert {each.outcome for each in answers} == {COMMITTED}
            again = admissions(await runs.submit_many([(key, kit.request()) for key, _ in items]))
            assert {each.outcome for each in again} == {IDEMPOTENT if reaches_server else COMMITTED}

    run(work())
    assert run(kit.rows())["runs"] == 1 + ITEMS


@REACHES
def test_a_request_whose_answer_or_statement_is_lost_is_sent_again(
    kit: Any, run: Run, tell: Any, *, reaches_server: bool
) -> None:
    async def work() -> None:
        async with behind(kit) as (proxy, runs):
            told = await tell(runs, "waiting")
            ids = {"tenant_id": told.tenant_id, "run_id": told.run_id, "event_id": EventId.generate()}
            async with cut(proxy, REQUESTED, reaches_server=reaches_server):
                asked = await runs.request_cancellation(**ids, failure=samples.cancellation())
            assert asked.outcome is (IDEMPOTENT if reaches_server else COMMITTED)
            assert asked.snapshot.status is RunStatus.CANCELLATION_REQUESTED
            again = await runs.request_cancellation(**ids, failure=samples.cancellation())
            assert (again.outcome, again.snapshot) == (IDEMPOTENT, asked.snapshot)

    run(work())
    assert run(kit.rows())["run_outcomes"] == 1


@REACHES
def test_a_joined_request_whose_commit_is_lost_converges(
    kit: Any, run: Run, tell: Any, *, reaches_server: bool
) -> None:
    async def work() -> None:
        async with behind(kit) as (proxy, runs):
            told = await tell(runs, "between")
            ids = {"tenant_id": told.tenant_id, "run_id": told.run_id, "event_id": EventId.generate()}
            async with losing_its_commit(proxy, reaches_server=reaches_server) as connection:
                asked = await runs.request_cancellation(**ids, failure=samples.cancellation(), session=connection)
                assert asked.outcome is COMMITTED
            again = await runs.request_cancellation(**ids, failure=samples.cancellation())
            assert again.outcome is (IDEMPOTENT if reaches_server else COMMITTED)

    run(work())
    assert run(kit.rows())["run_outcomes"] == 1
