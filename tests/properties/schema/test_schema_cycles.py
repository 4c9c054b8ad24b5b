from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentruns.domain.schema.cycles import on_cycles


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    size = draw(st.integers(0, 12))
    nodes = st.integers(0, max(size - 1, 0))
    return [draw(st.lists(nodes, max_size=4)) for _ in range(size)]


def reachable(graph: list[list[int]], start: int) -> set[int]:
    found: set[int] = set()
    waiting = list(graph[start])
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(graph[node])
    return found


@given(graphs())
def test_a_node_is_on_a_cycle_when_it_can_be_reached_from_itself(graph: list[list[int]]) -> None:
    assert on_cycles(graph) == {node for node in range(len(graph)) if node in reachable(graph, node)}


def test_a_long_chain_needs_no_stack() -> None:
    chain = [[node + 1] for node in range(100_000)]
    assert on_cycles([*chain, [0]]) == set(range(100_001))
    assert on_cycles([*chain, []]) == frozenset()
