"""An application's tests run in one transaction that they roll back: submit, drive, assert, and nothing is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from attrs import define
from sqlalchemy import NullPool, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session

import agentruns
from agentruns.domain.outcome import SucceededOutcome
from agentruns.errors import InvalidOptionError, InvariantError, UnitOfWorkError
from agentruns.orm import Base
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.testing import invariants
from agentruns.testing.outer_transaction import TransactionStore, open_inside

Run = Callable[[Coroutine[Any, Any, Any]], Any]

NONE: Any = "AUTOCOMMIT"
ANY = {"type": "object"}
ORDERS = "CREATE TABLE public.orders (reference text PRIMARY KEY, run_id uuid)"
#: As often as it may be, so that a node's statements and the driver's share the connection.
EAGER = agentruns.DurableGraphDriverOptions(cancellation_poll_interval=timedelta(milliseconds=10))


@define
class App:
    """An application with a graph whose nodes keep rows of its own in its own sessions."""

    sessions: async_sessionmaker[AsyncSession] | None = None
    deployment: Any = None
    graph: Any = None
    answer: Any = None

    def __attrs_post_init__(self) -> None:
        self.deployment = agentruns.Deployment(issuer="https://example.com/", subject="order-desk")
        question = self.deployment.add_schema(ANY, name="question")
        self.answer = self.deployment.add_schema(ANY, name="answer")
        graph = agentruns.GraphBuilder("ordering", "1.0.0", input=ANY, state=ANY, output=ANY)

        @graph.node(entry=True, wait_to="ship", retry=agentruns.NodeRetry(on=(DBAPIError,), delay=0, attempts=2))
        async def pack(context: agentruns.GraphNodeContext) -> agentruns.Suspend:
            for number in range(8):
                await self.insert(f"{context.attempt}-{number}")
            if context.attempt == 1:
                await self.insert("1-0")  # the same again, so that its session has to roll back
            asked = agentruns.JournalPayload.of(question, "question", {})
            return agentruns.Suspend(agentruns.NodeWait.interrupt("approval", request=asked, scopes=["ship"]))

        @graph.node(terminal=True)
        async def ship(context: agentruns.GraphNodeContext) -> agentruns.Finish:
            (approval,) = await context.resolutions()
            return agentruns.Finish({"approved": approval.resolution is not None})

        self.graph = self.deployment.add(graph)

    async def insert(self, reference: str) -> None:
        assert self.sessions is not None
        async with self.sessions() as session, session.begin():
            await session.execute(text("INSERT INTO orders (reference) VALUES (:reference)"), {"reference": reference})


@asynccontextmanager
async def engine_of(url: str, **options: Any) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(url, poolclass=NullPool, **options)
    yield engine
    await engine.dispose()


async def counts(connection: AsyncConnection) -> dict[str, int]:
    """Count the rows of every table of ours that has any, and the application's."""
    tables = [*(f"agentruns.{table.name}" for table in Base.metadata.sorted_tables), "public.orders"]
    found = {name: (await connection.execute(text(f"SELECT count(*) FROM {name}"))).scalar_one() for name in tables}  # noqa: S608  # our own names
    return {name.partition(".")[2]: count for name, count in found.items() if count}


def test_R2_what_is_submitted_driven_and_answered_in_a_transaction_is_gone_with_it(owner_url: str, run: Run) -> None:
    app = App()

    async def work() -> None:
        async with engine_of(owner_url) as engine, engine.connect() as stranger:
            async with engine.begin() as connection:
                await connection.execute(text(ORDERS))
            before = await counts(stranger)
            async with engine.connect() as connection:
                outer = await connection.begin()
                app.sessions = async_sessionmaker(connection, join_transaction_mode="create_savepoint")
                async with open_inside(app.deployment, connection, tenant="acme") as opened:
                    await life(opened)
                    assert connection.get_nested_transaction() is None
                    for check in invariants.ASSERTIONS:
                        await check(connection)
                    within = await counts(connection)
                assert outer.is_active
                await outer.rollback()
            assert await counts(stranger) == before == {"applied_revisions": before["applied_revisions"]}
            # The order, the rows of the attempt that succeeded, and those that the failed one had committed before.
            assert (within["orders"], within["runs"], within["node_attempts"]) == (17, 1, 3)

    async def life(opened: agentruns.OpenDeployment) -> None:
        assert app.sessions is not None
        async with app.sessions() as session:
            request = opened.request(app.graph, input={})
            admitted = await opened.runs.submit(agentruns.AgentSubmissionKey.generate(), request, session=session)
            run_id = admitted.snapshot.provenance.run_id
            await session.execute(text("INSERT INTO orders VALUES ('A-1', cast(:id AS uuid))"), {"id": run_id.text})
            await session.commit()
        report = await opened.run_until_idle(driver_options=EAGER)
        assert (report.outcomes, report.errors) == ({AgentLoopOutcome.WAITING: 1}, {})
        (wait,) = await opened.waits.outstanding(opened.tenant, run_id)
        await opened.waits.resolve_interrupt(
            opened.tenant,
            run_id,
            wait.wait_id,
            event_id=agentruns.EventId.generate(),
            resolution=agentruns.JournalPayload.of(app.answer, "answer", {}),
            resolver=agentruns.WaitResolver.of(app.deployment.owner, scopes=["ship"]),
        )
        report = await opened.run_until_idle(driver_options=EAGER)
        assert (report.outcomes, report.errors) == ({AgentLoopOutcome.SUCCEEDED: 1}, {})
        snapshot = await opened.runs.wait(opened.tenant, run_id, timeout=timedelta(seconds=30))
        assert isinstance(snapshot.outcome, SucceededOutcome)
        assert snapshot.outcome.result.output.value == {"approved": True}

    run(work())


