"""The picture of a graph."""

from __future__ import annotations

import pytest

from agentruns.domain.graph.definition import CompiledGraph, GraphNode
from agentruns.domain.scalars import NodeId
from agentruns.errors import InvalidValueError
from agentruns.testing.graphs import graph_of

PICTURE = """\
flowchart TD
    start(("start"))
    n0["ask_human"]
    n1["assess"]
    n2["collect"]
    n3["pay_out"]
    stop(("end"))
    start --> n2
    n0 -.->|"wait"| n3
    n1 -->|"assess.ask"| n0
    n1 -->|"assess.pay"| n3
    n2 --> n1
    n3 --> stop
"""


def sample() -> CompiledGraph:
    nodes = [
        GraphNode.of("collect", continue_to=["assess"]),
        GraphNode.of("assess", routes={"assess.pay": ["pay_out"], "assess.ask": ["ask_human"]}),
        GraphNode.of("ask_human", wait_to=["pay_out"]),
        GraphNode.of("pay_out", terminal=True),
    ]
    return graph_of(nodes, entry=("collect",))


def test_a_graph_is_drawn_in_the_order_of_its_nodes() -> None:
    assert sample().to_mermaid() == PICTURE


def test_marks_add_classes_in_a_fixed_order() -> None:
    marks = {NodeId("pay_out"): "done", NodeId("collect"): "done", NodeId("ask_human"): "next"}
    lines = sample().to_mermaid(direction="LR", marks=marks).splitlines()
    assert lines[0] == "flowchart LR"
    assert lines[-4:] == [
        "    classDef done fill:#d5f5e3,stroke:#1e8449",
        "    class n2,n3 done",
        "    classDef next fill:#ebdef0,stroke:#76448a",
        "    class n0 next",
    ]


def test_a_graph_that_only_waits_has_no_end() -> None:
    text = graph_of([GraphNode.of("a", wait_to=["a"])]).to_mermaid()
    assert text == 'flowchart TD\n    start(("start"))\n    n0["a"]\n    start --> n0\n    n0 -.->|"wait"| n0\n'


@pytest.mark.parametrize(
    ("direction", "marks", "reason"),
    [
        ("XY", {}, "unknown_direction"),
        ("TD", {NodeId("x"): "done"}, "unknown_node"),
        ("TD", {NodeId("assess"): "finished"}, "unknown_mark"),
    ],
)
def test_what_cannot_be_drawn_is_refused(direction: str, marks: dict[NodeId, str], reason: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        sample().to_mermaid(direction=direction, marks=marks)
    assert caught.value.reason == reason
