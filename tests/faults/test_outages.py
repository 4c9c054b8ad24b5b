"""A database that cannot be reached, for shorter and for longer than a lease lives, and statements that come late."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Self

import pytest
from sqlalchemy import make_url

from agentruns.domain.graph.returns import Finish
from agentruns.errors import CommitOutcomeUnknownError, LeaseLostError, StoreUnavailableError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_health import WorkerHealth, WorkerStatus
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.testing.drives import TENANT, DriveWorld, chain, open_world
from agentruns.testing.faults import WireProxy
from agentruns.testing.hand_driven import HandDriven
from agentruns.testing.strangers import Stranger

Behind = Callable[..., None]
InWorld = Callable[..., None]

#: It outlives a machine that stands still for a while.
LEASE = timedelta(seconds=5)
#: Three of these are long enough.
B4_LEASE = timedelta(seconds=3.5)


class Slow:
    """A node that takes a while, and notes when it began and how it ended."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.began = asyncio.Event()
        self.ends: list[str] = []
        self.ended_at = 0.0

    async def __call__(self, _context: Any) -> Any:
        self.began.set()
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.ends.append("aborted")
            raise
        else:
            self.ends.append("returned")
        finally:
            self.ended_at = time.monotonic()
        return Finish({})


class Pulse:
    """See for how long at most nothing of this process ran.

    Attributes:
        late: seconds.
    """

    def __init__(self) -> None:
        self.late = 0.0

    async def __aenter__(self) -> Self:
        self._beating = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *_error: object) -> None:
        # Whatever held it up is over for the pulse as well.
        await asyncio.sleep(0.02)
        self._beating.cancel()

    async def _beat(self) -> None:
        while True:
            asleep_at = time.monotonic()
            await asyncio.sleep(0.01)
            self.late = max(self.late, time.monotonic() - asleep_at - 0.01)


def slow(seconds: float) -> tuple[Slow, Any]:
    node = Slow(seconds)

    async def a(context: Any) -> Any:
        return await node(context)

    return node, chain(a=a)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # another task changes it
            await asyncio.sleep(0.01)


def test_an_outage_that_is_shorter_than_the_lease_costs_nothing(behind_a_wire: Behind) -> None:
    began, is_over = asyncio.Event(), asyncio.Event()

    async def a(_context: Any) -> Finish:
        began.set()
        await is_over.wait()
        return Finish({})

    async def work(world: DriveWorld, proxy: WireProxy) -> None:
        run_id = await world.submitted()
        driving = asyncio.create_task(world.driven(run_id))
        await began.wait()
        proxy.take_down()
        # A renewal falls into it.
        await asyncio.sleep(lease.total_seconds() / 4 + 0.25)
        proxy.bring_up()
        is_over.set()
        result = await driving
        assert result.outcome is AgentLoopOutcome.SUCCEEDED
        assert await world.attempts() == [("a", 1, 1)]

    # So long that a machine which stands still meanwhile does not outlast it.
    lease = timedelta(seconds=12)
    timing = {"cancellation_poll_interval": timedelta(milliseconds=50)}
    behind_a_wire(work, chain(a=a), lease=lease, **timing)


def test_B10_a_worker_that_cannot_renew_stops_its_node_before_the_lease_can_be_taken(behind_a_wire: Behind) -> None:
    node, graph = slow(30.0)

    async def work(world: DriveWorld, proxy: WireProxy) -> None:
        run_id = await world.submitted()
        held = await world.claimed(run_id)
        driving = asyncio.create_task(world.loop.run(held, world.shutdown))
        await node.began.wait()
        started_at = time.monotonic()
        proxy.take_down()
        before = await world.everything()
        async with Pulse() as pulse:
            with pytest.raises(LeaseLostError) as lost:
                await driving
        assert lost.value.reason == "expired"
        assert node.ends == ["aborted"]
        # The start extended the lease to a full one: by the end of that the node had stopped, unless nothing could run.
        assert node.ended_at - started_at < LEASE.total_seconds() + pulse.late
        # It could not be given back, and nothing else was committed.
        assert await world.everything() == before
        assert any("was not given back" in note for note in getattr(lost.value, "__notes__", []))
        proxy.bring_up()
        await asyncio.sleep(max(0.0, started_at + LEASE.total_seconds() + 0.05 - time.monotonic()))
        node.seconds = 0.0
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
        assert await world.attempts() == [("a", 1, 1), ("a", 2, 2)]

    behind_a_wire(work, graph, lease=LEASE)


def test_B4_a_node_that_runs_for_three_leases_keeps_its_fence_from_idle_workers(in_world: InWorld) -> None:
    node, graph = slow(3 * B4_LEASE.total_seconds())

    async def work(world: DriveWorld) -> None:
        held = await world.claimed(await world.submitted())
        options = AgentWorkerOptions(poll_interval=timedelta(milliseconds=50), listens=False)
        idle = [
            AgentWorker(world.store, world.executables, tenants=[TENANT], loop=world.loop, options=options)
            for _ in range(2)
        ]
        ended = ShutdownSignal()
        polling = [asyncio.create_task(worker.run(ended)) for worker in idle]
        result = await world.loop.run(held, world.shutdown)
        ended.drain()
        await asyncio.gather(*polling)
        assert result.outcome is AgentLoopOutcome.SUCCEEDED
        assert await world.attempts() == [("a", 1, 1)]
        assert result.report.lease_renewals >= 3
        (row,) = await world.rows("SELECT fencing_epoch FROM agentruns.runs")
        assert row.fencing_epoch == 1

    in_world(work, graph, lease=B4_LEASE)
    assert node.ends == ["returned"]


