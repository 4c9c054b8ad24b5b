"""The metrics of submissions, drives, takeovers, failures and supervision: exact points."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, cast

import pytest

from agentruns.domain.fairness import TenantFairnessPolicy
from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import AttemptId, ReservationId
from agentruns.domain.scalars import ShardId, TenantId
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import AgentSubmissionConflictError, LeaseLostError, RunQuarantinedError, StoreUnavailableError
from agentruns.runtime.fair_shard import FairShard
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.testing.drives import TENANT, DriveWorld, chain, fan

InWorld = Callable[..., None]
PointsOf = Callable[..., Mapping[Any, float]]

LONG = timedelta(minutes=1)
GRAPH = "sample-graph"


def three() -> GraphBundle:
    return chain(a=lambda _context: {"a": 1}, b=lambda _context: {"b": 2}, c=lambda _context: Finish({}))


async def claim(world: DriveWorld) -> Any:
    digests = world.executables.graph_digests
    return await world.store.claim_ready(TENANT, 1, attempt_ids=[AttemptId.generate()], graph_digests=digests)


def test_a_submission_and_a_drive_of_three_nodes(in_world: InWorld, points_of: PointsOf, telemetry: Any) -> None:
    async def work(world: DriveWorld) -> None:
        assert await claim(world) == ()
        await world.submitted()
        (held,) = await claim(world)
        await world.loop.run(held, world.shutdown)

        assert points_of("agentruns.submissions", "outcome") == {("committed",): 1}
        assert points_of("agentruns.submit.duration", "outcome") == {("committed",): 1}
        assert points_of("agentruns.claims", "outcome") == {("claimed",): 1, ("idle",): 1}
        # Who looks for work again and again, and finds none, fills no trace.
        assert len(telemetry.named("agentruns.claim")) == 1
        assert points_of("agentruns.claim.duration", "outcome") == {("claimed",): 1, ("idle",): 1}
        assert points_of("agentruns.drives", "outcome") == {("succeeded",): 1}
        assert points_of("agentruns.drive.duration", "outcome") == {("succeeded",): 1}
        assert points_of("agentruns.node.attempts", "graph", "node_id", "outcome") == {
            (GRAPH, node_id, outcome): 1 for node_id in "abc" for outcome in ("started", "succeeded")
        }
        assert points_of("agentruns.node.duration", "graph", "node_id", "outcome") == {
            (GRAPH, node_id, "returned"): 1 for node_id in "abc"
        }
        assert points_of("agentruns.commits", "graph") == {(GRAPH,): 4}
        assert points_of("agentruns.commits.fused", "graph") == {(GRAPH,): 3}
        assert points_of("agentruns.barriers", "graph") == {(GRAPH,): 3}
        assert points_of("agentruns.batch.width", "graph") == {(GRAPH,): 3}
        assert points_of("agentruns.replay.events", "graph") == {(GRAPH,): 1}
        assert points_of("agentruns.replay.supersteps", "graph") == {(GRAPH,): 0}
        assert points_of("agentruns.replay.prefix_hits", "graph") == {(GRAPH,): 0}
        assert points_of("agentruns.replay.duration", "graph") == {(GRAPH,): 1}
        assert points_of("agentruns.runs.finished", "status") == {("succeeded",): 1}
        # The admission; four commits of the drive, the last of which ended the run.
        assert points_of("agentruns.set.items", "lane") == {("admissions",): 1, ("commits",): 4}
        assert points_of("agentruns.set.alone", "lane", "cause") == {}
        assert points_of("agentruns.lease.lost", "outcome") == {}

    in_world(work, three(), lease=LONG)


def test_the_outcomes_of_submissions_and_loads(in_world: InWorld, points_of: PointsOf, telemetry: Any) -> None:
    async def work(world: DriveWorld) -> None:
        key = AgentSubmissionKey.generate()
        await world.runs.submit(key, world.request())
        await world.runs.submit(key, world.request())
        with pytest.raises(AgentSubmissionConflictError):
            await world.runs.submit(key, world.request({"other": 1}))
        results = await world.runs.submit_many(
            [(key, world.request()), (AgentSubmissionKey.generate(), world.request())]
        )
        assert [result.outcome.value for result in results if not isinstance(result, Exception)] == [
            "idempotent",
            "committed",
        ]
        with pytest.raises(TypeError):
            await world.runs.admit("no request")  # type: ignore[arg-type]
        expected = {("committed",): 2, ("idempotent",): 2, ("conflict",): 1, ("rejected",): 1}
        assert points_of("agentruns.submissions", "outcome") == expected
        assert points_of("agentruns.submit.duration", "outcome") == {
            ("committed",): 1,
            ("idempotent",): 1,
            ("conflict",): 1,
            ("rejected",): 1,
        }
        many = telemetry.named("agentruns.submit")[3]
        assert dict(many.attributes) == {"agentruns.tenant_id": TENANT.text, "agentruns.count": 2}

    in_world(work, three(), lease=LONG)


def test_a_failure_and_a_takeover(in_world: InWorld, points_of: PointsOf) -> None:
    reached = asyncio.Event()

    async def a(context: Any) -> None:
        if context.attempt == 1:
            reached.set()
            await asyncio.Event().wait()
        raise ValueError

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        dead = asyncio.create_task(world.driven(run_id))
        await reached.wait()
        lease = await world.store.supersede(TENANT, run_id, AttemptId.generate())
        await world.loop.run(lease, world.shutdown)
        with pytest.raises(LeaseLostError):
            await dead
        assert points_of("agentruns.drives", "outcome") == {("failed",): 1, ("lease_lost",): 1}
        assert points_of("agentruns.drive.duration", "outcome") == {("failed",): 1, ("lease_lost",): 1}
        assert points_of("agentruns.lease.lost", "outcome") == {("stale_fence",): 1}
        assert points_of("agentruns.node.attempts", "graph", "node_id", "outcome") == {
            (GRAPH, "a", "started"): 2,
            (GRAPH, "a", "failed"): 1,
        }
        assert points_of("agentruns.node.duration", "graph", "node_id", "outcome") == {
            (GRAPH, "a", "aborted"): 1,
            (GRAPH, "a", "raised"): 1,
        }
        assert points_of("agentruns.runs.finished", "status") == {("failed",): 1}

    in_world(work, chain(a=a), lease=LONG)


def test_a_quarantine_counts_once_with_its_cause(in_world: InWorld, points_of: PointsOf) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await world.rows("UPDATE agentruns.run_checkpoints SET state = '{}  '")
        with pytest.raises(RunQuarantinedError):
            await world.driven(run_id)
        assert points_of("agentruns.runs.quarantined", "cause") == {("integrity_failure",): 1}
        assert points_of("agentruns.drives", "outcome") == {("quarantined",): 1}

    in_world(work, three(), lease=LONG)


def test_siblings_are_one_batch_and_renewals_tell_what_was_left(in_world: InWorld, points_of: PointsOf) -> None:
    ends = asyncio.Event()

    async def sibling(_context: Any) -> None:
        await ends.wait()

    async def work(world: DriveWorld) -> None:
        driving = asyncio.create_task(world.driven(await world.submitted()))
        async with asyncio.timeout(30):
            while not points_of("agentruns.lease.renewals", "outcome"):
                await asyncio.sleep(0.05)
        ends.set()
        result = await driving
        renewals = points_of("agentruns.lease.renewals", "outcome")
        assert renewals == {("renewed",): result.report.lease_renewals}
        assert points_of("agentruns.lease.margin") == {(): result.report.lease_renewals}
        # Two batches: the siblings, and who joins them.
        assert points_of("agentruns.batch.width", "graph") == {(GRAPH,): 2}

    graph = fan(first={"x": sibling, "y": sibling}, last=lambda _context: Finish({}))
    in_world(work, graph, lease=timedelta(seconds=5), maximum_parallel_nodes=2)


def test_who_blocks_the_loop_is_named(in_world: InWorld, points_of: PointsOf) -> None:
    async def blocks(_context: Any) -> Finish:
        time.sleep(3)  # noqa: ASYNC251  # this is what must be noticed
        return Finish({})

    async def work(world: DriveWorld) -> None:
        await world.driven(await world.submitted())
        assert points_of("agentruns.loop.blocked", "node_id") == {("blocks",): 1}

    in_world(work, chain(blocks=blocks), lease=timedelta(seconds=7.5))


def test_who_never_ends_is_counted_and_has_the_end_that_counts(in_world: InWorld, points_of: PointsOf) -> None:
    ends = asyncio.Event()

    async def stays(_context: Any) -> None:
        while not ends.is_set():
            with suppress(asyncio.CancelledError):
                await ends.wait()

    async def work(world: DriveWorld) -> None:
        try:
            await world.driven(await world.submitted())
        finally:
            ends.set()
        assert points_of("agentruns.nodes.abandoned", "node_id") == {("stays",): 1}
        assert points_of("agentruns.node.duration", "graph", "node_id", "outcome") == {(GRAPH, "stays", "timed_out"): 1}

    short = timedelta(milliseconds=50)
    in_world(work, chain(stays=stays), lease=LONG, node_execution_timeout=short, task_abort_wait=short)


def test_turns_of_a_shard(in_world: InWorld, points_of: PointsOf) -> None:
    async def work(world: DriveWorld) -> None:
        policy = TenantFairnessPolicy.of({TENANT.text: 1})
        shard = FairShard(world.store, ShardId("main"), policy)
        await shard.publish()
        await shard.reserve([ReservationId.generate() for _ in range(3)], [TENANT])
        assert points_of("agentruns.fair.reservations") == {(): 3}

    in_world(work, three(), lease=LONG)


def test_turns_of_a_tenant_lie_apart_whoever_reserves_them(in_world: InWorld, telemetry: Any) -> None:
    async def work(world: DriveWorld) -> None:
        other = TenantId("other")
        policy = TenantFairnessPolicy.of({TENANT.text: 1, other.text: 1})
        here, there = (FairShard(world.store, ShardId("main"), policy) for _ in range(2))
        await here.publish()
        for shard, tenant_id, count in ((here, TENANT, 3), (there, TENANT, 1), (there, other, 2), (here, TENANT, 1)):
            await shard.reserve([ReservationId.generate() for _ in range(count)], [tenant_id])
        # The first turn of each comes after none: 1 and 1, 1, 1, and 3 from there's turn on.
        assert telemetry.spread("agentruns.fair.distance") == (5, 7, 1, 3)

    in_world(work, three(), lease=LONG)


def test_a_turn_is_reserved_although_those_before_it_cannot_be_read(in_world: InWorld, telemetry: Any) -> None:
    async def work(world: DriveWorld) -> None:
        class Away:
            async def run(self, _work: object) -> None:
                raise StoreUnavailableError(attempts=1)

        policy = TenantFairnessPolicy.of({TENANT.text: 1})
        here, there = (FairShard(world.store, ShardId("main"), policy) for _ in range(2))
        await here.publish()
        await there.reserve([ReservationId.generate()], [TENANT])
        here._distances._store = cast("Any", Away())
        (turn,) = await here.reserve([ReservationId.generate()], [TENANT])
        assert (turn.sequence, turn.tenant_id) == (1, TENANT)
        assert telemetry.spread("agentruns.fair.distance") == (0, 0, 0, 0)
        here._distances._store = world.store
        await here.reserve([ReservationId.generate()], [TENANT])
        assert telemetry.spread("agentruns.fair.distance") == (1, 1, 1, 1)

    in_world(work, three(), lease=LONG)


def test_a_claim_without_room_says_so(in_world: InWorld, points_of: PointsOf) -> None:
    async def work(world: DriveWorld) -> None:
        await world.store.set_tenant_limit(TENANT, 1)
        await world.submitted()
        (held,) = await claim(world)
        assert await claim(world) == ()
        await world.submitted()
        assert await claim(world) == ()
        assert points_of("agentruns.claims", "outcome") == {("claimed",): 1, ("at_capacity",): 2}
        await world.store.release(held.fence)
        assert len(await claim(world)) == 1
        await world.store.set_tenant_limit(TENANT, 3)
        assert len(await claim(world)) == 1
        assert await claim(world) == ()
        assert points_of("agentruns.claims", "outcome") == {("claimed",): 3, ("at_capacity",): 2, ("idle",): 1}

    in_world(work, three(), lease=LONG)
