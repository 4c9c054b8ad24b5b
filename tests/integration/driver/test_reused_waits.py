"""A wait id that the run has used before fails the attempt that brings it, and no other of its batch."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agentruns.domain.failure_codes import NODE_INVALID_RESULT
from agentruns.domain.graph.executable import GraphNodeScheduling
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import WaitId
from agentruns.domain.waits import NodeWait
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.testing.drives import DriveWorld, builder

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
HOUR = timedelta(hours=1)
PAST = datetime(2020, 1, 1, tzinfo=UTC)
REFUSED = (str(NODE_INVALID_RESULT), "wait_id_reused")
RESULTS = (
    "SELECT node_id, status, convert_from(body, 'UTF8')::json->'failure' AS failure FROM agentruns.node_results"
    " WHERE superstep = 1 ORDER BY sequence"
)


def after_a_wait(used: WaitId, reusing: str) -> GraphBundle:
    """One wait that settles at once; then three waiting siblings, of which some bring its id beside a fresh one."""
    graph = builder()

    @graph.node(entry=True, wait_to=["x", "y", "z"])
    def a(_context: Any) -> Suspend:
        return Suspend(NodeWait.timer(due_at=PAST, id=used))

    def sibling(context: Any) -> Suspend:
        waits = [NodeWait.timer(due_in=HOUR)]
        if context.node_id.text in reusing:
            waits.append(NodeWait.timer(due_in=HOUR, id=used))
        return Suspend(*waits)

    for name in "xyz":
        graph.node(name=name, wait_to="end", scheduling=GraphNodeScheduling.JOURNAL_ISOLATED)(sibling)
    graph.node(name="end", terminal=True)(lambda _context: Finish({}))
    return graph.build()


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("reusing", ["x", "y", "z", "xz", "xyz"])
def test_only_the_attempts_that_bring_a_used_wait_id_fail(in_world: InWorld, reusing: str, width: int) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.WAITING
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.FAILED
        found = [
            (
                row.node_id,
                row.status,
                row.failure and (row.failure["code"], row.failure["details"]["value"]["reason"]),
            )
            for row in await world.rows(RESULTS)
        ]
        ended = "xyz" if width == 3 else "xyz"[: "xyz".index(reusing[0]) + 1]
        assert found == [(name, "failed", REFUSED) if name in reusing else (name, "succeeded", None) for name in ended]

    graph = after_a_wait(WaitId.generate(), reusing)
    in_world(work, graph, lease=LONG, maximum_parallel_nodes=width)