def test_H2_connections_that_are_ended_while_a_node_runs_cost_nothing(in_world: InWorld) -> None:
    node, graph = slow(1.6)

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        driving = asyncio.create_task(world.driven(run_id))
        await node.began.wait()
        for _ in range(8):
            await Stranger(world.url).terminate_connections()
            await asyncio.sleep(0.2)
        assert (await driving).outcome is AgentLoopOutcome.SUCCEEDED
        assert await world.attempts() == [("a", 1, 1)]

    # The lease is renewed among it, and outlives a machine that stands still for a moment.
    in_world(work, graph, lease=LEASE, cancellation_poll_interval=timedelta(milliseconds=50))


def test_D4_a_commit_that_comes_late_finds_another_fence(
    database_url: str, owner_url: str, run: Callable[[Any], Any]
) -> None:
    async def work() -> None:
        graph = chain(a=lambda _context: {"by": "second"}, b=lambda context: Finish(context.state))
        async with (
            WireProxy.before(database_url) as proxy,
            open_world(owner_url, graph, store_url=database_url, lease=timedelta(minutes=1)) as world,
            open_world(owner_url, graph, store_url=proxy.url, lease=timedelta(minutes=1)) as late,
        ):
            held = await late.claimed(await late.submitted())
            hand = await HandDriven.of(late, held.fence)
            await hand.commit(hand.start())
            statement = proxy.hold(b"graph-node-attempt-succeeded")
            committing = asyncio.create_task(hand.committer.commit(hand.complete()))
            await statement.arrived.wait()
            await world.expire_leases()
            assert (await world.driven(held.fence.run_id)).outcome is AgentLoopOutcome.SUCCEEDED
            before = await world.everything()
            statement.let_go()
            with pytest.raises(LeaseLostError) as lost:
                await committing
            assert lost.value.reason == "stale_fence"
            assert await world.everything() == before
            assert await world.attempts() == [("a", 1, 1), ("a", 2, 2), ("b", 1, 2)]

    run(work())


def test_a_database_that_stays_away_is_a_retryable_error_and_the_node_is_not_called(behind_a_wire: Behind) -> None:
    node, graph = slow(0.0)

    async def work(world: DriveWorld, proxy: WireProxy) -> None:
        held = await world.claimed(await world.submitted())
        proxy.take_down()
        with pytest.raises((StoreUnavailableError, CommitOutcomeUnknownError)) as away:
            await world.loop.run(held, world.shutdown)
        assert away.value.retryable
        assert not node.began.is_set()
        with pytest.raises((StoreUnavailableError, CommitOutcomeUnknownError)):
            await world.submitted()
        proxy.bring_up()
        assert (await world.loop.run(held, world.shutdown)).outcome is AgentLoopOutcome.SUCCEEDED

    behind_a_wire(work, graph, lease=timedelta(minutes=1))


def test_a_worker_survives_an_outage_and_goes_on(behind_a_wire: Behind) -> None:
    async def work(world: DriveWorld, proxy: WireProxy) -> None:
        options = AgentWorkerOptions(poll_interval=timedelta(milliseconds=20))
        worker = AgentWorker(world.store, world.executables, tenants=[TENANT], loop=world.loop, options=options)
        working = asyncio.create_task(worker.run(world.shutdown))
        first = await world.submitted()
        await world.runs.wait(TENANT, first, timeout=timedelta(seconds=30))
        proxy.take_down()
        await until(lambda: worker.health == WorkerHealth(status=WorkerStatus.UNAVAILABLE, reason="store_unavailable"))
        proxy.bring_up()
        second = await world.submitted()
        snapshot = await world.runs.wait(TENANT, second, timeout=timedelta(seconds=30))
        assert snapshot.status.value == "succeeded"
        await until(lambda: worker.health == WorkerHealth(status=WorkerStatus.READY))
        world.shutdown.drain()
        await working

    behind_a_wire(work, chain(a=lambda _context: Finish({})))


def test_a_connection_that_is_being_made_when_the_wire_goes_down_is_cut_too(
    database_url: str, run: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = WireProxy._connect

    async def overtaken(proxy: WireProxy) -> Any:
        made = await connect(proxy)
        proxy.take_down()
        return made

    async def work() -> None:
        async with WireProxy.before(database_url) as proxy, asyncio.timeout(30):
            source, sink = await asyncio.open_connection("127.0.0.1", make_url(proxy.url).port)
            # A server would wait for what its client says first.
            assert isinstance((await asyncio.gather(source.read(), return_exceptions=True))[0], ConnectionError | bytes)
            sink.close()

    monkeypatch.setattr(WireProxy, "_connect", overtaken)
    run(work())
