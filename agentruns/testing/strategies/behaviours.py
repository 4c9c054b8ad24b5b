"""Hypothesis strategies of what nodes do, and of graphs whose nodes do it.

What a node comes to depends on its place in the run alone, so that every undisturbed or disturbed drive of one graph
has to come to the same end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final

from attrs import evolve, field, frozen
from hypothesis import strategies as st

from agentruns.domain.failure import FailureCategory, ReconcileFirst
from agentruns.domain.graph.executable import ExecutableGraph, GraphNodeScheduling
from agentruns.domain.graph.nodes import GraphNode
from agentruns.domain.graph.reducers import MergeReducer
from agentruns.domain.graph.returns import Continue, Finish, NodeReturn, Route, Suspend
from agentruns.domain.identity import GraphReference
from agentruns.domain.scalars import NodeId
from agentruns.domain.waits import NodeWait
from agentruns.errors import NodeFailedError
from agentruns.testing.graphs import executable, schemas_of
from agentruns.testing.history_waits import payload
from agentruns.testing.samples import failure
from agentruns.testing.simulation.schedule import WorkerDiedError
from agentruns.testing.strategies.graphs import compiled_graphs

#: How an attempt may end that is not the last of its node.
TRANSIENT: Final = ("retry", "die")
#: How every attempt of a node may end: by a failure that advises against another one, or asks for a reconciliation that
#: no node may ask for; by an exception, by a result that no graph permits, or not at all.
PERMANENT: Final = ("fail", "reconcile", "raise", "refuse", "hang")

_REDUCER: Final = MergeReducer({"log": "append"}, default="last")


@frozen(kw_only=True)
class NodeBehaviour:
    """Say what a node does.

    Attributes:
        choice: which of its controls it takes first; in later supersteps it takes the next one.
        early: how its first attempts end in every superstep: ``retry`` or ``die``. The next attempt is the real one.
        always: how every attempt after those ends, where the node never succeeds; ``None`` where it does.
        updates: whether it changes the state.
    """

    choice: int = 0
    early: tuple[str, ...] = ()
    always: str | None = None
    updates: bool = True

    async def act(self, node: GraphNode, context: Any) -> NodeReturn | object:
        """Do it, as the attempt of a context."""
        if context.attempt <= len(self.early):
            if self.early[context.attempt - 1] == "die":
                raise WorkerDiedError
            raise NodeFailedError.retry_after(timedelta(milliseconds=20))
        if self.always is not None:
            return await _end_badly(self.always)
        superstep = int(context.superstep)
        update = {"log": [f"{node.node_id}@{superstep}"]} if self.updates else None
        possible = _controls(node)
        return possible[(self.choice + superstep) % len(possible)](update)


async def _end_badly(how: str) -> object:
    if how == "fail":
        raise NodeFailedError(failure=failure())
    if how == "reconcile":
        category = FailureCategory.AMBIGUOUS_EXTERNAL_OUTCOME
        raise NodeFailedError(failure=failure(category=category, retry_advice=ReconcileFirst()))
    if how == "raise":
        raise RuntimeError(how)
    if how == "hang":
        await asyncio.Event().wait()
    return 7


def _controls(node: GraphNode) -> list[Callable[[Any], NodeReturn]]:
    """List what a node may return, each for an update."""
    possible: list[Callable[[Any], NodeReturn]] = [partial(Route, route.route_id) for route in node.routes]
    if node.continue_to is not None:
        possible.append(Continue)
    if node.wait_to is not None:
        possible.append(lambda update: Suspend(*_waits(), update=update))
    if node.terminal:
        possible.append(lambda update: Finish({"by": str(node.node_id)}, update))
    return possible


def _waits() -> tuple[NodeWait, ...]:
    return NodeWait.timer(due_in=timedelta(milliseconds=50)), NodeWait.interrupt("approval", request=payload())


@frozen(kw_only=True)
class BehavingNode:
    """Execute a node by its behaviour."""

    graph: GraphReference
    node: GraphNode
    behaviour: NodeBehaviour
    scheduling: GraphNodeScheduling
    calls: list[str] = field(factory=list, eq=False)

    @property
    def node_id(self) -> NodeId:
        """Of the node."""
        return self.node.node_id

    async def execute(self, context: Any, /) -> object:
        """Note the attempt, and do what the behaviour says."""
        self.calls.append(str(context.attempt_id))
        return await self.behaviour.act(self.node, context)


@frozen(kw_only=True)
class BehavingGraph:
    """Hold a graph that can be run, and what its nodes do.

    Attributes:
        executable: the graph with its nodes.
        behaviours: by node.
    """

    executable: ExecutableGraph = field(repr=lambda graph: f"\n{graph.definition.to_mermaid()}")
    behaviours: Mapping[str, NodeBehaviour]

    @property
    def calls(self) -> list[str]:
        """The attempt ids of all calls of nodes so far, sorted."""
        return sorted(
            call
            for node in self.executable.executors.values()
            for call in (node.calls if isinstance(node, BehavingNode) else ())
        )


def behaviours(*, permanent: tuple[str, ...] = ()) -> st.SearchStrategy[NodeBehaviour]:
    """Draw what a node does: it succeeds, some of the time not at once; with ``permanent`` it ends in one of those."""
    return st.builds(
        NodeBehaviour,
        choice=st.integers(0, 3),
        early=st.lists(st.sampled_from(TRANSIENT), max_size=2).map(tuple),
        always=st.sampled_from(permanent) if permanent else st.none(),
        updates=st.booleans(),
    )


@st.composite
def behaving_graphs(
    draw: st.DrawFn,
    *,
    maximum_nodes: int = 4,
    maximum_supersteps: int = 6,
    permanent: tuple[str, ...] = PERMANENT,
) -> BehavingGraph:
    """Draw graphs that can be run. Those that would go on for ever come to the limit of their supersteps.

    At most one node fails for good: of several siblings that do, the first one would decide how the run ends.

    Args:
        draw: of Hypothesis.
        maximum_nodes: of the graph.
        maximum_supersteps: of a run.
        permanent: how nodes may fail for good.
    """
    definition = draw(
        compiled_graphs(maximum_nodes=maximum_nodes, maximum_supersteps=maximum_supersteps, reducer=_REDUCER)
    )
    names = [str(node.node_id) for node in definition.nodes]
    unlucky = draw(st.sampled_from([None, None, *names]))
    chosen = {name: draw(behaviours(permanent=permanent if name == unlucky else ())) for name in names}
    made = executable(definition, _REDUCER, schemas=schemas_of())
    nodes = {
        node.node_id: BehavingNode(
            graph=definition.reference,
            node=node,
            behaviour=chosen[str(node.node_id)],
            scheduling=draw(st.sampled_from(GraphNodeScheduling)),
        )
        for node in definition.nodes
    }
    return BehavingGraph(executable=evolve(made, executors=nodes), behaviours=chosen)
