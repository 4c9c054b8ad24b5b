"""What keeps a barrier from being planned now never undoes a node that has ended: its completion is durable first."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph import barrier
from agentruns.domain.graph.reducers import MergeReducer
from agentruns.domain.graph.returns import Finish
from agentruns.errors import (
    CorruptDataError,
    DeploymentError,
    ExecutableGraphUnavailableError,
    RunQuarantinedError,
)
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.testing.drives import DriveWorld, chain, fan

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
DRIVES = 3
ADMITTED, STARTED, SUCCEEDED = "agent-admitted", "graph-node-attempt-started", "graph-node-attempt-succeeded"
CONTINUED, ENDED = "graph-barrier-continued", "graph-barrier-succeeded"

#: What planning calls, what that raises, and what the drive ends with.
HINDRANCES: dict[str, tuple[Any, str, BaseException, type[BaseException], str]] = {
    "the reducer cannot run": (
        MergeReducer,
        "reduce",
        DeploymentError(reason="dependency"),
        ExecutableGraphUnavailableError,
        "reducer",
    ),
    "the reducer lacks memory": (
        MergeReducer,
        "reduce",
        MemoryError(),
        ExecutableGraphUnavailableError,
        "out_of_memory",
    ),
    "a schema is missing": (
        barrier,
        "_check_base",
        ExecutableGraphUnavailableError(reason="schema", graph="graph"),
        ExecutableGraphUnavailableError,
        "schema",
    ),
    "the plan itself lacks memory": (barrier, "_successors", MemoryError(), MemoryError, ""),
}


def hinder(patch: pytest.MonkeyPatch, owner: Any, name: str, error: BaseException) -> None:
    def hindered(*_arguments: Any, **_options: Any) -> Any:
        raise error

    patch.setattr(owner, name, hindered)


async def is_left_alone(world: DriveWorld) -> bool:
    found = await world.rows("SELECT quarantined_at, lease_attempt_id FROM agentruns.runs")
    return [tuple(row) for row in found] == [(None, None)]


@pytest.mark.parametrize("is_fused", [True, False])
@pytest.mark.parametrize("what", HINDRANCES)
def test_DRV_05_a_node_runs_once_however_often_its_barrier_cannot_be_planned(
    in_world: InWorld, monkeypatch: pytest.MonkeyPatch, what: str, *, is_fused: bool
) -> None:
    owner, name, raised, kind, reason = HINDRANCES[what]
    calls: list[str] = []

    def first(_context: Any) -> dict[str, int]:
        calls.append("a")
        return {"a": 1}

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        with monkeypatch.context() as patch:
            hinder(patch, owner, name, raised)
            for _ in range(DRIVES):
                with pytest.raises(kind) as seen:
                    await world.driven(run_id)
                assert getattr(seen.value, "reason", "") == reason
                assert (calls, await world.kinds()) == (["a"], [ADMITTED, STARTED, SUCCEEDED])
                assert await is_left_alone(world)
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
        assert calls == ["a"]
        assert await world.kinds() == [ADMITTED, STARTED, SUCCEEDED, CONTINUED, STARTED, SUCCEEDED, ENDED]

    graph = chain(a=first, b=lambda context: Finish(context.state))
    in_world(work, graph, lease=LONG, fuse_supersteps=is_fused)


def test_a_node_that_has_ended_is_durable_before_a_contradiction_in_the_barrier_isolates_its_run(
    in_world: InWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = CorruptDataError(component="barrier", reason="control_undeclared")

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        hinder(monkeypatch, barrier, "_check_result", found)
        with pytest.raises(RunQuarantinedError, match="component=barrier:superstep-0"):
            await world.driven(run_id)
        assert await world.kinds() == [ADMITTED, STARTED, SUCCEEDED]
        (row,) = await world.rows(
            "SELECT q.component, q.quarantined_at = r.quarantined_at AS is_it, r.lease_attempt_id"
            " FROM agentruns.run_quarantines q JOIN agentruns.runs r USING (tenant_id, run_id)"
        )
        assert tuple(row) == ("barrier:superstep-0", True, None)

    in_world(work, chain(a=lambda _context: {"a": 1}, b=lambda context: Finish(context.state)), lease=LONG)


def test_the_rest_of_a_batch_is_committed_too_when_the_barrier_cannot_be_planned(
    in_world: InWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    worlds: list[DriveWorld] = []

    async def second(_context: Any) -> dict[str, int]:
        calls.append("b")
        await worlds[0].until(SUCCEEDED)
        return {"b": 1}

    def first(_context: Any) -> dict[str, int]:
        calls.append("a")
        return {"a": 1}

    async def work(world: DriveWorld) -> None:
        worlds.append(world)
        run_id = await world.submitted()
        with monkeypatch.context() as patch:
            hinder(patch, MergeReducer, "reduce", DeploymentError(reason="dependency"))
            for _ in range(DRIVES):
                with pytest.raises(ExecutableGraphUnavailableError):
                    await world.driven(run_id)
                assert await world.kinds() == [ADMITTED, STARTED, STARTED, SUCCEEDED, SUCCEEDED]
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
        assert sorted(calls) == ["a", "b"]

    graph = fan(first={"a": first, "b": second}, last=lambda context: Finish(context.state))
    in_world(work, graph, lease=LONG, maximum_parallel_nodes=2)
