"""OPS-10: why nobody holds a run that could be claimed, or who does, in the words that a person reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.fairness import TenantFairnessPolicy
from agentruns.domain.graph.returns import Finish
from agentruns.domain.scalars import ShardId
from agentruns.errors import RefusedError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.fair_shard import FairShard
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.testing.drives import TENANT, chain, executables_of

Explaining = Callable[[Callable[[Any], Coroutine[Any, Any, None]], GraphBundle], None]

GRAPH = chain(a=lambda _context: Finish({}))
NOON = "2040-01-01 12:00:00Z"
SERVE = f"start a worker that has the graph and serves tenant {TENANT}"


def test_M2_OPS_10_a_run_that_nobody_has_claimed(explaining: Explaining) -> None:
    async def work(asked: Any) -> None:
        run_id = await asked.world.submitted()
        await asked.after(seconds=59)
        ready = f"The run has been ready since {NOON}, for 59 s, and was never claimed. The tenant has 0 live leases."
        assert await asked.said(run_id) == ("waiting", {"never_claimed": ready})
        await asked.after(minutes=61, seconds=2)
        verdict, said = await asked.said(run_id)
        assert (verdict, list(said)) == ("stuck", ["never_claimed"])
        assert f"since {NOON}, for 1 h 2 min, and" in said["never_claimed"]
        explanation = await asked.explain(run_id)
        assert explanation.next_action == explanation.reasons[0].action == SERVE
        assert explanation.reasons[0].needs_action
        assert str(explanation.observed_at) == "2040-01-01T13:02:01.000000Z"

    explaining(work, GRAPH)


def test_M2_OPS_10_a_run_that_was_given_back_and_not_claimed_again(explaining: Explaining) -> None:
    async def work(asked: Any) -> None:
        run_id = await asked.world.submitted()
        await asked.world.store.release((await asked.world.claimed(run_id)).fence)
        await asked.after(days=1, hours=3)
        due = f"The run has been due since {NOON}, for 1 d 3 h, and was not claimed after epoch 1. "
        assert await asked.said(run_id) == ("stuck", {"due_not_claimed": f"{due}The tenant has 0 live leases."})
        # Somebody works for the tenant, so it is in line.
        await asked.world.claimed(await asked.world.submitted())
        assert await asked.said(run_id) == ("waiting", {"due_not_claimed": f"{due}The tenant has 1 live lease."})

    explaining(work, GRAPH)


def test_M2_OPS_10_a_lease_that_lives_with_a_node_in_flight(explaining: Explaining) -> None:
    entered, may_go_on = asyncio.Event(), asyncio.Event()

    async def a(_context: Any) -> Finish:
        entered.set()
        await may_go_on.wait()
        return Finish({})

    async def work(asked: Any) -> None:
        run_id = await asked.world.submitted()
        held = await asked.world.claimed(run_id)
        await asked.after(seconds=4)
        idle = "Epoch 1 holds the lease, renewed 4 s ago and expiring in 56 s; no node is in flight."
        assert await asked.said(run_id) == ("progressing", {"lease_held": idle})
        drive = asyncio.create_task(asked.world.loop.run(held, asked.world.shutdown))
        async with asyncio.timeout(20):
            await entered.wait()
        await asked.after(seconds=7)
        flight = "node a is in flight in attempt 1 since 2040-01-01 12:00:04Z, for 7 s"
        busy = f"Epoch 1 holds the lease, renewed 7 s ago and expiring in 53 s; {flight}."
        assert await asked.said(run_id) == ("progressing", {"lease_held": busy})
        assert (await asked.explain(run_id)).next_action is None
        may_go_on.set()
        assert (await drive).outcome is AgentLoopOutcome.SUCCEEDED
        assert await asked.said(run_id) == ("finished", {})

    explaining(work, chain(a=a))


def test_M2_OPS_10_a_lease_that_has_expired(explaining: Explaining) -> None:
    async def work(asked: Any) -> None:
        run_id = await asked.world.submitted()
        await asked.world.claimed(run_id)
        await asked.after(seconds=60)
        expired = "The lease of epoch 1 expired at 2040-01-01 12:01:00Z, {} ago, and nobody has claimed the run since."
        left = "The tenant has 0 live leases."
        assert await asked.said(run_id) == ("waiting", {"lease_expired": f"{expired.format('0 s')} {left}"})
        await asked.after(minutes=2)
        assert await asked.said(run_id) == ("stuck", {"lease_expired": f"{expired.format('2 min')} {left}"})
        assert (await asked.explain(run_id)).next_action == SERVE

    explaining(work, GRAPH)


def test_M2_OPS_10_a_run_whose_epochs_are_used_up(explaining: Explaining) -> None:
    async def work(asked: Any) -> None:
        run_id = await asked.world.submitted()
        last = 2**63 - 1
        for epoch, action in ((last - 1, "start a worker"), (last, "submit the work again under a new key")):
            await asked.world.rows("UPDATE agentruns.runs SET fencing_epoch = :epoch", epoch=epoch)
            explanation = await asked.explain(run_id)
            assert [reason.code.value for reason in explanation.reasons] == ["due_not_claimed"]
            assert str(explanation.next_action).startswith(action)
        assert explanation.verdict.value == "stuck"
        assert explanation.reasons[0].sentence == (
            f"The run has been due since {NOON}, for 0 s, and epoch {last} was its last one:"
            " nobody can claim it any more."
        )
        with pytest.raises(RefusedError, match="epoch_exhausted"):
            await asked.world.claimed(run_id)

    explaining(work, GRAPH)


def test_M2_OPS_10_a_run_that_was_given_back_for_a_while(explaining: Explaining) -> None:
    async def work(asked: Any) -> None:
        run_id = await asked.world.submitted()
        fence = (await asked.world.claimed(run_id)).fence
        await asked.world.store.release(fence, delay=timedelta(minutes=4))
        await asked.after(seconds=30)
        gate = "The run was given back, and nobody may claim it before 2040-01-01 12:04:00Z, in 3 min 30 s."
        assert await asked.said(run_id) == ("waiting", {"deferred": gate})
        await asked.after(minutes=3, seconds=30)
        assert list((await asked.said(run_id))[1]) == ["due_not_claimed"]

    explaining(work, GRAPH)


def test_M2_OPS_10_a_tenant_at_its_limit(explaining: Explaining) -> None:
    async def work(asked: Any) -> None:
        await asked.world.store.set_tenant_limit(TENANT, 1)
        run_id, other = await asked.world.submitted(), await asked.world.submitted()
        await asked.world.claimed(other)
        await asked.after(seconds=20)
        verdict, said = await asked.said(run_id)
        assert (verdict, list(said)) == ("waiting", ["tenant_at_capacity", "never_claimed"])
        due = f"the run has been due since {NOON}, for 20 s"
        assert said["tenant_at_capacity"] == f"The limit of the tenant is 1 live lease, and it holds 1; {due}."
        limit = f"wait, or raise the limit with `agentruns tenants limit {TENANT} N`"
        assert (await asked.explain(run_id)).next_action == limit
        # The dead lease takes no room.
        await asked.after(seconds=40)
        assert list((await asked.said(run_id))[1]) == ["never_claimed"]

    explaining(work, GRAPH)


def test_M2_OPS_10_a_graph_that_nobody_here_has(explaining: Explaining) -> None:
    async def work(asked: Any) -> None:
        run_id = await asked.world.submitted()
        without = DurableAgentRuns(asked.world.store, executables_of(chain(b=lambda _context: Finish({}))))
        digest = GRAPH.graph.definition_digest
        await asked.after(seconds=61)
        explanation = await without.explain(TENANT, run_id)
        cause, second = explanation.reasons
        assert (explanation.verdict.value, cause.code.value, second.code.value) == (
            "stuck",
            "graph_not_deployed",
            "never_claimed",
        )
        named = f"the graph sample-graph 1.0.0 ({digest})"
        assert cause.sentence == f"Nobody here has {named}, which the run is pinned to."
        assert explanation.next_action == f"deploy a worker that has the graph and serves tenant {TENANT}"
        assert list((await asked.said(run_id))[1]) == ["never_claimed"]
        # Somebody has it, who holds the run.
        await asked.world.claimed(run_id)
        assert [reason.code.value for reason in (await without.explain(TENANT, run_id)).reasons] == ["lease_held"]

    explaining(work, GRAPH)


def test_M2_OPS_10_a_tenant_that_no_policy_lists(explaining: Explaining) -> None:
    async def work(asked: Any) -> None:
        run_id = await asked.world.submitted()
        # The tenant's name begins this one, which lists it not.
        policy = TenantFairnessPolicy.of({f"{TENANT}-2": 1, "other": 2})
        await FairShard(asked.world.store, ShardId("main"), policy).publish()
        await asked.after(seconds=61)
        verdict, said = await asked.said(run_id)
        assert (verdict, list(said)) == ("stuck", ["not_in_fairness_policy", "never_claimed"])
        never = "No fairness policy lists the tenant, so workers that share one never claim the run."
        assert said["not_in_fairness_policy"] == never
        action = f"give the workers a policy that lists tenant {TENANT}, under a new shard id"
        assert (await asked.explain(run_id)).next_action == action
        # A worker without a policy serves it nevertheless.
        await asked.world.claimed(await asked.world.submitted())
        assert list((await asked.said(run_id))[1]) == ["never_claimed"]
        await FairShard(asked.world.store, ShardId("next"), TenantFairnessPolicy.of({TENANT.text: 1})).publish()
        await asked.after(minutes=2)
        assert list((await asked.said(run_id))[1]) == ["never_claimed"]

    explaining(work, GRAPH)