def test_R2_a_session_of_the_application_serves_as_well(database_url: str, run: Run) -> None:
    deployment, graph = simple()

    async def submitted(session: AsyncSession) -> str:
        async with open_inside(deployment, session, tenant="acme") as opened:
            key = agentruns.AgentSubmissionKey.generate()
            await opened.runs.submit(key, opened.request(graph, input={"n": 1}))
            await opened.run_until_idle()
            return (await opened.runs.load_by_key(opened.tenant, key)).status.value

    async def work() -> None:
        async with engine_of(database_url) as engine:
            async with engine.connect() as connection, connection.begin() as outer:
                async with AsyncSession(connection, join_transaction_mode="create_savepoint") as session:
                    assert await submitted(session) == "succeeded"
                    assert not session.in_transaction()
                await outer.rollback()
            async with AsyncSession(engine) as session:
                assert await submitted(session) == "succeeded"
                await session.rollback()
                assert (await session.execute(text("SELECT count(*) FROM agentruns.runs"))).scalar_one() == 0

    run(work())


def simple() -> tuple[agentruns.Deployment, Any]:
    deployment = agentruns.Deployment(issuer="https://example.com/", subject="order-desk")
    graph = deployment.add(agentruns.GraphBuilder("echo", "1.0.0", input=ANY, state=ANY, output=ANY))
    graph.node(name="echo", entry=True, terminal=True)(lambda context: agentruns.Finish(context.state))
    return deployment, graph


def test_R2_whatever_could_not_be_rolled_back_is_refused(database_url: str, run: Run) -> None:
    async def work() -> None:
        async with (
            engine_of(database_url) as engine,
            engine_of(database_url, isolation_level="AUTOCOMMIT") as automatic,
        ):
            for other in (engine, engine.sync_engine, Session(), database_url, AsyncSession):
                with pytest.raises(TypeError, match="pass an AsyncConnection or AsyncSession, not "):
                    TransactionStore(other)  # type: ignore[arg-type]
            async with engine.connect() as connection:
                assert await refused(TransactionStore(connection)) == "no_transaction"
                assert not connection.in_transaction()
            async with automatic.connect() as connection, connection.begin():
                assert await refused(TransactionStore(connection)) == "autocommit"
            async with engine.connect() as connection:
                outer = await connection.begin()
                async with TransactionStore(connection) as store:
                    with pytest.raises(InvalidOptionError):
                        store.engine_of_one()
                    await outer.rollback()
                    with pytest.raises(UnitOfWorkError) as ended:
                        await store.ask_time()
                    assert ended.value.reason == "no_transaction"

    async def refused(store: TransactionStore) -> str:
        with pytest.raises(UnitOfWorkError) as error:
            await store.open()
        return error.value.reason

    run(work())


def test_R2_a_caller_that_gives_up_takes_no_connection_with_it(database_url: str, run: Run) -> None:
    begun = asyncio.Event()

    def kept(work: Any) -> None:
        with work.transaction():
            work.execute(text("SELECT pg_sleep(0.01)"))

    def slow(work: Any) -> None:
        begun.set()
        work.execute(text("SELECT pg_sleep(0.2)"))

    async def work() -> None:
        async with engine_of(database_url) as engine, engine.connect() as connection, connection.begin() as outer:
            async with TransactionStore(connection) as store:
                asking = asyncio.create_task(store.run(slow))
                await begun.wait()
                asking.cancel()
                await asyncio.wait({asking})
                assert asking.cancelled()
                # Neither do calls at once that keep locks for themselves, each of which is a savepoint.
                await asyncio.gather(*[store.run(kept) for _ in range(4)])
            assert outer.is_active
            assert connection.get_nested_transaction() is None

    run(work())


def test_R2_the_first_error_of_the_database_is_what_every_later_call_tells(owner_url: str, run: Run) -> None:
    deployment, graph = simple()

    async def work() -> None:
        async with engine_of(owner_url) as engine, engine.connect() as connection, connection.begin() as outer:
            async with open_inside(deployment, connection, tenant="acme") as opened:
                await connection.execute(text("ALTER TABLE agentruns.runs ADD CONSTRAINT never CHECK (false)"))
                for _ in range(2):
                    key = agentruns.AgentSubmissionKey.generate()
                    with pytest.raises(InvariantError) as failed:
                        await opened.runs.submit(key, opened.request(graph, input={}))
                    assert failed.value.reason == "never"
            await outer.rollback()

    run(work())
