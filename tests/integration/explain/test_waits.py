"""OPS-10: what a run waits for, and what time has decided, in the words that a person reads."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scalars import JournalEventKind
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.waits import NodeWait
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.waits import DurableRunWaits
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, builder, chain

Explaining = Callable[[Callable[[Any], Coroutine[Any, Any, None]], GraphBundle], None]

GRAPH = chain(a=lambda _context: Finish({}))
NOON = "2040-01-01 12:00:00Z"
SUPERVISE = f"start a worker that has the graph and supervises tenant {TENANT}"


def waiting(*waits: Any) -> GraphBundle:
    graph = builder()

    async def ask(_context: Any) -> Any:
        return Suspend(*(each() for each in waits))

    graph.node(name="ask", entry=True, then="go_on", wait_to="go_on")(ask)
    graph.node(name="go_on", terminal=True)(lambda _context: Finish({}))
    return graph.build()


def approval(expires_in: timedelta | None = None) -> Callable[[], Any]:
    """Make an interrupt whose request nobody but the application may read."""
    request = JournalPayload(
        schema=samples.schema_reference("evidence"),
        kind=JournalEventKind("question"),
        data=BoundedJson.of({"ask": "secret-question"}),
    )
    return lambda: NodeWait.interrupt("approval", request=request, expires_in=expires_in)


def test_M2_OPS_10_a_deadline_that_nobody_has_acted_on(explaining: Explaining) -> None:
    async def work(asked: Any) -> None:
        deadline = Timestamp.from_datetime(await asked.clock.now()).plus(timedelta(hours=1))
        run_id = await asked.world.submitted(limits=BudgetLimits(deadline=deadline))
        await asked.after(minutes=59, seconds=59)
        assert list((await asked.said(run_id))[1]) == ["never_claimed"]
        await asked.after(seconds=1)
        verdict, said = await asked.said(run_id)
        assert (verdict, list(said)) == ("stuck", ["deadline_passed", "never_claimed"])
        passed = "The deadline of the run passed at 2040-01-01 13:00:00Z, 0 s ago, and nobody has asked for its end."
        assert said["deadline_passed"] == passed
        assert (await asked.explain(run_id)).next_action == f"start a worker that supervises tenant {TENANT}"
        supervisor = asked.supervisor()
        assert (await supervisor.tick(TENANT)).cancellations_requested == 1
        _, said = await asked.said(run_id)
        assert list(said) == ["cancellation_requested", "never_claimed"]
        assert "0 s ago, since its deadline had passed; the next claim" in said["cancellation_requested"]

    explaining(work, GRAPH)


def test_M2_OPS_10_waits_that_nobody_is_late_with(explaining: Explaining) -> None:
    graph = waiting(
        approval(),
        approval(expires_in=timedelta(hours=2)),
        lambda: NodeWait.timer(due_in=timedelta(days=2)),
        lambda: NodeWait.timer(due_in=timedelta(minutes=1)),
    )

    async def work(asked: Any) -> None:
        run_id = await asked.world.submitted()
        await asked.world.driven(run_id)
        await asked.after(minutes=3)
        assert (await asked.supervisor().tick(TENANT)).timers_fired == 1
        service = DurableRunWaits(asked.world.store, asked.world.executables)
        without_end, with_end, timer = (each.wait_id for each in await service.outstanding(TENANT, run_id))
        explanation = await asked.explain(run_id)
        waited = f"since {NOON}, for 3 min"
        first = f"Interrupt {with_end} (approval) has waited for an answer {waited}"
        second = f"Interrupt {without_end} (approval) has waited for an answer {waited}"
        third = f"The run has waited for timer {timer} (sleep) {waited}"
        assert [(each.code.value, each.sentence) for each in explanation.reasons] == [
            ("waiting_for_interrupt", f"{first}; it expires at 2040-01-01 14:00:00Z, in 1 h 57 min."),
            ("waiting_for_interrupt", f"{second}; it never expires."),
            ("waiting_for_timer", f"{third}; it is due at 2040-01-03 12:00:00Z, in 1 d 23 h."),
        ]
        assert explanation.verdict.value == "waiting"
        resolve = f"`agentruns waits resolve {TENANT} {run_id} {with_end}`"
        assert explanation.next_action == f"answer it, in the application or with {resolve}"
        assert "secret" not in repr(explanation)

    explaining(work, graph)


def test_M2_OPS_10_waits_that_time_has_settled_and_nobody_has(explaining: Explaining) -> None:
    graph = waiting(
        approval(expires_in=timedelta(hours=2)),
        lambda: NodeWait.timer(due_in=timedelta(hours=1)),
        lambda: NodeWait.timer(due_in=timedelta(days=1)),
    )

    async def work(asked: Any) -> None:
        run_id = await asked.world.submitted()
        await asked.world.driven(run_id)
        service = DurableRunWaits(asked.world.store, asked.world.executables)
        interrupt, timer, _ = (each.wait_id for each in await service.outstanding(TENANT, run_id))
        await asked.after(hours=1)
        overdue = f"Timer {timer} (sleep) was due at 2040-01-01 13:00:00Z, {{}} ago, and nobody has fired it."
        verdict, said = await asked.said(run_id)
        assert (verdict, list(said)) == ("waiting", ["timer_overdue", "waiting_for_interrupt", "waiting_for_timer"])
        assert said["timer_overdue"] == overdue.format("0 s")
        await asked.after(hours=1)
        verdict, said = await asked.said(run_id)
        assert (verdict, list(said)) == ("stuck", ["interrupt_expired", "timer_overdue", "waiting_for_timer"])
        assert said["interrupt_expired"] == (
            f"Interrupt {interrupt} (approval) expired at 2040-01-01 14:00:00Z, 0 s ago, and nobody has ended the run."
        )
        assert said["timer_overdue"] == overdue.format("1 h")
        assert (await asked.explain(run_id)).next_action == SUPERVISE
        await asked.supervisor().tick(TENANT)
        assert await asked.said(run_id) == ("finished", {})

    explaining(work, graph)
