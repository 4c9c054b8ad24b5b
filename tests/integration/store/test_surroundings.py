"""The whole life of a run where surroundings are poor: one connection, no search path, backends that are ended."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Final

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import AttemptId, EventId
from agentruns.domain.outcome import SucceededOutcome
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scalars import JournalEventKind
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.waits import NodeWait, WaitResolver
from agentruns.runtime.agent_loop import AgentLoopOutcome, DurableAgentLoop
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.supervisor import DurableRunSupervisor
from agentruns.runtime.waits import DurableRunWaits
from agentruns.store.options import StoreOptions
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, DriveWorld, builder
from agentruns.testing.strangers import Stranger

InWorld = Callable[..., None]

LONG: Final = timedelta(minutes=1)
#: A store's options, by what it is put into.
SURROUNDINGS: Final = {
    "one connection": StoreOptions(lease_duration=LONG, pool_size=1),
    "no search path": StoreOptions(lease_duration=LONG),
    "ended backends": StoreOptions(lease_duration=LONG),
    "no kept statements": StoreOptions(lease_duration=LONG),
}


@pytest.fixture(autouse=True)
def clones_are_verified_once() -> None:
    """Not here: each store verifies what it finds."""


def payload(data: Any) -> JournalPayload:
    schema, kind = samples.schema_reference("evidence"), JournalEventKind("answer")
    return JournalPayload(schema=schema, kind=kind, data=BoundedJson.of(data))


def graph(during: Callable[[], Coroutine[Any, Any, Any]]) -> GraphBundle:
    """Ask and sleep between two nodes, and let something happen inside each of them."""
    built = builder()

    @built.node(entry=True, wait_to="go_on")
    async def ask(_context: Any) -> Suspend:
        await during()
        return Suspend(NodeWait.interrupt("input", request=payload("?")), NodeWait.timer(due_in=timedelta(0)))

    @built.node(terminal=True)
    async def go_on(context: Any) -> Finish:
        await during()
        answered, _ = await context.resolutions()
        return Finish({"answer": answered.resolution.payload.data.value})

    return built.build()


async def life_of_a_run(world: DriveWorld, store: AgentRunStore) -> None:
    """Submit a run twice, drive it, answer it, and drive it to its end, all through one store."""
    runs = DurableAgentRuns(store, world.executables)
    loop = DurableAgentLoop(
        store, world.executables, driver_options=DurableGraphDriverOptions(lease_renewal_interval=LONG / 4)
    )
    waits = DurableRunWaits(store, world.executables)
    key, request = AgentSubmissionKey.generate(), world.request()
    for expected in (MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT):
        assert (await runs.submit(key, request)).outcome is expected
    run_id, digests = request.run_id, [world.bundle.graph.definition_digest]
    (held,) = await store.claim_ready(TENANT, 1, attempt_ids=[AttemptId.generate()], graph_digests=digests)
    assert (await loop.run(held, world.shutdown)).outcome is AgentLoopOutcome.WAITING
    tick = await DurableRunSupervisor(store, world.executables).tick(TENANT)
    assert tick.errors == ()
    (asked,) = await waits.outstanding(TENANT, run_id)
    await waits.resolve_interrupt(
        TENANT,
        run_id,
        asked.wait_id,
        event_id=EventId.generate(),
        resolution=payload("yes"),
        resolver=WaitResolver(principal=samples.principal(), scopes=ScopeSet.of()),
    )
    held = await store.claim(TENANT, run_id, AttemptId.generate())
    assert (await loop.run(held, world.shutdown)).outcome is AgentLoopOutcome.SUCCEEDED
    outcome = (await runs.load_by_key(TENANT, key)).outcome
    assert isinstance(outcome, SucceededOutcome)
    assert outcome.result.output.value == {"answer": "yes"}
    assert await world.attempts() == [("ask", 1, 1), ("go_on", 1, 2)]


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_OPS_06_a_run_lives_through_poor_surroundings(in_world: InWorld, name: str) -> None:
    worlds: list[DriveWorld] = []

    async def during() -> None:
        if name == "ended backends":
            await Stranger(worlds[0].url).terminate_connections()

    async def work(world: DriveWorld) -> None:
        worlds.append(world)
        if name == "no search path":
            engine = create_async_engine(world.url, poolclass=NullPool)
            async with engine.begin() as connection:
                database = make_url(world.url).database
                await connection.execute(text(f"ALTER DATABASE \"{database}\" SET search_path = ''"))
            await engine.dispose()
        url = make_url(world.store_url)
        if name == "no kept statements":
            # As it has to be behind a pooler that keeps none between transactions.
            url = url.update_query_dict({"statement_cache_size": "0", "prepared_statement_cache_size": "0"})
        async with AgentRunStore(url, SURROUNDINGS[name]) as store:
            await life_of_a_run(world, store)

    in_world(work, graph(during), lease=LONG)
