"""The spans of a run: which, under which, linked to what, and with what."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry.trace import StatusCode, get_current_span

from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.waits import NodeWait
from agentruns.errors import LeaseLostError, RunNotFoundError, RunQuarantinedError
from agentruns.runtime.agent_loop import AgentLoopOutcome, AgentLoopResult
from agentruns.runtime.driver.driver import DurableGraphDriver
from agentruns.runtime.driver.outcomes import LifecycleBarrierReady
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.lease_keeper import LeaseKeeper
from agentruns.runtime.lifecycle import DurableGraphLifecycle
from agentruns.testing.drives import TENANT, DriveWorld, builder, chain, sleep_for_ever

InWorld = Callable[..., None]
Attributes = Callable[[Any], dict[str, Any]]
PointsOf = Callable[..., Mapping[Any, float]]

LONG = timedelta(minutes=1)


def three(telemetry: Any) -> GraphBundle:
    """Build a chain of which an asynchronous and a plain node have spans of their own."""

    async def a(_context: Any) -> dict[str, int]:
        with telemetry.span("in-a"):
            await asyncio.sleep(0)
        return {"a": 1}

    def b(_context: Any) -> dict[str, int]:
        with telemetry.span("in-b"):
            return {"b": 2}

    async def c(_context: Any) -> Finish:
        return Finish({"sum": 3})

    return chain(a=a, b=b, c=c)


async def driven_as_by_a_worker(world: DriveWorld) -> AgentLoopResult:
    """Claim what is ready, with its history, and drive it."""
    digests = world.executables.graph_digests
    (held,) = await world.store.claim_ready(TENANT, 1, attempt_ids=[AttemptId.generate()], graph_digests=digests)
    return await world.loop.run(held, world.shutdown)


def of_run(run_id: RunId, **more: Any) -> dict[str, Any]:
    values = {"tenant_id": TENANT.text, "run_id": run_id.text, **more}
    return {f"agentruns.{name}": value for name, value in values.items()}


GRAPH = {"graph": "sample-graph", "graph_version": "1.0.0"}


def test_a_run_is_a_trace_of_its_own_that_is_linked_to_its_submitters_span(
    in_world: InWorld, telemetry: Any, attributes: Attributes
) -> None:
    async def work(world: DriveWorld) -> None:
        with telemetry.span("request"):
            run_id = await world.submitted()
        # Whatever is current where a worker runs: a drive is no part of it.
        with telemetry.span("application") as application:
            assert (await driven_as_by_a_worker(world)).outcome is AgentLoopOutcome.SUCCEEDED
            assert get_current_span() is application

        assert telemetry.tree() == [
            ("request", None),
            ("agentruns.submit", "request"),
            ("application", None),
            ("agentruns.claim", None),
            ("agentruns.drive", None),
            ("agentruns.replay", "agentruns.drive"),
            ("agentruns.node", "agentruns.drive"),
            ("in-a", "agentruns.node"),
            ("agentruns.node", "agentruns.drive"),
            ("in-b", "agentruns.node"),
            ("agentruns.node", "agentruns.drive"),
            ("agentruns.lifecycle", "agentruns.drive"),
        ]
        drive = telemetry.one("agentruns.drive")
        request = telemetry.one("request").get_span_context()
        assert [(link.context.trace_id, link.context.span_id) for link in drive.links] == [
            (request.trace_id, request.span_id)
        ]
        ours = [each for each in telemetry.ended if each.name.startswith("agentruns.")]
        assert [each.name for each in ours if each.links] == ["agentruns.drive"]
        assert {each.status.status_code for each in ours} == {StatusCode.UNSET}
        assert [each.name for each in ours if each.events] == []
        assert attributes(telemetry.one("agentruns.submit")) == of_run(run_id, outcome="committed")
        assert attributes(telemetry.one("agentruns.claim")) == {
            "agentruns.tenant_id": TENANT.text,
            "agentruns.outcome": "claimed",
            "agentruns.count": 1,
        }
        assert attributes(drive) == of_run(
            run_id, **GRAPH, superstep=0, epoch=1, outcome="succeeded", commits=4, events=9, attempts=3
        )
        assert attributes(telemetry.one("agentruns.replay")) == of_run(
            run_id, **GRAPH, superstep=0, events=1, supersteps=0, windows=1
        )
        rows = await world.rows("SELECT attempt_id FROM agentruns.node_attempts ORDER BY sequence")
        assert [attributes(each) for each in telemetry.named("agentruns.node")] == [
            of_run(
                run_id,
                **GRAPH,
                node_id="abc"[step],
                superstep=step,
                attempt=1,
                attempt_id=str(rows[step].attempt_id),
                outcome="returned",
            )
            for step in range(3)
        ]
        assert attributes(telemetry.one("agentruns.lifecycle")) == of_run(
            run_id, status="succeeded", outcome="committed"
        )

    in_world(work, three(telemetry), lease=LONG)


def test_the_link_is_there_too_when_the_history_is_read_by_the_drive(in_world: InWorld, telemetry: Any) -> None:
    async def work(world: DriveWorld) -> None:
        with telemetry.span("request") as request:
            run_id = await world.submitted()
        await world.driven(run_id)
        (link,) = telemetry.one("agentruns.drive").links
        assert link.context.span_id == request.get_span_context().span_id

    in_world(work, three(telemetry), lease=LONG)


@pytest.mark.parametrize("stored", [None, "00-" + "0" * 32 + "-" + "1" * 16 + "-01", "x" * 55])
def test_a_context_that_is_none_links_to_nothing(in_world: InWorld, telemetry: Any, stored: str | None) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.rows("SELECT trace_context FROM agentruns.runs"))[0].trace_context is None
        await world.rows("UPDATE agentruns.runs SET trace_context = :stored", stored=stored)
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
        assert telemetry.one("agentruns.drive").links == ()

    in_world(work, three(telemetry), lease=LONG)


def test_a_takeover_is_a_second_drive_with_the_same_link(
    in_world: InWorld, telemetry: Any, attributes: Attributes
) -> None:
    reached = asyncio.Event()

    async def a(context: Any) -> Finish:
        if context.attempt == 1:
            reached.set()
            await asyncio.Event().wait()
        return Finish({})

    async def work(world: DriveWorld) -> None:
        with telemetry.span("request") as request:
            run_id = await world.submitted()
        dead = asyncio.create_task(world.driven(run_id))
        await reached.wait()
        lease = await world.store.supersede(TENANT, run_id, AttemptId.generate())
        successor = await world.loop.run(lease, world.shutdown)
        with pytest.raises(LeaseLostError):
            await dead
        assert successor.outcome is AgentLoopOutcome.SUCCEEDED
        first, second = telemetry.named("agentruns.drive")
        assert [attributes(each)["agentruns.epoch"] for each in (first, second)] == [1, 2]
        assert attributes(first)["agentruns.outcome"] == "lease_lost"
        assert attributes(first)["agentruns.error"] == "LeaseLostError"
        assert attributes(second)["agentruns.outcome"] == "succeeded"
        span_id = request.get_span_context().span_id
        assert [[link.context.span_id for link in each.links] for each in (first, second)] == [[span_id], [span_id]]
        assert {each.status.status_code for each in (first, second)} == {StatusCode.UNSET}
        nodes = [attributes(each) for each in telemetry.named("agentruns.node")]
        assert [(each["agentruns.attempt"], each["agentruns.outcome"]) for each in nodes] == [
            (1, "aborted"),
            (2, "returned"),
        ]

    in_world(work, chain(a=a), lease=LONG)


def test_a_node_that_fails_is_an_error_without_a_word_of_what_was_raised(
    in_world: InWorld, telemetry: Any, attributes: Attributes
) -> None:
    def a(_context: Any) -> None:
        raise ValueError("the-planted-secret")

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.FAILED
        node = telemetry.one("agentruns.node")
        assert (node.status.status_code, node.status.description, node.events) == (StatusCode.ERROR, None, ())
        assert attributes(node)["agentruns.outcome"] == "raised"
        assert attributes(telemetry.one("agentruns.lifecycle")) == of_run(run_id, status="failed", outcome="committed")
        drive = telemetry.one("agentruns.drive")
        assert attributes(drive)["agentruns.outcome"] == "failed"
        assert drive.status.status_code is StatusCode.UNSET

    in_world(work, chain(a=a), lease=LONG)


def test_a_node_that_is_out_of_time_has_the_end_that_counts(
    in_world: InWorld, telemetry: Any, attributes: Attributes
) -> None:
    async def work(world: DriveWorld) -> None:
        await world.driven(await world.submitted())
        node = telemetry.one("agentruns.node")
        assert attributes(node)["agentruns.outcome"] == "timed_out"
        assert node.status.status_code is StatusCode.ERROR

    in_world(work, chain(a=sleep_for_ever), lease=LONG, node_execution_timeout=timedelta(milliseconds=50))


def test_a_node_that_a_stop_leaves_behind_was_aborted(
    in_world: InWorld, telemetry: Any, attributes: Attributes
) -> None:
    reached, ends = asyncio.Event(), asyncio.Event()

    async def stays(_context: Any) -> None:
        reached.set()
        while not ends.is_set():
            with suppress(asyncio.CancelledError):
                await ends.wait()

    async def work(world: DriveWorld) -> None:
        driving = asyncio.create_task(world.driven(await world.submitted()))
        await reached.wait()
        world.shutdown.stop()
        try:
            assert (await driving).outcome is AgentLoopOutcome.CANCELLED
        finally:
            ends.set()
        node = telemetry.one("agentruns.node")
        assert (attributes(node)["agentruns.outcome"], node.status.status_code) == ("aborted", StatusCode.UNSET)
        assert attributes(telemetry.one("agentruns.drive"))["agentruns.outcome"] == "cancelled"

    in_world(work, chain(stays=stays), lease=LONG, task_abort_wait=timedelta(milliseconds=50))


def test_a_driver_without_a_loop_leaves_the_applications_span_alone(
    in_world: InWorld, telemetry: Any, attributes: Attributes
) -> None:
    async def work(world: DriveWorld) -> None:
        held = await world.claimed(await world.submitted())
        driver = DurableGraphDriver(world.store, world.executables)
        lifecycle = DurableGraphLifecycle(world.store, world.executables)
        with telemetry.span("application"):
            async with LeaseKeeper(world.store, held, interval=LONG) as keeper:
                driven = await driver.drive(keeper, world.shutdown)
            assert isinstance(driven.outcome, LifecycleBarrierReady)
            await lifecycle.commit_barrier(held.fence, driven.outcome, driven.intent)
        assert telemetry.tree() == [
            ("agentruns.submit", None),
            ("application", None),
            ("agentruns.replay", "application"),
            ("agentruns.node", "application"),
            ("agentruns.lifecycle", "application"),
        ]
        application = telemetry.one("application")
        assert (attributes(application), application.links) == ({}, ())

    in_world(work, chain(a=lambda _context: Finish({})), lease=LONG)


def test_a_run_that_sleeps_is_not_finished(
    in_world: InWorld, telemetry: Any, attributes: Attributes, points_of: PointsOf
) -> None:
    graph = builder()
    graph.node(name="a", entry=True, wait_to="b")(lambda _context: Suspend(NodeWait.timer(due_in=LONG)))
    graph.node(name="b", terminal=True)(lambda _context: Finish({}))

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.WAITING
        assert attributes(telemetry.one("agentruns.lifecycle")) == of_run(run_id, status="waiting", outcome="committed")
        assert points_of("agentruns.runs.finished", "status") == {}

    in_world(work, graph.build(), lease=LONG)


def test_a_quarantine_is_an_error_of_the_drive(in_world: InWorld, telemetry: Any, attributes: Attributes) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await world.rows("UPDATE agentruns.run_checkpoints SET state = '{}  '")
        with pytest.raises(RunQuarantinedError):
            await world.driven(run_id)
        drive, replay = telemetry.one("agentruns.drive"), telemetry.one("agentruns.replay")
        assert attributes(drive) == of_run(run_id, epoch=1, outcome="quarantined", error="RunQuarantinedError")
        assert attributes(replay) == of_run(run_id, error="CorruptDataError")
        assert {each.status.status_code for each in (drive, replay)} == {StatusCode.ERROR}

    in_world(work, three(telemetry), lease=LONG)


def test_a_load_says_whether_it_found_the_run(in_world: InWorld, telemetry: Any, attributes: Attributes) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await world.loaded(run_id)
        with pytest.raises(RunNotFoundError):
            await world.loaded(RunId.generate())
        found, missing = telemetry.named("agentruns.load")
        assert attributes(found) == of_run(run_id, status="active", outcome="found")
        assert attributes(missing) == {
            "agentruns.tenant_id": TENANT.text,
            "agentruns.outcome": "not_found",
            "agentruns.error": "RunNotFoundError",
        }
        assert {each.status.status_code for each in (found, missing)} == {StatusCode.UNSET}

    in_world(work, three(telemetry), lease=LONG)
