"""A worker whose schema is changed under it drains and ends; one whose database only has trouble goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.graph.returns import Finish
from agentruns.errors import InvalidOptionError, SchemaVerificationError
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.store.options import StoreOptions
from agentruns.testing.drives import TENANT, DriveWorld, chain

InWorld = Callable[..., None]

SHORT = timedelta(milliseconds=100)
STARTED, SUCCEEDED = "graph-node-attempt-started", "graph-node-attempt-succeeded"
IMPATIENT = StoreOptions(lock_timeout=timedelta(milliseconds=50), attempts=1)
LOGGER = "agentruns.runtime.schema_watch"
NOT_NOW = "the schema cannot be verified now"


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


def worker_of(world: DriveWorld, interval: timedelta | None, store: AgentRunStore | None = None) -> AgentWorker:
    options = AgentWorkerOptions(poll_interval=timedelta(milliseconds=20), schema_interval=interval)
    return AgentWorker(store or world.store, world.executables, tenants=[TENANT], loop=world.loop, options=options)


def test_a_schema_that_breaks_ends_the_worker_when_its_nodes_have_finished(
    in_world: InWorld, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = asyncio.Event()

    async def a(_context: Any) -> Finish:
        await go_on.wait()
        return Finish({})

    async def work(world: DriveWorld) -> None:
        await world.submitted()
        working = asyncio.create_task(worker_of(world, SHORT).run(world.shutdown))
        await world.until(STARTED)
        await asyncio.sleep(0.3)
        assert not world.shutdown.is_draining
        await world.rows("DROP INDEX agentruns.ix_runs_live")
        async with asyncio.timeout(20):
            await world.shutdown.wait_draining()
        assert not working.done()
        go_on.set()
        with pytest.raises(SchemaVerificationError) as refused:
            await working
        assert (refused.value.reason, refused.value.findings) == ("incomplete", ("missing index runs.ix_runs_live",))
        assert (await world.kinds()).count(SUCCEEDED) == 1
        assert await world.rows("SELECT 1 FROM agentruns.runs WHERE lease_attempt_id IS NOT NULL") == []

    with caplog.at_level(logging.WARNING, LOGGER):
        in_world(work, chain(a=a))
    assert [(record.levelname, record.message) for record in caplog.records if record.name == LOGGER] == [
        ("WARNING", "the schema is no longer what this release needs: the worker drains")
    ]


@pytest.mark.direct("nobody hears a notification through a pooler")
def test_trouble_of_the_database_is_no_fault_of_the_schema(in_world: InWorld, caplog: pytest.LogCaptureFixture) -> None:
    """A view that somebody changes just now cannot be read, and that passes."""

    async def a(_context: Any) -> Finish:
        return Finish({})

    async def work(world: DriveWorld) -> None:
        engine = create_async_engine(world.url, poolclass=NullPool)
        async with AgentRunStore(world.store_url, IMPATIENT) as store, engine.connect() as holder:
            await trouble(world, store, holder)
        await engine.dispose()

    async def trouble(world: DriveWorld, store: AgentRunStore, holder: AsyncConnection) -> None:
        working = asyncio.create_task(worker_of(world, SHORT, store).run(world.shutdown))
        async with holder.begin():
            await holder.execute(text("LOCK TABLE agentruns.run_overview IN ACCESS EXCLUSIVE MODE"))
            async with asyncio.timeout(20):
                while not said(caplog):
                    await asyncio.sleep(0.02)
            await asyncio.sleep(0.5)
            # However often it fails meanwhile, it is said once.
            assert said(caplog) == [NOT_NOW]
        # It works on, verifies again, and finds the next fault.
        assert (working.done(), world.shutdown.is_draining) == (False, False)
        await world.rows("DROP INDEX agentruns.ix_runs_live")
        with pytest.raises(SchemaVerificationError):
            await working

    with caplog.at_level(logging.WARNING, LOGGER):
        in_world(work, chain(a=a))
    # While the index is dropped the tables are locked again, which may be trouble of its own.
    assert said(caplog)[-1] == "the schema is no longer what this release needs: the worker drains"
    assert set(said(caplog)[:-1]) == {NOT_NOW}


@pytest.mark.direct("nobody hears a notification through a pooler")
def test_what_does_no_harm_is_told_once_and_not_at_every_verification(
    in_world: InWorld, caplog: pytest.LogCaptureFixture
) -> None:
    async def a(_context: Any) -> Finish:
        return Finish({})

    async def work(world: DriveWorld) -> None:
        await world.rows("CREATE TABLE agentruns.theirs ()")
        await world.rows("GRANT DELETE ON agentruns.runs TO agentruns_runtime")
        working = asyncio.create_task(worker_of(world, SHORT).run(world.shutdown))
        await asyncio.sleep(0.5)
        world.shutdown.drain()
        await working

    in_world(work, chain(a=a))
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_without_an_interval_nobody_looks(in_world: InWorld) -> None:
    async def a(_context: Any) -> Finish:
        return Finish({})

    async def work(world: DriveWorld) -> None:
        working = asyncio.create_task(worker_of(world, None).run(world.shutdown))
        await world.rows("DROP INDEX agentruns.ix_runs_live")
        await asyncio.sleep(0.5)
        assert not world.shutdown.is_draining
        world.shutdown.drain()
        await working

    in_world(work, chain(a=a))


def test_the_interval_has_bounds() -> None:
    assert AgentWorkerOptions().schema_interval == timedelta(minutes=5)
    for bound in (timedelta(milliseconds=100), timedelta(days=1)):
        assert AgentWorkerOptions(schema_interval=bound).schema_interval == bound
    for beyond in (timedelta(milliseconds=99), timedelta(days=1, microseconds=1)):
        with pytest.raises(InvalidOptionError) as refused:
            AgentWorkerOptions(schema_interval=beyond)
        assert refused.value.option == "schema_interval"
