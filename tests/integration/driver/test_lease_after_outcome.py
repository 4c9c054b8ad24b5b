"""Every outcome of a drive says whether the lease is kept, and the row agrees."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.failure import SafeAfter
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.numbers import DurationMillis
from agentruns.domain.waits import NodeWait
from agentruns.errors import NodeFailedError, NotYetAvailableError, RunNotRunnableError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.driver.driver import DurableGraphDriver, GraphDriveResult
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.runtime.driver.outcomes import (
    Blocked,
    CancellationRequested,
    Cancelled,
    Deferred,
    GraphBlockers,
    LifecycleBarrierReady,
    Yielded,
)
from agentruns.runtime.lease_keeper import LeaseKeeper
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import DriveWorld, builder, chain
from agentruns.testing.hand_driven import HandDriven
from agentruns.testing.samples import failure

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)


def fails(_context: Any) -> None:
    raise ValueError


def fails_for_now(_context: Any) -> None:
    raise NodeFailedError(failure=failure(retry_advice=SafeAfter(delay=DurationMillis(60_000))))


async def driven(world: DriveWorld, held: Any, **options: Any) -> GraphDriveResult:
    """Drive without what usually follows a drive."""
    chosen = DurableGraphDriverOptions(lease_renewal_interval=timedelta(seconds=20), **options)
    driver = DurableGraphDriver(world.store, world.executables, chosen)
    async with LeaseKeeper(world.store, held, interval=chosen.lease_renewal_interval) as keeper:
        return await driver.drive(keeper, world.shutdown)


async def lease_of(world: DriveWorld) -> tuple[bool, bool]:
    """Whether the run is leased, and whether a gate keeps it from being claimed."""
    (row,) = await world.rows("SELECT lease_attempt_id, scheduler_not_before FROM agentruns.runs")
    return row.lease_attempt_id is not None, row.scheduler_not_before is not None


@pytest.mark.parametrize(
    ("node", "outcome", "leased", "gated"),
    [
        (lambda _context: Finish({}), LifecycleBarrierReady, True, False),
        (fails, Blocked, True, False),
        (fails_for_now, Deferred, False, True),
    ],
)
def test_DRV_08_what_a_node_leads_to_keeps_or_releases_the_lease(
    in_world: InWorld, node: Any, outcome: type[object], *, leased: bool, gated: bool
) -> None:
    async def work(world: DriveWorld) -> None:
        held = await world.claimed(await world.submitted())
        result = await driven(world, held)
        assert type(result.outcome) is outcome
        assert await lease_of(world) == (leased, gated)
        if leased:
            # It is live, and with at least half of its time left.
            seen = await world.store.observe(held.fence)
            assert seen.lease.expires_at.minus(seen.observed_at) > LONG / 2
        if isinstance(result.outcome, Deferred):
            (row,) = await world.rows("SELECT scheduler_not_before FROM agentruns.runs")
            assert row.scheduler_not_before == result.outcome.not_before.to_datetime()

    in_world(work, chain(a=node), lease=LONG)


def test_DRV_08_a_blocked_run_names_its_blockers(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        result = await driven(world, await world.claimed(await world.submitted()))
        assert isinstance(result.outcome, Blocked)
        assert result.outcome.blockers == GraphBlockers(failed=1)

    in_world(work, chain(a=fails), lease=LONG)


def test_DRV_08_a_request_keeps_the_lease_for_its_confirmation(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        held = await world.claimed(run_id)
        await request_cancellation(world, run_id)
        assert type((await driven(world, held)).outcome) is CancellationRequested
        assert await lease_of(world) == (True, False)

    in_world(work, chain(a=lambda _context: Finish({})), lease=LONG)


def test_DRV_08_a_shutdown_releases(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        held = await world.claimed(await world.submitted())
        world.shutdown.drain()
        assert type((await driven(world, held)).outcome) is Cancelled
        assert await lease_of(world) == (False, False)
        assert await world.attempts() == []

    in_world(work, chain(a=lambda _context: Finish({})), lease=LONG)


@pytest.mark.parametrize(("events", "started"), [(2, 1), (3, 1), (4, 1), (5, 2), (6, 2)])
def test_DRV_04_a_drive_writes_no_more_than_it_may_and_releases(
    in_world: InWorld, *, events: int, started: int
) -> None:
    async def work(world: DriveWorld) -> None:
        held = await world.claimed(await world.submitted())
        result = await driven(world, held, maximum_durable_events=events)
        assert type(result.outcome) is Yielded
        assert result.report.durable_events <= events
        assert result.report.node_attempts_started == result.report.node_attempts_completed == started
        assert len(await world.kinds()) == 1 + result.report.durable_events
        assert await lease_of(world) == (False, False)

    nodes = {name: (lambda _context: None) for name in "abcde"}
    in_world(work, chain(**nodes, z=lambda _context: Finish({})), lease=LONG)


def test_a_run_that_yields_is_finished_by_the_drives_that_follow(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        outcomes: list[AgentLoopOutcome] = []
        while not outcomes or outcomes[-1] is AgentLoopOutcome.YIELDED:
            outcomes.append((await world.driven(run_id)).outcome)
        assert outcomes[-1] is AgentLoopOutcome.SUCCEEDED
        assert len(outcomes) == 5
        # A new fence each, and every node once.
        assert [(node, attempt) for node, attempt, _ in await world.attempts()] == [(name, 1) for name in "abcde"]
        assert [epoch for _, _, epoch in await world.attempts()] == [1, 2, 3, 4, 5]

    nodes = {name: (lambda _context: None) for name in "abcd"}
    in_world(work, chain(**nodes, e=lambda _context: Finish({})), lease=LONG, maximum_durable_events=4)


def test_driver_and_driven_here_a_fence_is_driven_once_by_a_process(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        held = await world.claimed(await world.submitted())
        with world.store.driven.driving(held.fence):
            before = await world.everything()
            with pytest.raises(NotYetAvailableError) as refusal:
                await world.loop.run(held, world.shutdown)
            assert refusal.value.reason == "driven_here"
            # The lease of the drive under way is left alone.
            assert await world.everything() == before
        assert (await world.loop.run(held, world.shutdown)).outcome is AgentLoopOutcome.SUCCEEDED

    in_world(work, chain(a=lambda _context: Finish({})), lease=LONG)


def test_a_node_that_this_fence_has_started_elsewhere_is_never_called_under_it(in_world: InWorld) -> None:
    calls: list[int] = []

    def a(context: Any) -> Finish:
        calls.append(context.attempt)
        return Finish({})

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        held = await world.claimed(run_id)
        hand = await HandDriven.of(world, held.fence)
        await hand.commit(hand.start())
        result = await world.loop.run(held, world.shutdown)
        assert result.outcome is AgentLoopOutcome.RECOVERY_RELEASED
        assert calls == []
        assert await lease_of(world) == (False, False)
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
        assert calls == [2]
        assert await world.attempts() == [("a", 1, 1), ("a", 2, 2)]

    in_world(work, chain(a=a), lease=LONG)


def test_a_run_that_waits_gives_its_lease_back_and_is_claimed_by_nobody(in_world: InWorld) -> None:
    graph = builder()

    @graph.node(entry=True, wait_to="b")
    def a(_context: Any) -> Suspend:
        return Suspend(NodeWait.timer(due_in=timedelta(hours=1)), update={"asked": True})

    @graph.node(terminal=True)
    def b(_context: Any) -> Finish:
        return Finish({})

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.WAITING
        assert (await world.kinds())[-1] == "graph-barrier-waiting"
        assert await lease_of(world) == (False, False)
        (wait,) = await world.rows(
            "SELECT w.status, w.due_at - e.recorded_at AS due_in FROM agentruns.run_waits w"
            " JOIN agentruns.run_events e USING (tenant_id, run_id, sequence)"
        )
        assert tuple(wait) == ("outstanding", timedelta(hours=1))
        assert (await world.loaded(run_id)).status.value == "waiting"
        with pytest.raises(RunNotRunnableError) as refusal:
            await world.claimed(run_id)
        assert refusal.value.reason == "waiting"

    in_world(work, graph.build(), lease=LONG)
