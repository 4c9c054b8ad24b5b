"""A database whose transactions are serializable: what is ours is repeated, what is the caller's is the caller's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.graph.returns import Finish
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import StoreUnavailableError
from agentruns.runtime.agent_loop import AgentLoopOutcome, DurableAgentLoop
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import StoreOptions
from agentruns.store.transient import sqlstate_of
from agentruns.testing.drives import DriveWorld, chain

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
STORES, DRIVES = 4, 20
ALWAYS = 10**9
GRAPH = chain(a=lambda _context: Finish({}))


class Failing:
    """Refuse new events as a serialization failure would, a given number of times, whoever brings them."""

    def __init__(self, world: DriveWorld) -> None:
        self.world = world

    async def install(self) -> None:
        await self.world.rows("CREATE SEQUENCE public.tries")
        await self.world.rows("CREATE TABLE public.failing AS SELECT cast(0 AS bigint) AS count")
        await self.world.rows(
            "CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN"
            " IF nextval('public.tries') <= (SELECT count FROM public.failing)"
            " THEN RAISE EXCEPTION USING ERRCODE = '40001'; END IF; RETURN NEW; END $$"
        )
        await self.world.rows(
            "CREATE TRIGGER failing BEFORE INSERT ON agentruns.run_events FOR EACH ROW EXECUTE FUNCTION public.fail()"
        )

    async def first(self, count: int) -> None:
        """Refuse so many from now on."""
        await self.world.rows("ALTER SEQUENCE public.tries RESTART")
        await self.world.rows("UPDATE public.failing SET count = :count", count=count)

    async def tries(self) -> int:
        (row,) = await self.world.rows("SELECT last_value AS tries FROM public.tries")
        return int(row.tries)


async def be_serializable(world: DriveWorld) -> None:
    name = make_url(world.url).database
    await world.rows(f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = 'serializable'")


def test_H6_many_workers_of_a_serializable_database_end_every_run(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        await be_serializable(world)
        async with AsyncExitStack() as opened:
            options = StoreOptions(lease_duration=LONG)
            stores = [await opened.enter_async_context(AgentRunStore(world.store_url, options)) for _ in range(STORES)]
            loops = [DurableAgentLoop(store, world.executables) for store in stores]
            run_ids = await asyncio.gather(*(world.submitted() for _ in range(DRIVES)))
            failing = Failing(world)
            await failing.install()
            await failing.first(2)

            async def drive(number: int) -> AgentLoopOutcome:
                worker = DriveWorld(
                    world.url,
                    world.bundle,
                    stores[number % STORES],
                    world.runs,
                    loops[number % STORES],
                    world.executables,
                )
                return (await worker.driven(run_ids[number])).outcome

            assert set(await asyncio.gather(*map(drive, range(DRIVES)))) == {AgentLoopOutcome.SUCCEEDED}
        assert await world.attempts() == [("a", 1, 1)] * DRIVES

    in_world(work, GRAPH, lease=LONG)


def test_H6_ours_is_repeated_with_the_same_ids_so_often_and_no_more(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        async with AgentRunStore(world.store_url, StoreOptions(lease_duration=LONG, attempts=3)) as store:
            runs, failing = DurableAgentRuns(store, world.executables), Failing(world)
            await failing.install()
            await failing.first(2)
            request = world.request()
            admitted = await runs.submit(AgentSubmissionKey.generate(), request)
            assert (admitted.outcome, await failing.tries()) == (MutationOutcome.COMMITTED, 3)
            assert admitted.snapshot.provenance.run_id == request.run_id
            await failing.first(ALWAYS)
            before = await world.everything()
            with pytest.raises(StoreUnavailableError) as refused:
                await runs.submit(AgentSubmissionKey.generate(), world.request())
            assert (refused.value.sqlstate, refused.value.attempts, refused.value.retryable) == ("40001", 3, True)
            assert (await failing.tries(), await world.everything()) == (3, before)

    in_world(work, GRAPH, lease=LONG)


def test_H6_the_callers_own_serialization_failure_passes_through(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        await be_serializable(world)
        failing, key, request = Failing(world), AgentSubmissionKey.generate(), world.request()
        await failing.install()
        await failing.first(1)
        engine = create_async_engine(world.store_url, poolclass=NullPool, isolation_level="SERIALIZABLE")
        async with engine.connect() as connection:
            with pytest.raises(DBAPIError) as passed:
                await world.runs.submit(key, request, session=connection)
            assert (sqlstate_of(passed.value), await failing.tries()) == ("40001", 1)
            await connection.rollback()
            again = await world.runs.submit(key, request, session=connection)
            assert again.outcome is MutationOutcome.COMMITTED
            await connection.commit()
        await engine.dispose()
        assert (await world.loaded(request.run_id)).provenance.run_id == request.run_id

    in_world(work, GRAPH, lease=LONG)
