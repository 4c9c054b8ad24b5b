"""How a run fails, and how often a node is tried before: never the same refusal for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.failure import FailureCategory, SafeAfter
from agentruns.domain.failure_codes import (
    BARRIER_REJECTED,
    NODE_INVALID_FAILURE,
    NODE_INVALID_RESULT,
    RESULT_REJECTED,
    SUPERSTEP_LIMIT_REACHED,
)
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import WaitId
from agentruns.domain.numbers import DurationMillis
from agentruns.domain.outcome import FailedOutcome
from agentruns.domain.waits import NodeWait
from agentruns.errors import NodeFailedError, NotYetAvailableError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.node_retry import NODE_EXCEPTION, NodeRetry
from agentruns.testing.drives import DriveWorld, builder, chain, fan
from agentruns.testing.movable_clock import MovableClock
from agentruns.testing.samples import failure

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
ADMITTED, STARTED, RUN_FAILED = "agent-admitted", "graph-node-attempt-started", "graph-run-failed"
SUCCEEDED, FAILED, CONTINUED = "graph-node-attempt-succeeded", "graph-node-attempt-failed", "graph-barrier-continued"


class Passing(Exception):  # noqa: N818
    """What a node raises that is worth another attempt."""


def failing(times: int, *, attempts: int, delay: float) -> tuple[GraphBundle, list[int]]:
    """A node that fails so often before it succeeds, and the attempts that were called."""
    calls: list[int] = []
    graph = builder()

    @graph.node(entry=True, terminal=True, retry=NodeRetry(on=(Passing,), delay=delay, factor=1, attempts=attempts))
    def a(context: Any) -> Finish:
        calls.append(context.attempt)
        if len(calls) <= times:
            raise Passing
        return Finish({})

    return graph.build(), calls


async def failure_of(world: DriveWorld, run_id: Any) -> Any:
    outcome = (await world.loaded(run_id)).outcome
    assert isinstance(outcome, FailedOutcome)
    return outcome.failure


def test_a_node_that_may_be_repeated_is_deferred_and_a_later_drive_succeeds(
    in_world: InWorld, owner_url: str, run: Callable[[Any], Any]
) -> None:
    graph, calls = failing(1, attempts=3, delay=30)
    clock = MovableClock(owner_url)
    run(clock.install())

    async def work(world: DriveWorld) -> None:
        world.store.clock.monotonic = lambda: 0.0
        await clock.advance(timedelta(0))
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.DEFERRED
        (row,) = await world.rows(
            "SELECT r.scheduler_not_before, n.retry_not_before, e.recorded_at FROM agentruns.runs r"
            " JOIN agentruns.node_results n USING (tenant_id, run_id)"
            " JOIN agentruns.run_events e USING (tenant_id, run_id, sequence)"
        )
        assert row.scheduler_not_before == row.retry_not_before == row.recorded_at + timedelta(seconds=30)
        with pytest.raises(NotYetAvailableError) as early:
            await world.claimed(run_id)
        assert early.value.reason == "deferred"
        await clock.advance(timedelta(seconds=30))
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
        assert await world.attempts() == [("a", 1, 1), ("a", 2, 2)]
        assert calls == [1, 2]

    in_world(work, graph, lease=LONG)


def test_a_node_that_may_be_repeated_at_once_is_so_in_the_same_drive(in_world: InWorld) -> None:
    graph, calls = failing(2, attempts=3, delay=0)

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
        assert await world.attempts() == [("a", 1, 1), ("a", 2, 1), ("a", 3, 1)]
        assert calls == [1, 2, 3]

    in_world(work, graph, lease=LONG)


def test_a_node_that_uses_its_attempts_up_fails_the_run(in_world: InWorld) -> None:
    graph, calls = failing(9, attempts=2, delay=0)

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.FAILED
        assert await world.kinds() == [ADMITTED, STARTED, FAILED, STARTED, FAILED, RUN_FAILED]
        assert calls == [1, 2]
        assert (await failure_of(world, run_id)).code == NODE_EXCEPTION

    in_world(work, graph, lease=LONG)


def test_a_failure_that_a_node_declares_is_the_run_s_own(in_world: InWorld) -> None:
    declared = failure()

    def a(_context: Any) -> None:
        raise NodeFailedError(failure=declared)

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.FAILED
        found = await failure_of(world, run_id)
        assert (found.id, found.code, found.message) == (declared.id, declared.code, declared.message)

    in_world(work, chain(a=a), lease=LONG)


def test_a_text_that_a_node_declares_as_its_failure_fails_its_attempt_and_no_sibling_s(in_world: InWorld) -> None:
    declared: Any = "card declined"

    async def a(_context: Any) -> None:
        raise NodeFailedError(failure=declared)

    async def b(_context: Any) -> dict[str, int]:
        return {"b": 1}

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.FAILED
        assert await world.kinds() == [ADMITTED, STARTED, STARTED, FAILED, SUCCEEDED, RUN_FAILED]
        (row,) = await world.rows(
            "SELECT convert_from(body, 'UTF8')::json->'failure' AS failure FROM agentruns.node_results"
            " WHERE node_id = 'a'"
        )
        assert row.failure["code"] == str(NODE_INVALID_FAILURE)
        assert row.failure["details"]["value"] == {"reason": "unknown_shape"}

    graph = fan(first={"a": a, "b": b}, last=lambda _context: Finish({}))
    in_world(work, graph, lease=LONG, maximum_parallel_nodes=2)


@pytest.mark.parametrize("is_fused", [True, False])
def test_a_graph_that_goes_in_circles_ends_at_its_limit(in_world: InWorld, *, is_fused: bool) -> None:
    graph = builder(maximum_supersteps=3)

    @graph.node(entry=True, then="a", terminal=True)
    def a(_context: Any) -> None:
        return None

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        result = await world.driven(run_id)
        assert result.outcome is AgentLoopOutcome.FAILED
        assert await world.kinds() == [ADMITTED, *[STARTED, SUCCEEDED, CONTINUED] * 3, RUN_FAILED]
        found = await failure_of(world, run_id)
        assert (found.code, found.category) == (SUPERSTEP_LIMIT_REACHED, FailureCategory.RATE_LIMITED)

    in_world(work, graph.build(), lease=LONG, fuse_supersteps=is_fused)


@pytest.mark.parametrize("is_fused", [True, False])
def test_results_that_cannot_be_joined_fail_the_run_once(in_world: InWorld, *, is_fused: bool) -> None:
    siblings: dict[str, Any] = {"a": lambda _context: {"x": 1}, "b": lambda _context: {"x": 2}}

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.FAILED
        assert (await world.kinds())[-3:] == [SUCCEEDED, SUCCEEDED, RUN_FAILED]
        assert CONTINUED not in await world.kinds()
        found = await failure_of(world, run_id)
        assert (found.code, found.category) == (BARRIER_REJECTED, FailureCategory.INVALID_INPUT)
        assert found.details.value.value == {"reason": "reducer_rejected"}

    graph = fan(first=siblings, last=lambda _context: Finish({}))
    in_world(work, graph, lease=LONG, maximum_parallel_nodes=2, fuse_supersteps=is_fused)


def test_a_result_over_its_budget_fails_the_run(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted(limits=BudgetLimits.of(output_bytes=10))
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.FAILED
        assert await world.kinds() == [ADMITTED, STARTED, SUCCEEDED, RUN_FAILED]
        found = await failure_of(world, run_id)
        assert (found.code, found.category) == (RESULT_REJECTED, FailureCategory.RATE_LIMITED)
        assert found.details.value.value == {"reason": "limit"}

    in_world(work, chain(a=lambda _context: Finish({"text": "longer than ten bytes"})), lease=LONG)


@pytest.mark.parametrize("retry", [False, True])
def test_beside_a_failed_node_no_further_sibling_is_started(in_world: InWorld, *, retry: bool) -> None:
    advice = SafeAfter(delay=DurationMillis(60_000))

    def fails(_context: Any) -> None:
        raise NodeFailedError(failure=failure(retry_advice=advice if retry else None))

    async def slow(_context: Any) -> dict[str, int]:
        # So long that the failure before it is committed alone.
        await asyncio.sleep(0.3)
        return {"b": 1}

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        result = await world.driven(run_id)
        begun = [ADMITTED, STARTED, STARTED, FAILED, SUCCEEDED]
        if retry:
            # The one that may be repeated keeps its place in line; the others are started meanwhile.
            assert (await world.kinds())[:5] == begun
            assert result.outcome is AgentLoopOutcome.DEFERRED
        else:
            assert result.outcome is AgentLoopOutcome.FAILED
            assert await world.kinds() == [*begun, RUN_FAILED]

    siblings: dict[str, Any] = {"a": fails, "b": slow, "c": lambda _context: {"c": 1}, "d": lambda _context: {"d": 1}}
    in_world(work, fan(first=siblings, last=lambda _context: Finish({})), lease=LONG, maximum_parallel_nodes=2)


def test_a_wait_id_that_the_run_has_used_before_fails_the_attempt_that_brings_it(in_world: InWorld) -> None:
    wait_id = WaitId.generate()
    worlds: list[DriveWorld] = []
    graph = builder()

    @graph.node(entry=True, wait_to="b")
    async def a(context: Any) -> Suspend:
        # As if an earlier step had registered it: the row stands where the id would.
        await worlds[0].rows(
            "INSERT INTO agentruns.run_waits (tenant_id, run_id, wait_id, kind, registration, digest, status, sequence)"
            " VALUES ('tenant-a', cast(:run_id AS uuid), cast(:wait_id AS uuid), 'approval', '{}', :digest,"
            " 'outstanding', 1)",
            run_id=context.run_id.text,
            wait_id=wait_id.text,
            digest=bytes(32),
        )
        return Suspend(NodeWait.timer(due_in=timedelta(hours=1), id=wait_id))

    @graph.node(terminal=True)
    def b(_context: Any) -> Finish:
        return Finish({})

    async def work(world: DriveWorld) -> None:
        worlds.append(world)
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.FAILED
        assert await world.kinds() == [ADMITTED, STARTED, FAILED, RUN_FAILED]
        (row,) = await world.rows(
            "SELECT convert_from(body, 'UTF8')::json->'failure' AS failure FROM agentruns.node_results"
        )
        assert row.failure["code"] == str(NODE_INVALID_RESULT)
        assert row.failure["details"]["value"] == {"reason": "wait_id_reused"}

    in_world(work, graph.build(), lease=LONG)
