"""What is equal in every process: barriers, whatever ``PYTHONHASHSEED`` says, and the digests of activations."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import plain_digest
from agentruns.domain.graph.activation import NodeActivation
from agentruns.domain.graph.barrier import plan_barrier
from agentruns.domain.graph.check import check_result
from agentruns.domain.graph.definition import GraphNode, ReadyNodes
from agentruns.domain.graph.reducers import MergeReducer
from agentruns.domain.graph.returns import Continue
from agentruns.domain.ids import RunId
from agentruns.domain.numbers import Superstep
from agentruns.domain.scalars import NodeId, TenantId
from agentruns.domain.wire import encode
from agentruns.testing.graphs import executable_of
from agentruns.testing.samples import sample_id

ROOT = Path(__file__).parents[3]
IDS = [f"n{number}" for number in range(8)]


def barrier(seed: int) -> str:
    """Plan a barrier of a graph that the seed decides, and write everything of it."""
    dice = random.Random(seed)
    nodes = [GraphNode.of(each, continue_to=dice.sample(IDS, 3), terminal=True) for each in IDS]
    reducer = MergeReducer({"names": "union", "log": "append"}, default="last")
    graph = executable_of(nodes, entry=IDS, reducer=reducer)
    results = {
        NodeId(each): check_result(
            graph,
            node_id=NodeId(each),
            returned=Continue({"names": dice.sample(IDS, 4), "log": [each], dice.choice("xyz"): dice.random()}),
            invocations={},
        )
        for each in dice.sample(IDS, len(IDS))
    }
    plan = plan_barrier(
        graph, superstep=Superstep(0), state=BoundedJson.of({}), ready_nodes=ReadyNodes.of(*IDS), results=results
    )
    members = (graph.digest, plan.state.data.decode(), plan.state_digest, encode(plan.ready_nodes).decode())
    return " ".join(map(str, members))


def activation(number: int = 1, superstep: int = 0, node: str = "a", tenant: str = "tenant-a") -> NodeActivation:
    return NodeActivation(
        tenant_id=TenantId(tenant),
        run_id=sample_id(RunId, number),
        superstep=Superstep(superstep),
        checkpoint_digest=plain_digest(b"checkpoint"),
        node_id=NodeId(node),
    )


def transcript() -> list[str]:
    activated = activation()
    return [*map(barrier, range(20)), str(activated.digest), str(activated.effect_key)]


def in_another_process(hash_seed: str) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, __file__]
    ended = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603  # this very file
    return ended.stdout.splitlines()


def test_GRA_04_barriers_and_GRA_09_activations_are_equal_in_every_process() -> None:
    here = transcript()
    assert len(set(here)) == 22
    assert in_another_process("0") == here
    assert in_another_process("4242") == here


keys = st.tuples(
    st.integers(1, 3), st.integers(0, 3), st.sampled_from(["a", "b", "a0"]), st.sampled_from(["tenant-a", "tenant-b"])
)


@given(keys, keys)
def test_GRA_09_two_activations_differ(left: tuple[int, int, str, str], right: tuple[int, int, str, str]) -> None:
    first, second = activation(*left), activation(*right)
    assert (first.digest == second.digest) is (left == right)
    assert (first.effect_key == second.effect_key) is (left == right)
    assert first.digest != first.effect_key
    other = evolve(first, checkpoint_digest=plain_digest(b"another"))
    assert other.digest != first.digest
    assert other.effect_key != first.effect_key


if __name__ == "__main__":
    print("\n".join(transcript()))  # noqa: T201  # the other process answers by its output
