"""A worker process whose reducer, or whose node, depends on the order of a set: it differs with ``PYTHONHASHSEED``.

Run it as ``python hash_seeded_worker.py URL EVENTS SHAPE=RUN SHAPE=RUN``; it claims each run, and writes what it did.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from agentruns.domain.canonical import JsonTree
from agentruns.domain.digests import plain_digest
from agentruns.domain.graph.reducers import GraphReducer, GraphReducerReference, MergeReducer, NodeUpdate
from agentruns.domain.graph.returns import Finish, Route
from agentruns.domain.ids import RunId
from agentruns.errors import RunQuarantinedError
from agentruns.runtime.graph_builder import GraphBuilder
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.testing import samples
from agentruns.testing.drives import open_world

#: So many that their order differs with every seed.
NAMES = frozenset(f"name-{number}" for number in range(64))
ANY: dict[str, JsonTree] = {"type": "object"}


class UnorderedReducer:
    """Write down a set in the order in which it happens to be iterated."""

    reference = GraphReducerReference(
        identity=samples.identity("unordered"), definition_digest=plain_digest(b"unordered")
    )

    def reduce(self, state: JsonTree, updates: Sequence[NodeUpdate]) -> JsonTree:
        del state, updates
        return {"names": list(NAMES)}


def graph(shape: str) -> GraphBundle:
    """Build a graph whose reducer depends on the order of a set, or whose first node does."""
    reducer: GraphReducer = UnorderedReducer() if shape == "reducer" else MergeReducer()
    built = GraphBuilder(shape, "1.0.0", input=ANY, state=ANY, output=ANY, reducer=reducer, owner=samples.principal())
    numbers = [f"r{number}" for number in range(64)]

    @built.node(entry=True, routes=dict.fromkeys(numbers, "middle"))
    def first(_context: Any) -> Route:
        place = next(iter(NAMES)).removeprefix("name-") if shape == "node" else "0"
        return Route(f"r{place}", {"place": place})

    @built.node(then="last")
    def middle(_context: Any) -> None:
        sys.stdout.write(f"{shape} middle\n")

    @built.node(terminal=True)
    def last(context: Any) -> Finish:
        return Finish(context.state)

    return built.build()


async def work(url: str, run_id: RunId, shape: str, events: int) -> None:
    """Claim the run, drive it until so many events were written, and say what came of it."""
    bundle = graph(shape)
    async with open_world(url, bundle, lease=timedelta(minutes=1), maximum_durable_events=events) as world:
        try:
            ended = (await world.driven(run_id)).outcome.value
        except RunQuarantinedError as error:
            ended = f"isolated for {error.component}"
        sys.stdout.write(f"{shape} {ended}\n")


async def work_on_each(url: str, events: int, *runs: str) -> None:
    """Do it for runs of several shapes, and say which name is the first one here."""
    sys.stdout.write(f"first {next(iter(NAMES))}\n")
    for named in runs:
        shape, run_id = named.split("=")
        await work(url, RunId.parse(run_id), shape, events)


if __name__ == "__main__":
    asyncio.run(work_on_each(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))
