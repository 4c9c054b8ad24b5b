"""Runs of parallel nodes: isolated siblings that begin at once, and a last node that waits for every one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

from attrs import frozen

from agentruns import AgentSubmissionKey, Finish, GraphBuilder, SucceededOutcome
from agentruns.domain.canonical import JsonTree
from agentruns.domain.graph.executable import GraphNodeScheduling
from agentruns.domain.submission import DurableAgentAdmissionRequest
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.context import GraphNodeContext
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.testing import samples
from agentruns.testing.drives import DriveWorld, open_world
from benchmarks.place import OURS, Place
from benchmarks.workload import ARTICLES, order

#: Siblings of one run.
SIBLINGS: Final = 16

_ANY: Final[dict[str, JsonTree]] = {"type": "object"}


def sibling_names(count: int) -> list[str]:
    """Name what each sibling adds to the state."""
    return [f"sibling_{number:02d}" for number in range(count)]


@frozen
class Fans:
    """A worker's parts for runs of parallel nodes."""

    world: DriveWorld

    def requests(self, numbers: Iterable[int]) -> list[DurableAgentAdmissionRequest]:
        """Build what is submitted."""
        return [self.world.request(order(number)) for number in numbers]

    async def run(self, request: DurableAgentAdmissionRequest) -> None:
        """Submit a run, drive it to its end and read the verified result."""
        await self.world.runs.submit(AgentSubmissionKey.generate(), request)
        result = await self.world.driven(request.run_id)
        assert result.outcome is AgentLoopOutcome.SUCCEEDED
        outcome = (await self.world.loaded(request.run_id)).outcome
        assert isinstance(outcome, SucceededOutcome)
        assert outcome.result.output.value == {"articles": ARTICLES}


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[Fans]:
    """Publish the graph, and open a store of its own."""
    url = place.url(OURS).render_as_string(hide_password=False)
    async with open_world(url, _graph(), lease=timedelta(minutes=1), maximum_parallel_nodes=SIBLINGS) as world:
        yield Fans(world)


def _graph() -> GraphBundle:
    graph = GraphBuilder("benchmark.fan", "1.0.0", input=_ANY, state=_ANY, output=_ANY, owner=samples.principal())
    isolated = GraphNodeScheduling.JOURNAL_ISOLATED
    for name in sibling_names(SIBLINGS):
        graph.node(name=name, entry=True, then="last", scheduling=isolated)(_sibling(name))
    graph.node(name="last", terminal=True)(_answer)
    return graph.build()


def _sibling(name: str) -> Callable[[GraphNodeContext], Any]:
    async def node(context: GraphNodeContext) -> dict[str, str]:
        return {name: f"order {context.run_id}"}

    return node


async def _answer(context: GraphNodeContext) -> Finish:
    assert len(context.state) == SIBLINGS
    return Finish({"articles": ARTICLES})
