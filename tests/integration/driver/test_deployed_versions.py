"""What is pinned is the version of a graph: runs go on under it, whatever is deployed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import AttemptId, EventId, RunId
from agentruns.domain.outcome import FailedOutcome, SucceededOutcome
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scalars import JournalEventKind
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.status import RunStatus
from agentruns.domain.waits import NodeWait, WaitResolver
from agentruns.errors import DeploymentError, IdConflictError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.graph_builder import GraphBuilder
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.waits import DurableRunWaits
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, DriveWorld, open_world

Run = Callable[[Coroutine[Any, Any, Any]], Any]

LONG = timedelta(minutes=1)
ONE_SLOT = AgentWorkerOptions(slots=1, listens=False)


def deployed(
    *chain: tuple[str, Callable[[Any], Any]], name: str = "sample-graph", version: str = "1.0.0", **schemas: Any
) -> GraphBundle:
    """Build nodes that follow one another, whichever of them waits."""
    documents = {"input": {"type": "object"}, "state": {"type": "object"}, "output": {"type": "object"}, **schemas}
    graph = GraphBuilder(name, version, owner=samples.principal(), **documents)
    for place, (node, function) in enumerate(chain):
        then = chain[place + 1][0] if place + 1 < len(chain) else None
        graph.node(name=node, entry=place == 0, then=then, wait_to=then, terminal=then is None)(function)
    return graph.build()


def payload(data: Any) -> JournalPayload:
    schema, kind = samples.schema_reference("evidence"), JournalEventKind("answer")
    return JournalPayload(schema=schema, kind=kind, data=BoundedJson.of(data))


async def claims_of(world: DriveWorld) -> list[RunId]:
    digests = world.executables.graph_digests
    claimed = await world.store.claim_ready(TENANT, 1, attempt_ids=[AttemptId.generate()], graph_digests=digests)
    return [each.fence.run_id for each in claimed]


async def codes_of(world: DriveWorld, run_id: RunId) -> list[str]:
    return [reason.code.value for reason in (await world.runs.explain(TENANT, run_id)).reasons]


async def run_rows(world: DriveWorld) -> list[str]:
    return [row for name, row in await world.everything() if name != "graph_definitions"]


async def answer(world: DriveWorld, run_id: RunId) -> None:
    waits = DurableRunWaits(world.store, world.executables)
    (asked,) = await waits.outstanding(TENANT, run_id)
    resolver = WaitResolver(principal=samples.principal(), scopes=ScopeSet.of())
    await waits.resolve_interrupt(
        TENANT, run_id, asked.wait_id, event_id=EventId.generate(), resolution=payload("yes"), resolver=resolver
    )


def test_F1_a_run_that_waits_is_resumed_by_whoever_has_its_version(database_url: str, owner_url: str, run: Run) -> None:
    async def ask(_context: Any) -> Any:
        return Suspend(NodeWait.interrupt("input", request=payload("?")))

    def edited(_context: Any) -> Any:
        raise AssertionError("has run already")

    def end(_context: Any) -> Finish:
        return Finish({"by": "edited"})

    before = deployed(("ask", ask), ("end", lambda _context: Finish({"by": "first"})))
    after = deployed(("ask", edited), ("end", end))
    other = deployed(("ask", edited), name="another-graph")

    async def work() -> None:
        async with open_world(owner_url, before, store_url=database_url, lease=LONG) as world:
            run_id = await world.submitted()
            assert (await world.driven(run_id)).outcome is AgentLoopOutcome.WAITING
        async with (
            open_world(owner_url, other, store_url=database_url, lease=LONG) as without,
            open_world(owner_url, after, store_url=database_url, lease=LONG) as world,
        ):
            await answer(world, run_id)
            left = await world.everything()
            assert await claims_of(without) == []
            explanation = await without.runs.explain(TENANT, run_id)
            (missing,) = [each for each in explanation.reasons if each.code.value == "graph_not_deployed"]
            assert f"the graph sample-graph 1.0.0 ({before.graph.definition_digest})" in missing.sentence
            assert await world.everything() == left
            assert await claims_of(world) == [run_id]
            await world.expire_leases()
            assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
            outcome = (await world.loaded(run_id)).outcome
            assert isinstance(outcome, SucceededOutcome)
            assert outcome.result.output.value == {"by": "edited"}

    run(work())


def test_F3_runs_of_a_graph_that_a_worker_lacks_are_in_nobodys_way(database_url: str, owner_url: str, run: Run) -> None:
    first = deployed(("a", lambda _context: Finish({})))
    second = deployed(("a", lambda _context: Finish({})), name="second-graph")

    async def work() -> None:
        async with (
            open_world(owner_url, first, store_url=database_url, lease=LONG) as world,
            open_world(owner_url, second, store_url=database_url, lease=LONG) as full,
        ):
            others = [await full.submitted() for _ in range(50)]
            untouched = set(await run_rows(world))
            await world.submitted()
            worker = AgentWorker(world.store, world.executables, tenants=[TENANT], loop=world.loop, options=ONE_SLOT)
            assert (await worker.run_until_idle()).outcomes == {AgentLoopOutcome.SUCCEEDED: 1}
            assert await claims_of(world) == []
            assert untouched <= set(await run_rows(world))
            assert "graph_not_deployed" in await codes_of(world, others[0])
            assert "graph_not_deployed" not in await codes_of(full, others[0])
            worker = AgentWorker(full.store, full.executables, tenants=[TENANT], loop=full.loop)
            assert (await worker.run_until_idle()).outcomes == {AgentLoopOutcome.SUCCEEDED: 50}

    run(work())


def _nodes(names: Iterable[str], calls: list[str]) -> list[tuple[str, Callable[[Any], Any]]]:
    """Make nodes that note their calls; the last one finishes."""

    def node(name: str, *, is_last: bool) -> Callable[[Any], Any]:
        def execute(_context: Any) -> Any:
            calls.append(name)
            return Finish({}) if is_last else None

        return execute

    listed = list(names)
    return [(name, node(name, is_last=name == listed[-1])) for name in listed]


@pytest.mark.parametrize("names", ["axbc", "bc", "acb"], ids=["inserted", "removed", "swapped"])
def test_F4_a_version_is_never_executed_as_something_else(
    database_url: str, owner_url: str, run: Run, names: str
) -> None:
    calls: list[str] = []
    wrong: list[str] = []
    version, altered = deployed(*_nodes("abc", calls)), deployed(*_nodes(names, wrong))

    async def work() -> None:
        async with open_world(
            owner_url, version, store_url=database_url, lease=LONG, maximum_durable_events=4
        ) as world:
            run_id = await world.submitted()
            assert (await world.driven(run_id)).outcome is AgentLoopOutcome.YIELDED
            assert calls == ["a"]
            left = await world.everything()
            with pytest.raises(IdConflictError) as refused:
                async with open_world(owner_url, altered, store_url=database_url, lease=LONG):
                    pass
            assert refused.value.kind == "graph"
            assert await world.everything() == left
            while (await world.loaded(run_id)).status is RunStatus.ACTIVE:
                await world.driven(run_id)
            assert [(node, attempt) for node, attempt, _ in await world.attempts()] == [(each, 1) for each in "abc"]
        assert (calls, wrong) == (["a", "b", "c"], [])

    run(work())


def test_F5_a_result_is_read_by_the_schema_of_the_version_that_stored_it(
    database_url: str, owner_url: str, run: Run
) -> None:
    both = {"id": {"type": "integer"}, "p": {"type": "string"}}
    older: dict[str, Any] = {"update": {"type": "object", "required": ["id"], "properties": both}}
    newer: dict[str, Any] = {"update": {"type": "object", "required": ["id", "p"], "properties": both}}
    nodes = (("a", lambda _context: {"id": 1}), ("b", lambda context: Finish({"id": context.state["id"]})))
    first = deployed(*nodes, **older)
    second = deployed(*nodes, version="2.0.0", **newer)

    async def work() -> None:
        async with open_world(owner_url, first, store_url=database_url, lease=LONG, maximum_durable_events=4) as world:
            run_id = await world.submitted()
            assert (await world.driven(run_id)).outcome is AgentLoopOutcome.YIELDED
            assert (await world.attempts()) == [("a", 1, 1)]
        async with open_world(owner_url, second, store_url=database_url, lease=LONG) as world:
            left = await world.everything()
            assert await claims_of(world) == []
            assert await world.everything() == left
            held = await world.claimed(run_id)
            with pytest.raises(DeploymentError):
                await world.loop.run(held, world.shutdown)
            # In the newer version the older shape is a failed attempt, which says what is wrong.
            late = await world.submitted()
            await world.driven(late)
            outcome = (await world.loaded(late)).outcome
            assert isinstance(outcome, FailedOutcome)
            assert str(outcome.failure.code) == "runtime.node.invalid_result"
        async with open_world(owner_url, first, store_url=database_url, lease=LONG) as world:
            assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
            outcome = (await world.loaded(run_id)).outcome
            assert isinstance(outcome, SucceededOutcome)
            assert outcome.result.output.value == {"id": 1}

    run(work())
