"""OPS-10: runs that are to end, or that nobody may touch, in the words that a person reads."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import EventId, RunId
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import RunNotFoundError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, chain
from agentruns.testing.isolating import isolate

Explaining = Callable[[Callable[[Any], Coroutine[Any, Any, None]], GraphBundle], None]

GRAPH = chain(a=lambda _context: Finish({}))
NOON = "2040-01-01 12:00:00Z"


def test_M2_OPS_10_an_end_that_was_asked_for(explaining: Explaining) -> None:
    async def work(asked: Any) -> None:
        run_id, event_id = await asked.world.submitted(), EventId.generate()
        await asked.world.runs.request_cancellation(
            TENANT, run_id, event_id=event_id, failure=samples.cancellation(message="secret-reason")
        )
        await asked.after(seconds=5)
        verdict, said = await asked.said(run_id)
        assert (verdict, list(said)) == ("waiting", ["cancellation_requested", "never_claimed"])
        request = f"Event {event_id} asked for the end of the run at {NOON}, 5 s ago"
        assert said["cancellation_requested"] == f"{request}; the next claim confirms that."
        assert "secret-reason" not in repr(await asked.explain(run_id))
        held = await asked.world.claimed(run_id)
        _, said = await asked.said(run_id)
        assert list(said) == ["lease_held", "cancellation_requested"]
        assert said["cancellation_requested"] == f"{request}; its holder confirms that."
        outcome = (await asked.world.loop.run(held, asked.world.shutdown)).outcome
        assert outcome is AgentLoopOutcome.CANCELLATION_CONFIRMED
        assert await asked.said(run_id) == ("finished", {})

    explaining(work, GRAPH)


def test_M2_OPS_10_a_quarantine(explaining: Explaining) -> None:
    async def work(asked: Any) -> None:
        deadline = Timestamp.from_datetime(await asked.clock.now()).plus(timedelta(seconds=9))
        isolated = await isolate(asked.world, await asked.world.submitted(limits=BudgetLimits(deadline=deadline)))
        await asked.after(seconds=10)
        verdict, said = await asked.said(isolated.run_id)
        assert (verdict, list(said)) == ("stuck", ["quarantined", "deadline_passed"])
        named = f"Quarantine {isolated.quarantine_id} has isolated the run since {NOON}, for 10 s"
        (row,) = await asked.world.rows("SELECT cause_kind, component FROM agentruns.run_quarantines")
        assert said["quarantined"] == f"{named}: {row.cause_kind} in {row.component}."
        explanation = await asked.explain(isolated.run_id)
        assert explanation.reasons[1].action is None
        show = f"`agentruns quarantine show {TENANT} {isolated.run_id} {isolated.quarantine_id}`"
        assert explanation.next_action == (
            f"look at it with {show}; put it right and release it with `agentruns quarantine release`,"
            " or submit the work again under a new key"
        )

    explaining(work, GRAPH)


def test_M2_OPS_10_a_run_without_a_checkpoint(explaining: Explaining) -> None:
    async def work(asked: Any) -> None:
        run_id = await asked.world.submitted()
        # No call of this package makes such a row.
        await asked.world.rows(
            "UPDATE agentruns.runs SET superstep = NULL, checkpoint_digest = NULL, scheduler_ready_at = NULL"
        )
        says = "The run has no checkpoint, so none of its nodes can start; no release of this package made it so."
        assert await asked.said(run_id) == ("stuck", {"no_checkpoint": says})
        assert (await asked.explain(run_id)).next_action is None

    explaining(work, GRAPH)


def test_a_run_that_is_unknown_or_another_tenants_is_not_found(explaining: Explaining) -> None:
    async def work(asked: Any) -> None:
        run_id, unknown = await asked.world.submitted(), RunId.generate()
        for tenant_id, asked_for in ((TENANT, unknown), (TenantId("another"), run_id)):
            with pytest.raises(RunNotFoundError) as refused:
                await asked.world.runs.explain(tenant_id, asked_for)
            assert (refused.value.tenant_id, refused.value.id) == (tenant_id, asked_for)

    explaining(work, GRAPH)


def test_ids_of_another_type_are_refused_and_not_repeated(explaining: Explaining) -> None:
    async def work(asked: Any) -> None:
        run_id = RunId.generate()
        for given, sentence in (
            (("canary", run_id), "pass tenant_id as TenantId, not str"),
            ((TENANT, TENANT), "pass run_id as RunId, not TenantId"),
        ):
            with pytest.raises(TypeError) as refused:
                await asked.world.runs.explain(*given)
            assert str(refused.value) == sentence

    explaining(work, GRAPH)
