"""Schedulers that hold the same page, workers that come back, and processes whose clock is wrong."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.waits import NodeWait
from agentruns.errors import LeaseLostError, NotYetAvailableError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.discovery import DurableRunDiscovery
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.supervisor import DurableRunSupervisor
from agentruns.store.options import StoreOptions
from agentruns.testing.drives import TENANT, DriveWorld, builder, chain
from agentruns.testing.hand_driven import HandDriven
from agentruns.testing.movable_clock import MovableClock

InWorld = Callable[..., None]

LEASE = timedelta(seconds=30)
MICROSECOND = timedelta(microseconds=1)
ROUNDS, AT_ONCE = 200, 20
GRAPH = chain(a=lambda _context: Finish({}))


def store_of(world: DriveWorld) -> AgentRunStore:
    """Make what another process opens on the same database."""
    return AgentRunStore(world.store_url, StoreOptions(lease_duration=LEASE))


def shift(monkeypatch: pytest.MonkeyPatch, by: timedelta) -> None:
    """Set the clock of this process wrong."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + by.total_seconds())
    monkeypatch.setattr(time, "time_ns", lambda: int((real() + by.total_seconds()) * 10**9))


@pytest.mark.slow
def test_B2_of_two_schedulers_with_the_same_page_one_gets_each_run(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        async with store_of(world) as other:
            stores = (world.store, other)
            for _ in range(ROUNDS // AT_ONCE):
                submitted = set(await asyncio.gather(*(world.submitted() for _ in range(AT_ONCE))))
                pages = [await DurableRunDiscovery(store, world.executables).discover_ready(TENANT) for store in stores]
                run_ids, same = ([each.run_id for each in page.runs] for page in pages)
                assert (set(run_ids), same) == (submitted, run_ids)
                contests = [
                    [store.claim(TENANT, run_id, AttemptId.generate()) for store in stores] for run_id in run_ids
                ]
                answers = await asyncio.gather(
                    *(asyncio.gather(*contest, return_exceptions=True) for contest in contests)
                )
                held = [each for pair in answers for each in pair if isinstance(each, HeldLease)]
                refused = [each for pair in answers for each in pair if isinstance(each, NotYetAvailableError)]
                assert [each.fence.run_id for each in held] == [each.run_id for each in refused] == run_ids
                assert {each.reason for each in refused} == {"leased"}
                driven = await asyncio.gather(*(world.loop.run(lease, world.shutdown) for lease in held))
                assert {each.outcome for each in driven} == {AgentLoopOutcome.SUCCEEDED}
        epochs = await world.rows("SELECT fencing_epoch, count(*) FROM agentruns.runs GROUP BY 1")
        assert [tuple(row) for row in epochs] == [(1, ROUNDS)]
        starts = await world.rows("SELECT node_id, attempt, count(*) FROM agentruns.node_attempts GROUP BY 1, 2")
        assert sorted(tuple(row) for row in starts) == [("a", 1, ROUNDS)]

    in_world(work, GRAPH, lease=LEASE)


def test_B7_whoever_comes_back_has_no_right_but_that_of_a_live_lease(in_world: InWorld, clock: MovableClock) -> None:
    async def work(world: DriveWorld) -> None:
        world.store.clock.monotonic = lambda: 0.0
        await clock.advance(timedelta(0))
        run_id, old = await world.submitted(), AttemptId.generate()
        async with store_of(world) as killed:
            killed.clock.monotonic = lambda: 0.0
            first = await killed.claim(TENANT, run_id, old)
        # Another process of the same host and, for all that a store knows, of the same name.
        async with store_of(world) as store:
            store.clock.monotonic = lambda: 0.0
            before = await world.everything()
            # While it lives, the id of a claim is answered with its lease, and nothing is extended.
            await clock.advance(LEASE / 2)
            assert (await store.claim(TENANT, run_id, old)).lease == first.lease
            for until_end in (LEASE / 2, MICROSECOND):
                await clock.set(first.lease.expires_at.to_datetime() - until_end)
                with pytest.raises(NotYetAvailableError) as refused:
                    await store.claim(TENANT, run_id, AttemptId.generate())
                assert refused.value.reason == "leased"
            assert await world.everything() == before
            stale = await HandDriven.of(world, first.fence)
            await clock.set(first.lease.expires_at.to_datetime())
            fresh = await store.claim(TENANT, run_id, AttemptId.generate())
            # The old id is a claim like any other after an end and after a release.
            await clock.set(fresh.lease.expires_at.to_datetime())
            after_end = await store.claim(TENANT, run_id, old)
            await store.release(after_end.fence)
            after_release = await store.claim(TENANT, run_id, old)
            epochs = [each.fence.epoch.value for each in (first, fresh, after_end, after_release)]
            assert epochs == [1, 2, 3, 4]
            left = await world.everything()
            for attempt in (
                lambda: store.renew(first.fence, desired=after_release.lease.expires_at.plus(LEASE)),
                lambda: stale.committer.commit(stale.start()),
            ):
                with pytest.raises(LeaseLostError) as lost:
                    await attempt()
                assert lost.value.reason == "stale_fence"
            assert await world.everything() == left

    in_world(work, GRAPH, lease=LEASE)


def test_R3_a_lease_is_moved_into_the_past_and_nobody_waits_for_its_end(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        first = await world.claimed(await world.submitted())
        with pytest.raises(NotYetAvailableError):
            await world.claimed(first.fence.run_id)
        await world.expire_leases()
        (row,) = await world.rows("SELECT lease_expires_at <= clock_timestamp() AS is_over FROM agentruns.runs")
        assert row.is_over
        assert (await world.claimed(first.fence.run_id)).fence.epoch.value == 2
        with pytest.raises(LeaseLostError) as lost:
            await world.store.renew(first.fence, desired=first.lease.expires_at.plus(LEASE))
        assert lost.value.reason == "stale_fence"

    in_world(work, GRAPH, lease=timedelta(hours=1) / 12)


def test_C1_a_process_that_is_ten_minutes_ahead_takes_nothing_early(
    in_world: InWorld, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, five, sleepers = builder(), timedelta(minutes=5), list[RunId]()

    async def a(context: Any) -> Any:
        return Suspend(NodeWait.timer(due_in=five)) if context.run_id in sleepers else Finish({})

    graph.node(name="a", entry=True, terminal=True, wait_to="a")(a)
    shift(monkeypatch, timedelta(minutes=10))

    async def work(world: DriveWorld) -> None:
        async with store_of(world) as others:
            held = [await others.claim(TENANT, await world.submitted(), AttemptId.generate()) for _ in range(3)]
            gated = await others.claim(TENANT, await world.submitted(), AttemptId.generate())
            await others.release(gated.fence, delay=five)
            for limits in (None, BudgetLimits(deadline=others.clock.stamp().plus(five))):
                sleepers.append(await world.submitted(limits=limits))
                assert (await world.driven(sleepers[-1])).outcome is AgentLoopOutcome.WAITING
            due = await world.submitted()
            before = await world.everything()
            taken = [due]
            for expected in (taken, []):
                page = await DurableRunDiscovery(world.store, world.executables).discover_ready(TENANT)
                assert [each.run_id for each in page.runs] == expected
                claimed = await world.store.claim_ready(
                    TENANT,
                    8,
                    attempt_ids=[AttemptId.generate() for _ in range(8)],
                    graph_digests=world.executables.graph_digests,
                )
                assert [each.fence.run_id for each in claimed] == expected
            for lease in (*held, gated):
                with pytest.raises(NotYetAvailableError) as refused:
                    await world.claimed(lease.fence.run_id)
                assert refused.value.reason == ("deferred" if lease is gated else "leased")
            # A timer and a deadline that this process would have seen pass are five minutes away.
            assert await settled(world) == (0, 0)
            after = await world.everything()
            # One run was claimed, which was ready; no other row has changed.
            assert len(set(before) ^ set(after)) == 2
            for lease in held:
                desired = lease.lease.expires_at.plus(timedelta(seconds=1))
                assert (await world.store.renew(lease.fence, desired=desired)).lease.expires_at == desired
            # The database's clock is what brings them.
            world.store.clock.monotonic = lambda: 0.0
            await clock.advance(five)
            assert await settled(world) == (1, 1)

    async def settled(world: DriveWorld) -> tuple[int, int]:
        tick = await DurableRunSupervisor(world.store, world.executables).tick(TENANT)
        assert tick.errors == ()
        return tick.cancellations_requested, tick.timers_fired

    in_world(work, graph.build(), lease=LEASE)


def test_C3_a_worker_whose_clock_is_behind_leaves_no_trace_of_it(
    in_world: InWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    shift(monkeypatch, timedelta(hours=-1))

    async def work(world: DriveWorld) -> None:
        async def now() -> Any:
            return (await world.rows("SELECT clock_timestamp() AS now"))[0].now

        instants = [await now()]
        run_id = await world.submitted()
        instants.append(await now())
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
        instants.append(await now())
        events = await world.rows("SELECT sequence, recorded_at FROM agentruns.run_events ORDER BY sequence")
        recorded = [each.recorded_at for each in events]
        assert [each.sequence for each in events] == list(range(1, len(events) + 1))
        assert recorded == sorted(recorded)
        admission, *others = recorded
        assert admission <= instants[1]
        assert others[-1] <= instants[2]
        # A stamp may be as old as a statement that was held up, and never as old as this process's clock.
        assert admission > instants[0] - timedelta(minutes=1)
        assert await world.attempts() == [("a", 1, 1)]

    in_world(work, GRAPH, lease=LEASE)
