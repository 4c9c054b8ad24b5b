"""Choose the nodes that are started together."""

from __future__ import annotations

from collections.abc import Iterable

from agentruns.domain.graph.executable import ExecutableGraph, GraphNodeScheduling
from agentruns.domain.ledger.classify import Dispatchable, ReadyNodesPlan
from agentruns.domain.scalars import NodeId


def dispatchable(plan: ReadyNodesPlan) -> tuple[NodeId, ...]:
    """Name the nodes that may be started, in the order of their ids."""
    return tuple(each.node_id for each in plan.nodes if isinstance(each, Dispatchable))


def first_batch(graph: ExecutableGraph, nodes: Iterable[NodeId], *, width: int) -> tuple[NodeId, ...]:
    """Take the first node, and beside an isolated one those that follow it without a gap and are isolated too.

    Nothing is skipped over, so the same record always gives the same batches.
    """
    batch: list[NodeId] = []
    for node_id in nodes:
        is_isolated = graph.executors[node_id].scheduling is GraphNodeScheduling.JOURNAL_ISOLATED
        if batch and not is_isolated:
            break
        batch.append(node_id)
        if not is_isolated or len(batch) >= width:
            break
    return tuple(batch)


def width_of(graph: ExecutableGraph, *, maximum_parallel_nodes: int, events_left: int) -> int:
    """Bound a batch by the options, the graph, and the events that the drive may still write: two for each node."""
    return max(1, min(maximum_parallel_nodes, int(graph.definition.limits.maximum_parallelism), events_left // 2))
