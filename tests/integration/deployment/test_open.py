"""A deployment on a real PostgreSQL: submit, retry, drive, and the ways in which it is opened wrongly."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns import (
    AgentSubmissionConflictError,
    AgentSubmissionKey,
    AgentWorkerOptions,
    Deployment,
    Finish,
    GraphBuilder,
    GraphNodeContext,
    MutationOutcome,
    RunStatus,
    SchemaRejectedError,
    SchemaVerificationError,
    SucceededOutcome,
    TenantId,
)
from agentruns.errors import IdConflictError, InvalidOptionError

Run = Callable[[Coroutine[Any, Any, Any]], Any]

TEXT = {"text": "where is my order"}
PATIENCE = timedelta(seconds=20)


@pytest.fixture(autouse=True)
def clones_are_verified_once() -> None:
    """Not here: each store verifies what it finds."""


def test_a_retry_with_fresh_ids_is_idempotent(database_url: str, run: Run, shop: Any) -> None:
    async def work() -> None:
        async with shop.deployment.open(database_url, tenant="acme") as app:
            key = AgentSubmissionKey.generate()
            first, second = app.request(shop.triage, input=TEXT), app.request(shop.triage, input=TEXT)
            admitted = await app.runs.submit(key, first)
            again = await app.runs.submit(key, second)
            assert (admitted.outcome, again.outcome) == (MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT)
            assert first.run_id != second.run_id
            assert again.snapshot.provenance.run_id == first.run_id

    run(work())


def test_a_retry_from_another_process_is_idempotent(database_url: str, run: Run, shop_of: Any) -> None:
    async def work() -> None:
        key, outcomes = AgentSubmissionKey.generate(), []
        for shop in (shop_of(), shop_of()):
            async with shop.deployment.open(database_url, tenant="acme") as app:
                outcomes.append((await app.runs.submit(key, app.request(shop.triage, input=TEXT))).outcome)
        assert outcomes == [MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT]

    run(work())


@pytest.mark.parametrize(
    "change",
    [{"input": {"text": "else"}}, {"state": {"text": "else"}}, {"granted_scopes": ("orders:read",)}],
    ids=lambda change: next(iter(change)),
)
def test_other_content_under_the_same_key_conflicts(
    database_url: str, run: Run, shop: Any, change: dict[str, Any]
) -> None:
    async def work() -> None:
        async with shop.deployment.open(database_url, tenant="acme") as app:
            key = AgentSubmissionKey.generate()
            first = await app.runs.submit(key, app.request(shop.triage, input=TEXT))
            with pytest.raises(AgentSubmissionConflictError) as caught:
                await app.runs.submit(key, app.request(shop.triage, **{"input": TEXT, **change}))
            assert caught.value.run_id == first.snapshot.provenance.run_id

    run(work())


def test_input_that_the_schema_refuses_is_not_sent(database_url: str, run: Run, shop: Any) -> None:
    async def work() -> None:
        async with shop.deployment.open(database_url, tenant="acme") as app:
            with pytest.raises(SchemaRejectedError) as caught:
                await app.runs.submit(AgentSubmissionKey.generate(), app.request(shop.triage, input={"text": 1}))
            assert caught.value.part == "input"

    run(work())


def test_a_worker_in_the_block_drives_the_run_to_its_verified_result(database_url: str, run: Run, shop: Any) -> None:
    async def work() -> None:
        async with shop.deployment.open(database_url, tenant="acme") as app:
            admitted = await app.runs.submit(AgentSubmissionKey.generate(), app.request(shop.triage, input=TEXT))
            run_id = admitted.snapshot.provenance.run_id
            async with app.worker():
                snapshot = await app.runs.wait(app.tenant, run_id, timeout=PATIENCE)
            assert isinstance(snapshot.outcome, SucceededOutcome)
            assert snapshot.outcome.result.output.value == {"words": 4}
            replayed = await app.reader.read(app.tenant, run_id)
            assert replayed.state.status is RunStatus.SUCCEEDED

    run(work())


def test_tenants_are_independent_and_each_has_the_graphs(database_url: str, run: Run, shop: Any) -> None:
    async def work() -> None:
        async with shop.deployment.open(database_url, tenant=["t1", TenantId("t2"), "t1"]) as app:
            assert app.tenants == (TenantId("t1"), TenantId("t2"))
            key = AgentSubmissionKey.generate()
            for tenant in app.tenants:
                admitted = await app.runs.submit(key, app.request(shop.triage, input=TEXT, tenant=tenant))
                assert admitted.outcome is MutationOutcome.COMMITTED
            with pytest.raises(InvalidOptionError) as caught:
                app.request(shop.triage, input=TEXT)
            assert (caught.value.option, caught.value.reason) == ("tenant", "ambiguous")
            async with app.worker():
                for tenant in app.tenants:
                    run_id = (await app.runs.load_by_key(tenant, key)).provenance.run_id
                    snapshot = await app.runs.wait(tenant, run_id, timeout=PATIENCE)
                    assert snapshot.status is RunStatus.SUCCEEDED

    run(work())


def test_without_a_tenant_every_tenant_is_served_and_those_that_have_a_graph_get_the_others(
    database_url: str, run: Run, shop_of: Any
) -> None:
    async def digests(app: Any) -> dict[str, int]:
        statement = "SELECT tenant_id, count(*) FROM agentruns.graph_definitions GROUP BY 1"
        return dict(await app.store.read(lambda work: [*work.connection.exec_driver_sql(statement)]))

    async def work() -> None:
        shop = shop_of()
        async with shop.deployment.open(database_url) as app:
            assert app.tenants is None
            assert await digests(app) == {}
            with pytest.raises(InvalidOptionError) as caught:
                app.request(shop.triage, input=TEXT)
            assert (caught.value.option, caught.value.reason) == ("tenant", "ambiguous")
        async with shop.deployment.open(database_url, tenant=("b", "a")):
            pass
        shop.deployment.add(shop_of("1.0.1", maximum_supersteps=9).triage)
        async with shop.deployment.open(database_url) as app:
            assert await digests(app) == {"a": 2, "b": 2}
        with pytest.raises(InvalidOptionError) as empty:
            async with shop.deployment.open(database_url, tenant=[]):
                pass
        assert (empty.value.option, empty.value.value) == ("tenant", "()")

    run(work())


def test_F4_a_version_with_other_content_is_refused(database_url: str, run: Run, shop_of: Any) -> None:
    async def work() -> None:
        async with shop_of().deployment.open(database_url, tenant="acme"):
            pass
        with pytest.raises(IdConflictError) as caught:
            async with shop_of(maximum_supersteps=9).deployment.open(database_url, tenant="acme"):
                pass
        assert caught.value.kind == "graph"
        async with shop_of("1.0.1", maximum_supersteps=9).deployment.open(database_url, tenant="acme"):
            pass

    run(work())


def test_an_unmigrated_database_is_refused(empty_database_url: str, run: Run, shop: Any) -> None:
    async def work() -> None:
        with pytest.raises(SchemaVerificationError) as caught:
            async with shop.deployment.open(empty_database_url, tenant="acme"):
                pass
        assert caught.value.reason == "not_migrated"

    run(work())


def test_a_definition_is_refused_before_the_database_is_opened(run: Run) -> None:
    async def work() -> None:
        deployment = Deployment(issuer="https://shop.example/", subject="x")
        with pytest.raises(InvalidOptionError):
            async with deployment.open("postgresql://nobody@127.0.0.1:1/nothing", tenant="acme"):
                pass

    run(work())


@pytest.fixture
def held() -> tuple[Deployment, GraphBuilder, asyncio.Event]:
    """A node that says when it is entered, and ends when it is aborted."""
    entered = asyncio.Event()
    deployment = Deployment(issuer="https://shop.example/", subject="back-office")
    graph = deployment.add(GraphBuilder("held", "1.0.0", input={}, state={}, output={}))

    @graph.node(entry=True, terminal=True)
    async def hold(_context: GraphNodeContext) -> Finish:
        entered.set()
        await asyncio.Event().wait()
        return Finish(None)

    return deployment, graph, entered


async def fail_in(worker: AbstractAsyncContextManager[Any], entered: asyncio.Event) -> None:
    async with worker:
        await entered.wait()
        raise ZeroDivisionError


def test_an_error_in_the_workers_block_stops_it_at_once_and_gives_the_run_back(
    database_url: str, run: Run, held: Any
) -> None:
    deployment, graph, entered = held

    async def work() -> None:
        async with deployment.open(database_url, tenant="acme") as app:
            admitted = await app.runs.submit(AgentSubmissionKey.generate(), app.request(graph, input=None, state={}))
            began = asyncio.get_running_loop().time()
            with pytest.raises(ZeroDivisionError):
                await fail_in(app.worker(AgentWorkerOptions(drain_timeout=timedelta(seconds=60))), entered)
            assert asyncio.get_running_loop().time() - began < 30
            run_id = admitted.snapshot.provenance.run_id
            snapshot = await app.runs.load(app.tenant, run_id)
            assert snapshot.status is RunStatus.ACTIVE
            history = (await app.reader.read(app.tenant, run_id)).history
            assert history.run["lease_attempt_id"] is None

    run(work())


async def drop_an_index(url: str) -> None:
    engine = create_async_engine(url, poolclass=NullPool)
    async with engine.begin() as connection:
        await connection.execute(text("DROP INDEX agentruns.ix_runs_live"))
    await engine.dispose()


@pytest.fixture
def open_urls(database_url: str, owner_url: str) -> tuple[str, str]:
    """One database for a deployment, and for who breaks its schema."""
    return database_url, owner_url


@pytest.mark.parametrize("own_error", [None, ZeroDivisionError])
def test_a_background_worker_that_fails_is_logged_at_once_and_raised_where_the_block_has_no_error(
    open_urls: tuple[str, str], run: Run, shop: Any, caplog: pytest.LogCaptureFixture, own_error: type[Exception] | None
) -> None:
    def told() -> list[tuple[str, str]]:
        errors = [each for each in caplog.records if each.levelno >= logging.ERROR]
        return [(each.message, each.__dict__["error"]) for each in errors]

    async def block(worker: AbstractAsyncContextManager[Any]) -> None:
        async with worker, asyncio.timeout(20):
            await drop_an_index(open_urls[1])
            while not told():
                await asyncio.sleep(0.02)
            if own_error is not None:
                raise own_error

    async def work() -> None:
        async with shop.deployment.open(open_urls[0], tenant="acme") as app:
            options = AgentWorkerOptions(schema_interval=timedelta(milliseconds=100))
            with pytest.raises(own_error or SchemaVerificationError) as raised:
                await block(app.worker(options))
            assert raised.type is (own_error or SchemaVerificationError)

    run(work())
    assert told() == [("the background worker ended", "SchemaVerificationError")]
