"""A node cannot read its answers: that is no failure of the node, whatever it makes of the error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any, TypeAlias

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import RunId, WaitId
from agentruns.domain.waits import NodeWait
from agentruns.errors import RunQuarantinedError, StoreUnavailableError, UnitOfWorkError
from agentruns.runtime.agent_loop import AgentLoopOutcome, DurableAgentLoop
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import StoreOptions
from agentruns.testing.drives import DriveWorld, builder, chain

InWorld = Callable[..., None]
Trouble: TypeAlias = Callable[[], AbstractAsyncContextManager[None]]

LONG = timedelta(minutes=1)
WAIT_ID = WaitId.generate()


async def raised(context: Any) -> Any:
    return await context.resolutions()


async def wrapped(context: Any) -> Any:
    try:
        return await context.resolutions()
    except Exception as error:
        raise ValueError from error


async def swallowed(context: Any) -> Any:
    try:
        return await context.resolutions()
    except Exception:  # noqa: BLE001 - whatever it is
        return ()


def asking(payload: Any, read: Callable[[Any], Any], troubles: list[Trouble]) -> GraphBundle:
    """A node that waits for an answer, and one that reads it, each attempt within the next trouble."""
    graph = builder()

    @graph.node(entry=True, wait_to="go_on")
    async def ask(_context: Any) -> Suspend:
        return Suspend(NodeWait.interrupt("approval", request=payload({}), id=WAIT_ID))

    @graph.node(terminal=True)
    async def go_on(context: Any) -> Finish:
        if not troubles:
            return Finish({"count": len(await context.resolutions())})
        async with troubles.pop()():
            return Finish({"count": len(await read(context))})

    return graph.build()


async def answered(world: DriveWorld, sleeper: Any) -> RunId:
    run_id: RunId = await sleeper.asleep(world)
    await sleeper.service(world).resolve_interrupt(**sleeper.answering(run_id, WAIT_ID))
    return run_id


@pytest.mark.parametrize("read", [raised, wrapped, swallowed])
def test_a_database_that_is_away_gives_the_run_back_with_the_attempt_unfinished(
    in_world: InWorld, sleeper: Any, payload: Any, read: Callable[[Any], Any]
) -> None:
    troubles: list[Trouble] = []

    async def work(world: DriveWorld) -> None:
        run_id = await answered(world, sleeper)

        @asynccontextmanager
        async def locked() -> AsyncIterator[None]:
            engine = create_async_engine(world.url, poolclass=NullPool)
            async with engine.connect() as connection:
                await connection.execute(text("LOCK TABLE agentruns.run_waits IN ACCESS EXCLUSIVE MODE"))
                yield

        troubles.append(locked)
        options = StoreOptions(lease_duration=LONG, lock_timeout=timedelta(milliseconds=100))
        async with AgentRunStore(world.store_url, options) as impatient:
            loop = DurableAgentLoop(impatient, world.executables, error_release_delay=timedelta(0))
            with pytest.raises(StoreUnavailableError):
                await loop.run(await world.claimed(run_id), world.shutdown)
        assert (await world.kinds())[-1] == "graph-node-attempt-started"
        assert await world.rows("SELECT 1 FROM agentruns.runs WHERE lease_attempt_id IS NOT NULL") == []
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
        assert (await world.attempts())[-2:] == [("go_on", 1, 2), ("go_on", 2, 3)]

    in_world(work, asking(payload, read, troubles), lease=LONG)


@pytest.mark.parametrize("read", [raised, wrapped, swallowed])
def test_an_answer_that_was_changed_under_the_node_isolates_the_run(
    in_world: InWorld, sleeper: Any, payload: Any, read: Callable[[Any], Any]
) -> None:
    troubles: list[Trouble] = []

    async def work(world: DriveWorld) -> None:
        run_id = await answered(world, sleeper)

        @asynccontextmanager
        async def changed() -> AsyncIterator[None]:
            await world.rows("UPDATE agentruns.run_waits SET resolution = convert_to('{}', 'UTF8')")
            yield

        troubles.append(changed)
        with pytest.raises(RunQuarantinedError) as isolated:
            await world.driven(run_id)
        assert (await world.kinds())[-1] == "graph-node-attempt-started"
        (record,) = await world.rows("SELECT quarantine_id, component FROM agentruns.run_quarantines")
        assert record.component == "run_waits.resolution"
        assert str(record.quarantine_id) == str(isolated.value.quarantine_id)

    in_world(work, asking(payload, read, troubles), lease=LONG)


def test_a_node_on_the_loop_may_not_block_it_for_its_answers(in_world: InWorld) -> None:
    async def a(context: Any) -> Finish:
        with pytest.raises(UnitOfWorkError) as refused:
            context.wait_for_resolutions()
        return Finish({"reason": refused.value.reason})

    async def work(world: DriveWorld) -> None:
        assert (await world.driven(await world.submitted())).outcome is AgentLoopOutcome.SUCCEEDED
        (row,) = await world.rows(
            "SELECT convert_from(body, 'UTF8')::json->'output' AS output FROM agentruns.run_outcomes"
        )
        assert row.output == {"reason": "on_event_loop"}

    in_world(work, chain(a=a), lease=LONG)


def test_a_plain_function_reads_its_answers_in_its_thread(in_world: InWorld) -> None:
    def a(context: Any) -> Finish:
        return Finish({"count": len(context.wait_for_resolutions())})

    async def work(world: DriveWorld) -> None:
        assert (await world.driven(await world.submitted())).outcome is AgentLoopOutcome.SUCCEEDED

    in_world(work, chain(a=a), lease=LONG)
