"""From its admission to its end, a run is shown alike by its id and by its key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentruns.domain.graph.returns import Finish
from agentruns.domain.status import RunStatus
from agentruns.domain.submission import AgentRunIds, MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, DriveWorld, chain

InWorld = Callable[..., None]


def test_SUB_18_load_and_load_by_key_agree_through_the_life_of_a_run(in_world: InWorld) -> None:
    key = AgentSubmissionKey.generate()
    worlds: list[DriveWorld] = []
    seen: list[Any] = []

    async def look() -> Any:
        """Look in both ways, from within a node too, and submit once more."""
        runs = worlds[0].runs
        by_key = await runs.load_by_key(TENANT, key)
        assert await runs.load(TENANT, by_key.provenance.run_id) == by_key
        again = await runs.submit(key, request_of(worlds[0]))
        assert (again.outcome, again.snapshot) == (MutationOutcome.IDEMPOTENT, by_key)
        seen.append(by_key)
        return by_key

    async def goes_on(_context: Any) -> None:
        await look()

    async def ends(_context: Any) -> Any:
        await look()
        return Finish({"answer": 42})

    async def work(world: DriveWorld) -> None:
        worlds.append(world)
        admitted = await world.runs.submit(key, request_of(world))
        assert await look() == admitted.snapshot
        held = await world.claimed(admitted.snapshot.provenance.run_id)
        assert await look() == admitted.snapshot
        assert (await world.loop.run(held, world.shutdown)).outcome is AgentLoopOutcome.SUCCEEDED
        ended = await look()
        assert (ended.status, ended.outcome.result.output.value) == (RunStatus.SUCCEEDED, {"answer": 42})
        assert [each.revision.value for each in seen] == [1, 1, 1, 1, 1, 2]
        assert len(set(seen)) == 2

    in_world(work, chain(a=goes_on, b=goes_on, c=ends))


def request_of(world: DriveWorld) -> Any:
    graph = world.bundle.graph
    return samples.admission_request(
        ids=AgentRunIds.generate(),
        descriptor=samples.agent(input_schema=graph.input_schema, output_schema=graph.output_schema),
        request=samples.agent_request(input={}, input_schema=graph.input_schema),
        graph=graph.reference,
        initial_state=samples.graph_state({}, schema=graph.state_schema),
    )
