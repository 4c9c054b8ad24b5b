"""A run is explained however damaged its rows are, by as few statements as possible, and nothing private is said."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event

from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import RunId
from agentruns.domain.waits import NodeWait
from agentruns.errors import NodeFailedError
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.testing.drives import TENANT, builder, chain
from agentruns.testing.isolating import isolate

Explaining = Callable[[Callable[[Any], Coroutine[Any, Any, None]], GraphBundle], None]

NOON = "2040-01-01 12:00:00Z"
MOVE = "UPDATE agentruns.{} SET {} = set_byte({}, 5, get_byte({}, 5) # 1)"


def retrying(_context: Any) -> Any:
    raise NodeFailedError.retry_after(timedelta(minutes=10), code="model.rate_limited")


def sleeping(_context: Any) -> Any:
    return Suspend(NodeWait.timer(due_in=timedelta(hours=1)))


async def begun(asked: Any) -> RunId:
    run_id: RunId = await asked.world.submitted()
    await asked.world.driven(run_id)
    await asked.after(seconds=5)
    return run_id


@pytest.mark.parametrize("damaged", ["body", "digest"])
def test_a_failure_that_is_not_what_its_digest_says_keeps_its_code(explaining: Explaining, damaged: str) -> None:
    async def work(asked: Any) -> None:
        run_id = await begun(asked)
        await asked.world.rows(MOVE.format("node_results", *[damaged] * 3))
        _, said = await asked.said(run_id)
        assert said["deferred"].startswith("Node a failed in attempt 1 of 64 and is not started again before")

    explaining(work, chain(a=retrying))


def test_a_body_that_is_no_failure_keeps_its_code(explaining: Explaining) -> None:
    async def work(asked: Any) -> None:
        run_id = await begun(asked)
        await asked.world.rows("UPDATE agentruns.node_results SET body = '\\xff7b', digest = sha256('\\xff7b')")
        _, said = await asked.said(run_id)
        assert said["deferred"].startswith("Node a failed in attempt 1 of 64 and")

    explaining(work, chain(a=retrying))


def test_events_and_checkpoints_that_are_lost_are_not_missed(explaining: Explaining) -> None:
    async def work(asked: Any) -> None:
        run_id = await begun(asked)
        expected = await asked.explain(run_id)
        await asked.world.rows("DELETE FROM agentruns.run_events")
        await asked.world.rows("DELETE FROM agentruns.run_checkpoints")
        await asked.world.rows("DELETE FROM agentruns.agent_admissions")
        assert await asked.explain(run_id) == expected

    explaining(work, chain(a=retrying))


def test_a_wait_without_its_event_is_told_without_its_beginning(explaining: Explaining) -> None:
    graph = builder()
    graph.node(name="a", entry=True, then="b", wait_to="b")(sleeping)
    graph.node(name="b", terminal=True)(lambda _context: Finish({}))

    async def work(asked: Any) -> None:
        run_id = await begun(asked)
        await asked.world.rows("DELETE FROM agentruns.run_events")
        await asked.world.rows(MOVE.format("run_waits", *["registration"] * 3))
        _, said = await asked.said(run_id)
        late = "since nobody knows when; it is due at 2040-01-01 13:00:00Z, in 59 min 55 s."
        assert said["waiting_for_timer"].endswith(late)
        await asked.world.rows("DELETE FROM agentruns.run_waits")
        assert await asked.said(run_id) == ("stuck", {})

    explaining(work, graph.build())


def test_instants_that_no_clock_shows_are_the_outermost_ones(explaining: Explaining) -> None:
    async def work(asked: Any) -> None:
        run_id = await asked.world.submitted()
        await asked.world.rows("UPDATE agentruns.runs SET scheduler_ready_at = 'infinity'")
        _, said = await asked.said(run_id)
        assert "nobody may claim it before 9999-12-31 00:00:00Z, in 2907328 d 12 h." in said["deferred"]
        await asked.world.rows("UPDATE agentruns.runs SET scheduler_ready_at = '-infinity'")
        _, said = await asked.said(run_id)
        assert said["never_claimed"].startswith(
            "The run has been ready since 1970-01-01 00:00:00Z, for 25567 d 12 h, and"
        )

    explaining(work, chain(a=retrying))


def test_a_definition_that_is_damaged_or_lost_is_not_asked_for_its_limit(explaining: Explaining) -> None:
    def of_limit(maximum: int) -> GraphBundle:
        graph = builder(maximum_supersteps=maximum)
        graph.node(name="a", entry=True, terminal=True)(lambda _context: Finish({}))
        return graph.build()

    async def work(asked: Any) -> None:
        run_id = await asked.world.submitted()
        await asked.world.rows("UPDATE agentruns.runs SET superstep = 8")
        assert list((await asked.said(run_id))[1]) == ["blocked", "never_claimed"]
        for definition in (of_limit(7).graph.canonical, asked.world.bundle.graph.canonical[1:], b"{}"):
            await asked.world.rows("UPDATE agentruns.graph_definitions SET definition = :bytes", bytes=definition)
            assert list((await asked.said(run_id))[1]) == ["never_claimed"]
        await asked.world.rows("DELETE FROM agentruns.graph_definitions")
        assert list((await asked.said(run_id))[1]) == ["never_claimed"]
        await asked.world.rows("UPDATE agentruns.runs SET graph_definition_digest = NULL")
        assert list((await asked.said(run_id))[1]) == ["never_claimed"]

    explaining(work, of_limit(8))


def test_an_isolation_without_its_record_and_a_request_without_its_event_are_told(explaining: Explaining) -> None:
    async def work(asked: Any) -> None:
        isolated = await isolate(asked.world, await asked.world.submitted())
        await asked.world.rows("DELETE FROM agentruns.run_quarantines")
        says = f"The run has been isolated since {NOON}, for 0 s, and no record says why."
        assert await asked.said(isolated.run_id) == ("stuck", {"quarantined": says})
        run_id = await asked.world.submitted()
        await asked.world.rows(
            "UPDATE agentruns.runs SET status = 'cancellation_requested' WHERE run_id = cast(:id AS uuid)",
            id=run_id.text,
        )
        _, said = await asked.said(run_id)
        asked_for = "Somebody asked for the end of the run; the next claim confirms that."
        assert said["cancellation_requested"] == asked_for

    explaining(work, chain(a=retrying))


def test_a_released_isolation_is_over(explaining: Explaining) -> None:
    async def work(asked: Any) -> None:
        isolated = await isolate(asked.world, await asked.world.submitted())
        # As a release leaves it, and a second isolation after it.
        await asked.world.rows(
            "INSERT INTO agentruns.run_quarantine_releases"
            " (tenant_id, run_id, quarantine_id, released_at, body, digest)"
            " SELECT tenant_id, run_id, quarantine_id, clock_timestamp(), body, digest FROM agentruns.run_quarantines"
        )
        assert "no record says why" in (await asked.said(isolated.run_id))[1]["quarantined"]
        await asked.world.rows("UPDATE agentruns.runs SET quarantined_at = NULL")
        assert "quarantined" not in (await asked.said(isolated.run_id))[1]

    explaining(work, chain(a=retrying))


def test_a_run_is_explained_by_one_statement_and_by_two_when_it_is_due(explaining: Explaining) -> None:
    sent: list[str] = []

    async def work(asked: Any) -> None:
        run_id = await asked.world.submitted()

        def listen(_connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
            if "pg_notify" not in statement:  # it goes by the second, and not by the call
                sent.append(statement.split()[1])

        event.listen(asked.world.store._engine.sync_engine, "before_cursor_execute", listen)
        await asked.explain(run_id)
        assert sent == ["run", "clock"]
        sent.clear()
        await asked.world.claimed(run_id)
        sent.clear()
        await asked.explain(run_id)
        assert sent == ["run"]

    explaining(work, chain(a=retrying))


def test_OPS_11_nothing_that_the_application_wrote_is_said(explaining: Explaining) -> None:
    def a(_context: Any) -> Any:
        raise NodeFailedError.retry_after(timedelta(minutes=10), "secret-message", code="model.rate_limited")

    async def work(asked: Any) -> None:
        run_id = await begun(asked)
        explanation = await asked.explain(run_id)
        assert "model.rate_limited" in repr(explanation)
        assert "secret" not in repr(explanation)
        assert TENANT.text not in repr(explanation)

    explaining(work, chain(a=a))
