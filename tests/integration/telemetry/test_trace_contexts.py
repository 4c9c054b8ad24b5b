"""The submitter's trace context: stored with the run by every way to submit, and no part of what is compared."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.graph.returns import Finish
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.runtime.joined import JoinedAgentRuns
from agentruns.runtime.telemetry import recording
from agentruns.runtime.telemetry.state import STATE
from agentruns.testing.drives import DriveWorld, chain

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
GRAPH = chain(a=lambda _context: Finish({}))


def traceparent(span: Any) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


async def stored(world: DriveWorld) -> list[str | None]:
    rows = await world.rows("SELECT trace_context FROM agentruns.runs ORDER BY run_id")
    return [row.trace_context for row in rows]


async def submitted(world: DriveWorld) -> None:
    await world.runs.submit(AgentSubmissionKey.generate(), world.request())


async def admitted(world: DriveWorld) -> None:
    await world.runs.admit(world.request())


async def submitted_among_others(world: DriveWorld) -> None:
    await world.runs.submit_many([(AgentSubmissionKey.generate(), world.request())])


async def joined(world: DriveWorld) -> None:
    engine = create_async_engine(world.url, poolclass=NullPool)
    async with AsyncSession(engine) as session, session.begin():
        await world.runs.submit(AgentSubmissionKey.generate(), world.request(), session=session)
    await engine.dispose()


async def joined_among_others(world: DriveWorld) -> None:
    engine = create_async_engine(world.url, poolclass=NullPool)
    async with AsyncSession(engine) as session, session.begin():
        await world.runs.submit_many([(AgentSubmissionKey.generate(), world.request())], session=session)
    await engine.dispose()


async def joined_by_synchronous_code(world: DriveWorld) -> None:
    engine, runs = create_async_engine(world.url, poolclass=NullPool), JoinedAgentRuns(world.executables)
    async with engine.begin() as connection:
        key, request = AgentSubmissionKey.generate(), world.request()
        await connection.run_sync(lambda transaction: runs.submit(key, request, transaction))
    await engine.dispose()


WAYS = (submitted, admitted, submitted_among_others, joined, joined_among_others, joined_by_synchronous_code)


@pytest.mark.parametrize("submit", WAYS, ids=lambda way: way.__name__)
def test_every_way_to_submit_stores_the_callers_span(in_world: InWorld, telemetry: Any, submit: Any) -> None:
    async def work(world: DriveWorld) -> None:
        with telemetry.span("request") as request:
            await submit(world)
        (context,) = await stored(world)
        assert context == traceparent(request)
        assert len(context or "") == 55
        # One span for one call, however it is sent.
        assert telemetry.tree() == [("request", None), ("agentruns.submit", "request")]

    in_world(work, GRAPH, lease=LONG)


def test_M1_a_retry_inside_another_span_is_idempotent(in_world: InWorld, telemetry: Any) -> None:
    async def work(world: DriveWorld) -> None:
        key, answers = AgentSubmissionKey.generate(), []
        with telemetry.span("first") as first:
            answers.append(await world.runs.submit(key, world.request()))
        with telemetry.span("second"):
            answers.append(await world.runs.submit(key, world.request()))
        answers.append(await world.runs.submit(key, world.request()))
        assert [answer.outcome for answer in answers] == [
            MutationOutcome.COMMITTED,
            MutationOutcome.IDEMPOTENT,
            MutationOutcome.IDEMPOTENT,
        ]
        assert len({answer.snapshot for answer in answers}) == 1
        assert await stored(world) == [traceparent(first)]

    in_world(work, GRAPH, lease=LONG)


def test_a_context_that_the_column_does_not_hold_is_left_out(
    in_world: InWorld, telemetry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Later:
        def inject(self, carrier: dict[str, str]) -> None:
            carrier["traceparent"] = "01-" + "a" * 60

    async def work(world: DriveWorld) -> None:
        monkeypatch.setattr(recording, "_PROPAGATOR", Later())
        with telemetry.span("request"):
            await submitted(world)
        assert await stored(world) == [None]

    in_world(work, GRAPH, lease=LONG)


def test_without_telemetry_nothing_is_stored_and_the_record_is_the_same(
    in_world: InWorld, telemetry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(world: DriveWorld) -> None:
        with telemetry.span("request"), monkeypatch.context() as patch:
            request = world.request()
            patch.setattr(STATE, "recording", None)
            patch.setattr(STATE, "looks_at", float("inf"))
            first = await world.runs.admit(request)
            assert await stored(world) == [None]
        with telemetry.span("request"):
            assert (await world.runs.admit(request)).snapshot == first.snapshot
        assert await stored(world) == [None]

    in_world(work, GRAPH, lease=LONG)
