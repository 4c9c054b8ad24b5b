"""When listening workers are told that there is something for them: after a commit, and never before or without one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.graph.returns import Finish
from agentruns.domain.scalars import TenantId
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import InvalidOptionError, UnitOfWorkError
from agentruns.runtime import notifier
from agentruns.runtime.deployment import Deployment
from agentruns.runtime.deployment_open import OpenDeployment
from agentruns.runtime.graph_builder import GraphBuilder
from agentruns.store.options import StoreOptions
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import TENANT, DriveWorld, chain
from agentruns.testing.listening import Ear
from agentruns.testing.strangers import Stranger

Run = Callable[[Coroutine[Any, Any, Any]], Any]
InWorld = Callable[..., None]

ANY = {"type": "object"}
#: Longer than a notification that was sent takes to be heard.
HEARD = 0.3

DEPLOYMENT = Deployment(issuer="https://example.com/", subject="wake-ups")
GRAPH = DEPLOYMENT.add(GraphBuilder("told", "1.0.0", input=ANY, state=ANY, output=ANY))


@GRAPH.node(entry=True, terminal=True)
async def end(_context: Any) -> Finish:
    return Finish({})


@asynccontextmanager
async def listening(
    url: str, *tenants: str, options: StoreOptions | None = None
) -> AsyncIterator[tuple[OpenDeployment, Ear]]:
    async with DEPLOYMENT.open(url, tenant=tenants or ("acme",), options=options) as app, Ear.at(url) as ear:
        yield app, ear


async def submit(app: OpenDeployment, tenant: str = "acme", **options: Any) -> None:
    await app.runs.submit(AgentSubmissionKey.generate(), app.request(GRAPH, input={}, tenant=tenant), **options)


def test_SCH_13_a_submission_is_told_of_by_its_tenant_and_a_retry_is_not(database_url: str, run: Run) -> None:
    async def work() -> None:
        async with listening(database_url) as (app, ear):
            key, request = AgentSubmissionKey.generate(), app.request(GRAPH, input={})
            await app.runs.submit(key, request)
            assert await ear.hears(1) == ["acme"]
            await app.runs.submit(key, request)
            await asyncio.sleep(HEARD)
            assert ear.payloads == ["acme"]

    run(work())


def test_N1_SCH_13_nothing_is_told_inside_the_callers_transaction_nor_after_its_end(
    database_url: str, run: Run
) -> None:
    async def work() -> None:
        engine = create_async_engine(database_url, poolclass=NullPool)
        async with listening(database_url) as (app, ear):
            for is_kept in (True, False):
                async with engine.connect() as connection:
                    transaction = await connection.begin()
                    await submit(app, session=connection)
                    await (transaction.commit() if is_kept else transaction.rollback())
            await asyncio.sleep(HEARD)
            assert ear.payloads == []
            app.runs.notify(TenantId("acme"))
            assert await ear.hears(1) == ["acme"]
            with pytest.raises(TypeError, match="tenant_id"):
                app.runs.notify("acme")  # type: ignore[arg-type]
        await engine.dispose()

    run(work())


def test_SCH_13_a_statement_that_the_server_undid_is_not_told_of(database_url: str, owner_url: str, run: Run) -> None:
    async def work() -> None:
        async with listening(database_url) as (app, ear):
            await Stranger(owner_url).forbid("agent_admissions", "true")
            with pytest.raises(Exception, match="forbidden"):
                await submit(app)
            await asyncio.sleep(HEARD)
            assert ear.payloads == []

    run(work())


def test_N1_SCH_13_many_submissions_are_told_of_in_a_few_notifications_50_ms_apart(database_url: str, run: Run) -> None:
    async def work() -> None:
        async with listening(database_url, "a", "b") as (app, ear):
            began = time.monotonic()
            for _ in range(20):
                await asyncio.gather(*(submit(app, tenant) for tenant in "abab"))
            seconds = time.monotonic() - began
        assert set(ear.payloads) == {"a", "b"}
        # Each statement tells of both at most.
        assert len(ear.payloads) <= 2 * (1 + seconds / 0.05)
        assert len(ear.payloads) < 80

    run(work())


def test_more_than_sixteen_tenants_are_told_of_without_their_names(database_url: str, run: Run) -> None:
    async def work() -> None:
        tenants = [f"t{number:02}" for number in range(17)]
        async with listening(database_url, *tenants) as (app, ear):
            for tenant in tenants:
                app.runs.notify(TenantId(tenant))
            assert await ear.hears(1) == [""]
            for tenant in tenants[:16]:
                app.runs.notify(TenantId(tenant))
            assert await ear.hears(17) == ["", *tenants[:16]]

    run(work())


def test_a_store_that_is_closed_or_of_another_loop_tells_nobody(database_url: str, run: Run) -> None:
    async def work() -> None:
        async with DEPLOYMENT.open(database_url, tenant="acme") as app:

            async def elsewhere() -> None:
                app.runs.notify(TenantId("acme"))

            with pytest.raises(UnitOfWorkError) as refused:
                await asyncio.to_thread(asyncio.run, elsewhere())
            assert refused.value.reason == "wrong_event_loop"
        with pytest.raises(UnitOfWorkError) as refused:
            app.runs.notify(TenantId("acme"))
        assert refused.value.reason == "closed"

    run(work())


def test_what_was_told_last_is_told_before_the_store_is_closed(
    database_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "_CLOSING_BOUND", 30.0)

    async def work() -> None:
        async with Ear.at(database_url) as ear:
            async with DEPLOYMENT.open(database_url, tenant=("a", "b")) as app:
                await submit(app, "a")
                await submit(app, "b")
            assert sorted(await ear.hears(2)) == ["a", "b"]

    run(work())


def test_a_store_with_one_connection_tells_too_and_one_that_does_not_notify_stays_silent(
    database_url: str, run: Run
) -> None:
    async def work() -> None:
        async with listening(database_url, options=StoreOptions(pool_size=1)) as (app, ear):
            await asyncio.gather(*(submit(app) for _ in range(8)))
            assert (await ear.hears(1))[0] == "acme"
        async with listening(database_url, options=StoreOptions(notifies=False)) as (app, ear):
            await submit(app)
            app.runs.notify(TenantId("acme"))
            await asyncio.sleep(HEARD)
            assert ear.payloads == []
        with pytest.raises(InvalidOptionError) as refused:
            StoreOptions(notifies="no")  # type: ignore[arg-type]
        assert refused.value.option == "notifies"

    run(work())


def test_a_request_to_cancel_is_told_of_once(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        async with Ear.at(world.store_url) as ear:
            run_id = await world.submitted()
            await ear.hears(1)
            await request_cancellation(world, run_id)
            assert await ear.hears(2) == [TENANT.text] * 2
            await asyncio.sleep(HEARD)
            assert len(ear.payloads) == 2

    in_world(work, chain(a=lambda _context: Finish({})))


@pytest.mark.parametrize("delay", [None, timedelta(seconds=30)])
def test_a_lease_that_is_given_back_is_told_of_also_behind_a_gate_and_a_lost_one_is_not(
    in_world: InWorld, delay: timedelta | None
) -> None:
    async def work(world: DriveWorld) -> None:
        async with Ear.at(world.store_url) as ear:
            held = await world.claimed(await world.submitted())
            await ear.hears(1)
            await world.store.release(held.fence, delay=delay)
            assert await ear.hears(2) == [TENANT.text] * 2
            await world.store.release(held.fence)
            await asyncio.sleep(HEARD)
            assert len(ear.payloads) == 2

    in_world(work, chain(a=lambda _context: Finish({})))
