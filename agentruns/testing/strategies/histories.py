"""Hypothesis strategies of whole histories."""

from __future__ import annotations

from functools import cache
from random import Random

from hypothesis import strategies as st

from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.nodes import GraphNode
from agentruns.testing.graphs import chain, executable_of
from agentruns.testing.histories import History


@cache
def sample_graphs() -> tuple[ExecutableGraph, ...]:
    """Give graphs that branch, wait, repeat and reach their limits."""
    branching = [
        GraphNode.of("a", continue_to=["b", "c"], routes={"a.again": ["a"]}),
        GraphNode.of("b", continue_to=["d"], wait_to=["c", "d"]),
        GraphNode.of("c", continue_to=["d"]),
        GraphNode.of("d", terminal=True, wait_to=["a"], continue_to=["a"]),
    ]
    waiting = [GraphNode.of("a", wait_to=["b"]), GraphNode.of("b", wait_to=["a"], terminal=True)]
    return (
        executable_of(branching, name="branching", maximum_supersteps=12),
        executable_of(chain("a", "b", "c"), name="chain"),
        executable_of(waiting, name="waiting", maximum_supersteps=6),
        executable_of([GraphNode.of("a", continue_to=["a"], terminal=True)], name="loop", maximum_supersteps=3),
    )


@st.composite
def histories(draw: st.DrawFn, *, steps: int = 40) -> History:
    """Draw the beginning of a history of one of the sample graphs: an admission and up to ``steps`` commits."""
    graph = draw(st.sampled_from(sample_graphs()))
    random = Random(draw(st.integers(0, 2**32)))  # noqa: S311  # a history is repeatable, not secret
    calls, ends = draw(st.booleans()), draw(st.booleans())
    return History.admitted(graph, random, with_calls=calls, with_ends=ends).grow(draw(st.integers(0, steps)))
