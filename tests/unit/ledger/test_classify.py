"""Classes of ready nodes."""

from __future__ import annotations

from typing import Any

import pytest

from agentruns.domain.graph.nodes import GraphNode
from agentruns.domain.ledger.classify import (
    Completed,
    Deferred,
    Dispatchable,
    DispatchGround,
    Exhausted,
    Failed,
    InFlight,
    classify,
)
from agentruns.domain.numbers import FencingEpoch, Superstep
from agentruns.domain.scalars import NodeId
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import (
    DatabaseClockRegressionError,
    LeaseLostError,
)
from agentruns.testing.graphs import executable_of
from agentruns.testing.samples import failure
from agentruns.testing.scripted_run import ScriptedRun

NODES = [
    GraphNode.of("a", continue_to=["b", "c"]),
    GraphNode.of("b", terminal=True, continue_to=["a"]),
    GraphNode.of("c", continue_to=["a"], wait_to=["a"]),
]
GRAPH = executable_of(NODES)
A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
ZERO = BudgetUsage.zero()


def test_classes_of_a_node_over_its_attempts() -> None:
    run = ScriptedRun(GRAPH)

    def one(epoch: int = 1, micros: int = 0) -> Any:
        plan = classify(run.state, epoch=FencingEpoch(epoch), now=run.now.plus_micros(micros))
        assert (plan.head, plan.superstep, plan.epoch) == (run.state.head, Superstep(0), FencingEpoch(epoch))
        (only,) = plan.nodes
        assert plan.earliest_deferred_at == getattr(only, "not_before", None)
        return only

    assert one() == Dispatchable(node_id=A, ground=DispatchGround.FIRST_ATTEMPT, attempt=1)
    run.start("a")
    assert one() == InFlight(node_id=A)
    assert one(2) == Dispatchable(node_id=A, ground=DispatchGround.SUPERSEDED_ATTEMPT, attempt=2)
    run.fail_attempt("a", retry_after=1)
    assert one(1, 999) == Deferred(node_id=A, not_before=run.now.plus_micros(1000))
    assert one(1, 1000) == Dispatchable(node_id=A, ground=DispatchGround.SAFE_RETRY, attempt=2)
    run.now = run.now.plus_micros(1000)
    run.start("a")
    run.fail_attempt("a")
    assert one() == Failed(node_id=A, failure=failure())


def test_classes_after_64_attempts() -> None:
    run = ScriptedRun(GRAPH)
    for _ in range(63):
        run.start("a")
        run.fail_attempt("a", retry_after=0)
    run.start("a")
    (superseded,) = classify(run.state, epoch=FencingEpoch(2), now=run.now).nodes
    assert superseded == Exhausted(node_id=A, failure=None)
    last = run.fail_attempt("a", retry_after=0)
    (exhausted,) = classify(run.state, epoch=FencingEpoch(1), now=run.now).nodes
    assert exhausted == Exhausted(node_id=A, failure=run.state.nodes[A].failure)
    assert last.results[0].attempt == 64
    assert run.fail().state.outcome is not None


def test_classify_refuses_a_stale_fence_and_a_clock_that_went_back() -> None:
    run = ScriptedRun(GRAPH)
    run.epoch = FencingEpoch(4)
    run.start("a")
    with pytest.raises(LeaseLostError, match="stale_fence"):
        classify(run.state, epoch=FencingEpoch(3), now=run.now)
    with pytest.raises(DatabaseClockRegressionError):
        classify(run.state, epoch=FencingEpoch(4), now=run.now.plus_micros(-1))
    run.complete("a")
    plan = classify(run.state, epoch=FencingEpoch(4), now=run.now)
    assert plan.nodes == (Completed(node_id=A),)
    assert plan.is_barrier_ready
