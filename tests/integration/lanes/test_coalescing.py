"""What waits together shares a statement, and each item has its own outcome whatever becomes of its neighbours."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import EventId
from agentruns.domain.lease import RunFence
from agentruns.domain.ledger.commit import DraftedCommit
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import (
    ContentionError,
    IdConflictError,
    InvariantError,
    LeaseLostError,
    RunQuarantinedError,
    StoreUnavailableError,
)
from agentruns.runtime.committer import CommitPlan, CommitResult, RunCommitter
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import StoreOptions
from agentruns.testing.drives import DriveWorld, chain
from agentruns.testing.faults import WireProxy
from agentruns.testing.hand_driven import HandDriven
from agentruns.testing.strangers import Stranger

InWorld = Callable[..., None]
Sent = Callable[[AgentRunStore], AbstractContextManager[list[str]]]

GRAPH = chain(a=lambda _context: None, b=lambda _context: Finish({}))
LONG = timedelta(minutes=1)
COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT
STARTED = b"graph-node-attempt-started"


async def hands(world: DriveWorld, count: int, *, committer: RunCommitter | None = None) -> list[HandDriven]:
    """That many claimed runs whose commits meet in one lane."""
    shared = committer or RunCommitter(world.store)
    run_ids = await asyncio.gather(*(world.submitted() for _ in range(count)))
    held = [await world.claimed(run_id) for run_id in run_ids]
    return [await HandDriven.of(world, each.fence, committer=shared) for each in held]


async def commit_all(plans: Sequence[CommitPlan], committer: RunCommitter) -> list[CommitResult | BaseException]:
    return await asyncio.gather(*(committer.commit(plan) for plan in plans), return_exceptions=True)


def outcomes(results: Sequence[CommitResult | BaseException]) -> Counter[Any]:
    return Counter(each.outcome if isinstance(each, CommitResult) else type(each) for each in results)


def commits_of(texts: Sequence[str]) -> int:
    return sum("INSERT INTO agentruns.node_attempts" in text for text in texts)


async def started(world: DriveWorld) -> list[str]:
    """Ids of the runs that have a start, sorted, once for each start."""
    rows = await world.rows("SELECT run_id::text AS run_id FROM agentruns.node_attempts ORDER BY 1")
    return [row.run_id for row in rows]


def ids_of(wanted: Sequence[HandDriven]) -> list[str]:
    return sorted(each.fence.run_id.text for each in wanted)


def test_S1_commits_that_wait_together_are_few_statements(in_world: InWorld, sent: Sent) -> None:
    async def work(world: DriveWorld) -> None:
        runs = await hands(world, 50)
        with sent(world.store) as texts:
            results = await commit_all([each.start() for each in runs], runs[0].committer)
        assert outcomes(results) == {COMMITTED: 50}
        # What one turn of the event loop brings goes together, on one connection of the lane; on a busy machine a stamp
        # may be too old when it arrives, and goes again.
        assert 1 <= commits_of(texts) <= 3
        assert await started(world) == ids_of(runs)

    in_world(work, GRAPH, lease=LONG)


def test_S1_submits_that_wait_together_are_few_statements(in_world: InWorld, sent: Sent) -> None:
    async def work(world: DriveWorld) -> None:
        with sent(world.store) as texts:
            run_ids = await asyncio.gather(*(world.submitted() for _ in range(50)))
        assert len(set(run_ids)) == 50
        assert sum("INSERT INTO agentruns.runs" in text for text in texts) == 2
        rows = await world.rows("SELECT run_id::text AS run_id FROM agentruns.runs ORDER BY 1")
        assert [row.run_id for row in rows] == sorted(run_id.text for run_id in run_ids)

    in_world(work, GRAPH)


def test_S1_each_item_of_a_mixed_set_gets_its_own_answer(in_world: InWorld, sent: Sent) -> None:
    async def work(world: DriveWorld) -> None:
        runs = await hands(world, 50)
        committer = runs[0].committer
        plans = [each.start() for each in runs]
        stale, isolated, reused = runs[10], runs[20], runs[40]
        plans[10] = evolve(plans[10], fence=evolve(stale.fence, epoch=stale.fence.epoch.next()))
        await world.rows(
            "UPDATE agentruns.runs SET quarantined_at = now(), lease_attempt_id = NULL, lease_acquired_at = NULL,"
            " lease_renewed_at = NULL, lease_expires_at = NULL WHERE run_id = cast(:run_id AS uuid)",
            run_id=isolated.fence.run_id.text,
        )
        plans[30] = evolve(plans[30], build=hasty(plans[30].build))
        event_id = EventId.generate()
        await committer.commit(reused.start(event_id=event_id))
        plans[40] = reused.start(event_id=event_id)
        with sent(world.store) as texts:
            results = await commit_all(plans, committer)
        refused = {place: each for place, each in enumerate(results) if not isinstance(each, CommitResult)}
        assert {place: type(each) for place, each in refused.items()} == {
            10: LeaseLostError,
            20: RunQuarantinedError,
            40: IdConflictError,
        }
        assert getattr(refused[10], "reason", "") == "stale_fence"
        assert outcomes(results)[COMMITTED] == 47
        assert commits_of(texts) <= 8
        assert await started(world) == ids_of([each for each in runs if each not in (stale, isolated)])
        assert isinstance(results[30], CommitResult)

    in_world(work, GRAPH, lease=LONG)


def hasty(build: Callable[[Timestamp], DraftedCommit]) -> Callable[[Timestamp], DraftedCommit]:
    """Build at first as if an hour had passed: the statement refuses a stamp that is ahead of the database."""
    early = [timedelta(hours=1)]

    def built(stamp: Timestamp) -> DraftedCommit:
        return build(stamp.plus(early.pop()) if early else stamp)

    return built


@pytest.mark.parametrize("by", [timedelta(hours=1), timedelta(hours=-1)])
def test_a_stamp_that_the_database_refuses_is_taken_afresh(in_world: InWorld, sent: Sent, by: timedelta) -> None:
    async def work(world: DriveWorld) -> None:
        (run,) = await hands(world, 1)
        assert run.state.head is not None
        # Behind the head a stamp cannot be: then it is the head's instant, which is too old here.
        await asyncio.sleep(1.1)
        (before,) = await world.rows("SELECT clock_timestamp() AS at")
        world.store.clock.correct(world.store.clock.stamp().plus(by))
        with sent(world.store) as texts:
            result = await run.commit(run.start())
        assert result.outcome is COMMITTED
        # On a busy machine the fresh one may be too old as well when it arrives.
        assert 2 <= commits_of(texts) <= 3
        (row,) = await world.rows(
            "SELECT recorded_at, clock_timestamp() AS after FROM agentruns.run_events WHERE sequence = 2"
        )
        assert before.at - timedelta(seconds=1) <= row.recorded_at <= row.after

    in_world(work, GRAPH, lease=LONG)


def test_C5_a_stamp_that_is_refused_three_times_is_a_retryable_refusal(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        (run,) = await hands(world, 1)
        plan = run.start()
        ahead = evolve(plan, build=lambda stamp: plan.build(stamp.plus(timedelta(minutes=1))))
        before = await world.everything()
        with pytest.raises(ContentionError) as refusal:
            await run.committer.commit(ahead)
        assert (refusal.value.retryable, refusal.value.attempts) == (True, 3)
        assert await world.everything() == before

    in_world(work, GRAPH, lease=LONG)


def test_LEA_29_a_held_row_delays_nobody_but_its_own_run(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        runs = await hands(world, 20)
        held, committer = runs[7], runs[0].committer
        async with Stranger(world.url).holding(held.fence.run_id):
            tries = [asyncio.create_task(committer.commit(each.start())) for each in runs]
            others = [each for each in tries if each is not tries[7]]
            # Sooner than whoever waits for the row gives up, which is after its third try.
            async with asyncio.timeout(12):
                assert outcomes(await asyncio.gather(*others)) == {COMMITTED: 19}
            assert not tries[7].done()
            assert await started(world) == ids_of([each for each in runs if each is not held])
        assert (await tries[7]).outcome is COMMITTED
        assert await started(world) == ids_of(runs)

    in_world(work, GRAPH, lease=LONG)


def test_S4_a_row_that_is_held_for_too_long_is_a_retryable_refusal(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        options = StoreOptions(lock_timeout=timedelta(milliseconds=50))
        async with AgentRunStore(world.store_url, options) as impatient:
            (run,) = await hands(world, 1, committer=RunCommitter(impatient))
            before = await world.everything()
            async with Stranger(world.url).holding(run.fence.run_id):
                with pytest.raises(StoreUnavailableError) as refusal:
                    await run.commit(run.start())
            assert (refusal.value.sqlstate, refusal.value.attempts) == ("55P03", 3)
            assert refusal.value.retryable
            assert await world.everything() == before

    in_world(work, GRAPH, lease=LONG)


def test_S4_what_the_database_forbids_one_item_is_that_item_s_alone(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        runs = await hands(world, 20)
        forbidden = runs[11]
        await Stranger(world.url).forbid("node_attempts", f"NEW.run_id = '{forbidden.fence.run_id.text}'")
        results = await commit_all([each.start() for each in runs], runs[0].committer)
        assert outcomes(results) == {COMMITTED: 19, InvariantError: 1}
        refused = results[11]
        assert isinstance(refused, InvariantError)
        assert refused.reason == "forbidden"
        assert await started(world) == ids_of([each for each in runs if each is not forbidden])

    in_world(work, GRAPH, lease=LONG)


def test_S4_a_set_whose_connection_is_ended_goes_again_and_commits_once(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        runs = await hands(world, 20)
        stranger = Stranger(world.url)
        async with stranger.locking("node_attempts"):
            tries = asyncio.create_task(commit_all([each.start() for each in runs], runs[0].committer))
            await stranger.see_waiting()
            assert await stranger.terminate_connections() >= 1
        assert outcomes(await tries) == {COMMITTED: 20}
        assert await started(world) == ids_of(runs)

    in_world(work, GRAPH, lease=LONG)


def test_H2_connections_that_were_ended_while_idle_are_opened_again_in_silence(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        runs = await hands(world, 10)
        assert await Stranger(world.url).terminate_connections() >= 1
        results = await commit_all([each.start() for each in runs], runs[0].committer)
        assert outcomes(results) == {COMMITTED: 10}
        assert await started(world) == ids_of(runs)

    in_world(work, GRAPH, lease=LONG)


def test_H1_OPS_07_a_demoted_primary_is_left_for_a_new_connection(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        async with AgentRunStore(world.store_url, StoreOptions(pool_size=1)) as single:
            (run,) = await hands(world, 1, committer=RunCommitter(single))
            async with single._engine.connect() as connection:
                await connection.exec_driver_sql("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
            assert (await run.commit(run.start())).outcome is COMMITTED
            assert await started(world) == ids_of([run])

    in_world(work, GRAPH, lease=LONG)


def test_S4_a_lost_answer_leaves_every_item_of_its_set_idempotent(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        options = StoreOptions(lane_connections=1)
        async with WireProxy.before(world.store_url) as proxy, AgentRunStore(proxy.url, options) as behind:
            runs = await hands(world, 22, committer=RunCommitter(behind))
            committer, plans = runs[0].committer, [each.start() for each in runs]
            # The connection of the lane knows the statement: what is sent from here on is its parameters.
            assert outcomes(await commit_all(plans[:1], committer)) == {COMMITTED: 1}
            stranger = Stranger(world.url)
            async with stranger.locking("node_attempts"):
                under_way = asyncio.create_task(commit_all(plans[1:2], committer))
                await stranger.see_waiting(count=1)
                # All others share the set whose answer is lost.
                tries = asyncio.create_task(commit_all(plans[2:], committer))
                await asyncio.sleep(0)
                proxy.lose_answer(STARTED)
            assert outcomes(await under_way) == {COMMITTED: 1}
            assert outcomes(await tries) == {IDEMPOTENT: 20}
            assert proxy.lost == 1
            assert outcomes(await commit_all(plans, committer)) == {IDEMPOTENT: 22}
            assert await started(world) == ids_of(runs)

    in_world(work, GRAPH, lease=LONG)


def test_S3_a_waiter_that_gives_up_withdraws_what_has_not_gone_out(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        runs = await hands(world, 12)
        stranger, committer = Stranger(world.url), runs[0].committer
        async with stranger.locking("node_attempts"):
            tries: list[asyncio.Task[CommitResult]] = []
            for run in runs[:2]:
                tries.append(asyncio.create_task(committer.commit(run.start())))
                await stranger.see_waiting(count=len(tries))
            # The first two are under way, the others wait for a free connection of the lane.
            tries += [asyncio.create_task(committer.commit(each.start())) for each in runs[2:]]
            await asyncio.sleep(0)
            given_up = [tries[0], *tries[5:8]]
            for each in given_up:
                each.cancel()
            results = await asyncio.gather(*given_up, return_exceptions=True)
            assert {type(each) for each in results} == {asyncio.CancelledError}
        kept = await asyncio.gather(*(each for each in tries if each not in given_up))
        assert outcomes(kept) == {COMMITTED: 8}
        assert await started(world) == ids_of([*runs[:5], *runs[8:]])

    in_world(work, GRAPH, lease=LONG)


def test_a_retry_beside_its_own_first_try_is_idempotent(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        (run,) = await hands(world, 1)
        plan = run.start()
        results = await commit_all([plan] * 10, run.committer)
        assert outcomes(results) == {COMMITTED: 1, IDEMPOTENT: 9}
        assert await started(world) == ids_of([run])

    in_world(work, GRAPH, lease=LONG)


def test_LEA_23_a_fence_of_one_run_says_nothing_about_another(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        first, second = await hands(world, 2)
        crossed = RunFence(
            tenant_id=first.fence.tenant_id,
            run_id=first.fence.run_id,
            attempt_id=second.fence.attempt_id,
            epoch=second.fence.epoch,
        )
        plans = [evolve(first.start(), fence=crossed), second.start()]
        lost, committed = await commit_all(plans, first.committer)
        assert isinstance(lost, LeaseLostError)
        assert lost.reason == "stale_fence"
        assert isinstance(committed, CommitResult)
        assert await started(world) == ids_of([second])

    in_world(work, GRAPH, lease=LONG)


def test_S5_sets_of_two_processes_over_the_same_runs_never_wait_in_a_circle(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        async with AgentRunStore(world.store_url, world.store.options) as other:
            runs = await hands(world, 40)
            seconds = timedelta(seconds=1)
            for round_number in range(1, 6):
                desired = world.store.clock.stamp().plus(LONG + round_number * seconds)
                here = [world.store.renew(run.fence, desired=desired) for run in runs]
                there = [other.renew(run.fence, desired=desired) for run in reversed(runs)]
                starts = [run.commit(run.start()) for run in runs] if round_number == 3 else []
                # Whoever comes second finds the same end there already: nobody fails, and nobody is a victim.
                answers = await asyncio.gather(*here, *there, *starts, return_exceptions=True)
                assert [each for each in answers if isinstance(each, BaseException)] == []
            assert await started(world) == ids_of(runs)
            ends = await world.rows("SELECT DISTINCT lease_expires_at FROM agentruns.runs")
            assert [row.lease_expires_at for row in ends] == [desired.to_datetime()]

    in_world(work, GRAPH, lease=LONG)
