"""OPS-10: what the nodes of a run that does not progress say, in the words that a person reads."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import RunId
from agentruns.domain.ledger.state import RunState
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import EvidenceUnavailableError, NodeFailedError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.committer import RunCommitter
from agentruns.runtime.evidence import LedgerEvidence
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, builder, chain, fan
from agentruns.testing.hand_driven import HandDriven

Explaining = Callable[[Callable[[Any], Coroutine[Any, Any, None]], GraphBundle], None]

GRAPH = chain(a=lambda _context: Finish({}))
NOON = "2040-01-01 12:00:00Z"
SERVE = f"start a worker that has the graph and serves tenant {TENANT}"


class Unknown(LedgerEvidence):
    """Never knows what was used, so that no run ends."""

    def usage(self, state: RunState) -> BudgetUsage:
        raise EvidenceUnavailableError(tenant_id=state.tenant_id, run_id=state.run_id, reason="usage")


async def driven_without_end(asked: Any, run_id: RunId) -> None:
    """Drive a run to where it would fail, and give it back at once since nobody knows its usage."""
    loop = asked.loop(evidence=Unknown(), error_release_delay=timedelta(0))
    with pytest.raises(EvidenceUnavailableError):
        await loop.run(await asked.world.claimed(run_id), asked.world.shutdown)


def test_M2_OPS_10_a_node_that_is_tried_again_later(explaining: Explaining) -> None:
    def a(_context: Any) -> Any:
        raise NodeFailedError.retry_after(timedelta(minutes=10), "secret-message", code="model.rate_limited")

    async def work(asked: Any) -> None:
        run_id = await asked.world.submitted()
        assert (await asked.world.driven(run_id)).outcome is AgentLoopOutcome.DEFERRED
        await asked.after(seconds=5)
        deferred = (
            "Node a failed with model.rate_limited in attempt 1 of 64"
            " and is not started again before 2040-01-01 12:10:00Z, in 9 min 55 s."
        )
        assert await asked.said(run_id) == ("waiting", {"deferred": deferred})
        assert "secret-message" not in repr(await asked.explain(run_id))
        await asked.after(minutes=9, seconds=55)
        assert list((await asked.said(run_id))[1]) == ["due_not_claimed"]

    explaining(work, chain(a=a))


def test_a_node_that_runs_in_several_supersteps_is_told_of_by_the_current_one(explaining: Explaining) -> None:
    calls: list[int] = []
    graph = builder()

    def a(_context: Any) -> Any:
        calls.append(len(calls))
        if len(calls) == 2:
            return {}
        raise NodeFailedError.retry_after(timedelta(minutes=10 * (len(calls) - 1)))

    graph.node(name="a", entry=True, then="b")(a)
    graph.node(name="b", then="a", terminal=True)(lambda _context: {})

    async def work(asked: Any) -> None:
        run_id = await asked.world.submitted()
        assert (await asked.world.driven(run_id)).outcome is AgentLoopOutcome.DEFERRED
        assert len(calls) == 3
        _, said = await asked.said(run_id)
        assert said["deferred"] == (
            "Node a failed with application.retry in attempt 1 of 64"
            " and is not started again before 2040-01-01 12:20:00Z, in 20 min."
        )

    explaining(work, graph.build())


def test_M2_OPS_10_a_node_that_failed_for_good(explaining: Explaining) -> None:
    def a(_context: Any) -> Any:
        raise NodeFailedError(failure=samples.failure(code="shop.card.refused"))

    async def work(asked: Any) -> None:
        run_id = await asked.world.submitted()
        await driven_without_end(asked, run_id)
        await asked.after(seconds=5)
        verdict, said = await asked.said(run_id)
        assert (verdict, list(said)) == ("waiting", ["blocked", "due_not_claimed"])
        assert said["blocked"] == (
            "Node a failed with shop.card.refused in attempt 1 of 64 and may not be tried again,"
            f" since {NOON}, for 5 s: the run cannot go on, and the next claim fails it."
        )
        assert (await asked.explain(run_id)).next_action == SERVE
        assert (await asked.world.driven(run_id)).outcome is AgentLoopOutcome.FAILED
        assert await asked.said(run_id) == ("finished", {})

    explaining(work, chain(a=a))


def test_M2_OPS_10_a_node_whose_attempts_are_used_up(explaining: Explaining) -> None:
    async def work(asked: Any) -> None:
        run_id, committer = await asked.world.submitted(), RunCommitter(asked.world.store)
        for _ in range(64):
            fence = (await asked.world.claimed(run_id)).fence
            driven = await HandDriven.of(asked.world, fence, committer=committer)
            await driven.commit(driven.start())
            await asked.world.store.release(fence)
        await asked.after(seconds=5)
        _, said = await asked.said(run_id)
        assert list(said) == ["blocked", "due_not_claimed"]
        assert said["blocked"] == (
            f"Node a was left by a dead worker in attempt 64, its last one, since {NOON}, for 5 s:"
            " the run cannot go on, and the next claim fails it."
        )

    explaining(work, GRAPH)


def test_M2_OPS_10_results_that_the_graph_cannot_join(explaining: Explaining) -> None:
    graph = fan(
        first={"a": lambda _context: {"x": 1}, "b": lambda _context: {"x": 2}}, last=lambda _context: Finish({})
    )

    async def work(asked: Any) -> None:
        run_id = await asked.world.submitted()
        await driven_without_end(asked, run_id)
        await asked.after(seconds=5)
        verdict, said = await asked.said(run_id)
        assert (verdict, list(said)) == ("waiting", ["blocked", "due_not_claimed"])
        assert said["blocked"] == (
            f"The results of superstep 0 cannot be joined (reducer_rejected), since {NOON}, for 5 s:"
            " the run cannot go on, and the next claim fails it."
        )
        # Its holder is about to say so by itself.
        fence = (await asked.world.claimed(run_id)).fence
        assert list((await asked.said(run_id))[1]) == ["lease_held"]
        await asked.world.store.release(fence)
        # A record that cannot be read says nothing of it, and a load says why.
        await asked.world.rows("UPDATE agentruns.run_checkpoints SET state = '{}  '")
        assert list((await asked.said(run_id))[1]) == ["due_not_claimed"]

    explaining(work, graph)


def test_results_that_can_be_joined_or_are_not_complete_block_nothing(explaining: Explaining) -> None:
    graph = fan(
        first={"a": lambda _context: {"x": 1}, "b": lambda _context: {"y": 2}}, last=lambda _context: Finish({})
    )

    async def work(asked: Any) -> None:
        run_id, committer = await asked.world.submitted(), RunCommitter(asked.world.store)
        for node_id in ("a", "b"):
            fence = (await asked.world.claimed(run_id)).fence
            driven = await HandDriven.of(asked.world, fence, committer=committer)
            await driven.commit(driven.start(node_id))
            await driven.commit(driven.complete(node_id))
            await asked.world.store.release(fence)
            assert list((await asked.said(run_id))[1]) == ["due_not_claimed"]

    explaining(work, graph)


def test_M2_OPS_10_a_graph_that_permits_no_further_step(explaining: Explaining) -> None:
    graph = builder(maximum_supersteps=1)
    graph.node(name="a", entry=True, then="b")(lambda _context: {})
    graph.node(name="b", terminal=True)(lambda _context: Finish({}))

    async def work(asked: Any) -> None:
        run_id = await asked.world.submitted()
        await driven_without_end(asked, run_id)
        await asked.after(seconds=5)
        _, said = await asked.said(run_id)
        assert list(said) == ["blocked", "due_not_claimed"]
        assert said["blocked"] == (
            f"The run has made 1 superstep, as many as its graph permits, since {NOON}, for 5 s:"
            " the run cannot go on, and the next claim fails it."
        )
        assert (await asked.world.driven(run_id)).outcome is AgentLoopOutcome.FAILED

    explaining(work, graph.build())
