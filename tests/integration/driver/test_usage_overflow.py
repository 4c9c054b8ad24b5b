"""Usage that a run could not count is a failed attempt, before anything is written: no drive meets it again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.failure_codes import NODE_INVALID_FAILURE, NODE_INVALID_RESULT, RESULT_REJECTED
from agentruns.domain.graph.returns import Continue, Finish
from agentruns.domain.outcome import FailedOutcome
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import NodeFailedError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.testing.drives import DriveWorld, chain, fan
from agentruns.testing.samples import failure

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
MOST = 2**64 - 1
LARGE = 2**63 - 1
ADMITTED, STARTED, RUN_FAILED = "agent-admitted", "graph-node-attempt-started", "graph-run-failed"
SUCCEEDED, FAILED, CONTINUED = "graph-node-attempt-succeeded", "graph-node-attempt-failed", "graph-barrier-continued"


async def outcome_of(world: DriveWorld, run_id: Any) -> FailedOutcome:
    outcome = (await world.loaded(run_id)).outcome
    assert isinstance(outcome, FailedOutcome)
    return outcome


async def is_refused(world: DriveWorld, run_id: Any, code: object) -> FailedOutcome:
    """The run has failed by the closed reason."""
    outcome = await outcome_of(world, run_id)
    assert outcome.failure.code == code
    assert outcome.failure.details is not None
    assert outcome.failure.details.value.value == {"reason": "usage_invalid"}
    return outcome


@pytest.mark.parametrize("is_fused", [True, False])
@pytest.mark.parametrize("name", ["graph_steps", "input_bytes", "output_bytes", "event_bytes", "checkpoint_bytes"])
def test_LIF_17_usage_that_the_run_cannot_count_fails_the_attempt_at_once(
    in_world: InWorld, name: str, *, is_fused: bool
) -> None:
    calls: list[str] = []
    reported: dict[str, Any] = {name: LARGE}

    def step(context: Any) -> Continue:
        calls.append(context.node_id.text)
        return Continue({}, usage=BudgetUsage.of(**reported))

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.FAILED
        assert calls == ["a", "b"]
        assert await world.kinds() == [ADMITTED, STARTED, SUCCEEDED, CONTINUED, STARTED, FAILED, RUN_FAILED]
        usage = (await is_refused(world, run_id, NODE_INVALID_RESULT)).usage
        assert LARGE <= getattr(usage, name).value < LARGE + 10_000

    graph = chain(a=step, b=step, c=lambda _context: Finish({}))
    in_world(work, graph, lease=LONG, fuse_supersteps=is_fused)


def test_usage_of_siblings_is_added_up_before_any_of_them_is_committed(in_world: InWorld) -> None:
    def first(_context: Any) -> Continue:
        return Continue({}, usage=BudgetUsage.of(input_tokens=MOST))

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.FAILED
        assert await world.kinds() == [ADMITTED, STARTED, STARTED, SUCCEEDED, FAILED, RUN_FAILED]
        assert (await is_refused(world, run_id, NODE_INVALID_RESULT)).usage.input_tokens.value == MOST

    graph = fan(first={"a": first, "b": first}, last=lambda _context: Finish({}))
    in_world(work, graph, lease=LONG, maximum_parallel_nodes=2)


def test_usage_of_a_declared_failure_is_held_to_the_same(in_world: InWorld) -> None:
    def fails(_context: Any) -> None:
        raise NodeFailedError(failure=failure(), usage=BudgetUsage.of(event_bytes=MOST))

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.FAILED
        assert await world.kinds() == [ADMITTED, STARTED, FAILED, RUN_FAILED]
        assert (await is_refused(world, run_id, NODE_INVALID_FAILURE)).usage.event_bytes.value < 10_000

    in_world(work, chain(a=fails), lease=LONG)


def test_the_output_of_a_run_can_be_added_to_whatever_its_last_node_may_report(in_world: InWorld) -> None:
    def last(_context: Any) -> Finish:
        return Finish({}, usage=BudgetUsage.of(output_bytes=LARGE))

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.FAILED
        assert await world.kinds() == [ADMITTED, STARTED, SUCCEEDED, RUN_FAILED]
        outcome = await outcome_of(world, run_id)
        # It is above the budget, which is another matter; it could be written.
        assert outcome.failure.code == RESULT_REJECTED
        assert outcome.usage.output_bytes.value == LARGE + len(b"{}")

    in_world(work, chain(a=last), lease=LONG)


def test_an_output_for_which_the_last_node_leaves_no_room_fails_that_attempt(in_world: InWorld) -> None:
    def last(_context: Any) -> Finish:
        return Finish({}, usage=BudgetUsage.of(output_bytes=MOST))

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.FAILED
        assert await world.kinds() == [ADMITTED, STARTED, FAILED, RUN_FAILED]
        assert (await is_refused(world, run_id, NODE_INVALID_RESULT)).usage.output_bytes.value == 0

    in_world(work, chain(a=last), lease=LONG)
