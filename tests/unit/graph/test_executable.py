"""What this process runs a graph with."""

from __future__ import annotations

import pytest

from agentruns.domain.graph.executable import ExecutableGraph, GraphNodeScheduling
from agentruns.domain.scalars import NodeId
from agentruns.testing.graphs import NodeFunction, chain, executable_of


def sample() -> ExecutableGraph:
    return executable_of(chain("a", "b"), {"a": lambda context: {"seen": context}})


def test_executors_are_found_and_never_changed() -> None:
    graph = sample()
    executor = graph.executors[NodeId("a")]
    assert executor.execute(5) == {"seen": 5}
    assert graph.executors[NodeId("b")].execute(5) is None
    assert executor.scheduling is GraphNodeScheduling.EXCLUSIVE
    assert executor.graph == graph.definition.reference
    with pytest.raises(TypeError):
        graph.executors[NodeId("c")] = executor  # type: ignore[index]  # what is refused


def test_the_mapping_is_taken_when_it_is_given() -> None:
    graph = sample()
    executors = dict(graph.executors)
    copy = ExecutableGraph(
        definition=graph.definition, reducer=graph.reducer, executors=executors, schemas=graph.schemas
    )
    executors.clear()
    assert sorted(copy.executors) == [NodeId("a"), NodeId("b")]


def test_graphs_are_compared_by_identity() -> None:
    graph, other = sample(), sample()
    assert graph.digest == other.digest
    assert graph != other
    assert len({graph, other}) == 2


def test_what_runs_it_is_not_shown() -> None:
    graph = sample()
    assert repr(graph) == f"ExecutableGraph(definition={graph.definition!r})"
    assert graph.accounting is None
    assert isinstance(graph.executors[NodeId("a")], NodeFunction)
