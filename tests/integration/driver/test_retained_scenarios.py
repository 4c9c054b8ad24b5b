"""Scenarios of a drive that must stay covered on every server version.

Others of the same list: a second execution under one fence and blockers in ``test_lease_after_outcome.py``; siblings
that finish in reverse, and one that is durable while a later one runs, in ``test_driving.py``; renewal beyond the first
lease in ``tests/faults/test_outages.py``; a takeover by a higher fence in ``tests/integration/leases``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.admission import AgentAdmissionBudgetLayer
from agentruns.domain.graph.returns import Finish
from agentruns.domain.schema import JsonSchemaRegistry
from agentruns.domain.submission import AgentRunIds
from agentruns.errors import InvariantError, LeaseLostError, RunQuarantinedError
from agentruns.runtime.agent_loop import AgentLoopOutcome, AgentLoopResult
from agentruns.runtime.driver.driver import DurableGraphDriver
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.runtime.driver.outcomes import LifecycleBarrierReady
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.lease_keeper import LeaseKeeper
from agentruns.testing import samples
from agentruns.testing.drives import DriveWorld, chain, fan
from agentruns.testing.hand_driven import HandDriven
from agentruns.testing.strangers import Stranger

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
OPTIONS = DurableGraphDriverOptions(lease_renewal_interval=timedelta(seconds=20), reuse_verified_prefix=False)


def test_a_later_checkpoint_is_recovered_and_leads_to_the_end(in_world: InWorld) -> None:
    calls: list[tuple[str, Any]] = []

    def noting(name: str, result: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def node(context: Any) -> Any:
            calls.append((name, context.state))
            return result(context)

        return node

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        # The first drive ends for its events: start, completion, barrier, and no room for another node.
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.YIELDED
        (before,) = await world.rows("SELECT superstep FROM agentruns.runs")
        assert before.superstep == 1
        held = await world.claimed(run_id)
        driver = DurableGraphDriver(world.store, world.executables, OPTIONS)
        async with LeaseKeeper(world.store, held, interval=OPTIONS.lease_renewal_interval) as keeper:
            driven = await driver.drive(keeper, world.shutdown)
        assert isinstance(driven.outcome, LifecycleBarrierReady)
        assert driven.report.replay.supersteps_replayed == 1
        assert driven.outcome.plan.output is not None
        assert driven.outcome.plan.output.value == {"a": 1}
        assert driven.outcome.state.superstep.value == 1
        assert calls == [("a", {}), ("b", {"a": 1})]

    graph = chain(a=noting("a", lambda _context: {"a": 1}), b=noting("b", lambda context: Finish(context.state)))
    in_world(work, graph, lease=LONG, maximum_durable_events=3)


def test_a_lease_that_nearly_ends_is_a_fresh_one_when_the_node_begins(in_world: InWorld) -> None:
    worlds: list[DriveWorld] = []
    left: list[timedelta] = []

    async def a(_context: Any) -> Finish:
        (row,) = await worlds[0].rows("SELECT lease_expires_at - clock_timestamp() AS left FROM agentruns.runs")
        left.append(row.left)
        return Finish({})

    async def work(world: DriveWorld) -> None:
        worlds.append(world)
        fence = (await world.claimed(await world.submitted())).fence
        await world.rows("UPDATE agentruns.runs SET lease_expires_at = clock_timestamp() + interval '5 s'")
        sent_at = time.monotonic()
        seen = await world.store.observe(fence)
        held = HeldLease(lease=seen.lease, observed_at=seen.observed_at, sent_at=sent_at)
        assert (await world.loop.run(held, world.shutdown)).outcome is AgentLoopOutcome.SUCCEEDED
        assert left[0] > LONG / 2
        assert await world.attempts() == [("a", 1, 1)]

    in_world(work, chain(a=a), lease=LONG)


def test_an_initial_state_that_its_schema_refuses_isolates_the_run_before_any_execution(
    in_world: InWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def a(context: Any) -> Finish:
        calls.append(context.attempt)
        return Finish({})

    async def work(world: DriveWorld) -> None:
        graph = world.bundle.graph
        request = samples.admission_request(
            ids=AgentRunIds.generate(),
            descriptor=samples.agent(input_schema=graph.input_schema, output_schema=graph.output_schema),
            request=samples.agent_request(input={}, input_schema=graph.input_schema),
            budget_layers=(AgentAdmissionBudgetLayer.system_default(),),
            graph=graph.reference,
            initial_state=samples.graph_state(["no object"], schema=graph.state_schema),
        )
        with monkeypatch.context() as without:
            # Somebody's admission has a defect: everything is whole and proves itself but for the rule that it broke.
            without.setattr(JsonSchemaRegistry, "validate", lambda *_arguments, **_keywords: None)
            await world.runs.admit(request)
        with pytest.raises(RunQuarantinedError):
            await world.driven(request.run_id)
        (record,) = await world.rows("SELECT cause_kind, component, epoch FROM agentruns.run_quarantines")
        assert tuple(record) == ("integrity_failure", "admission", 1)
        assert calls == []
        assert await world.kinds() == ["agent-admitted"]

    in_world(work, chain(a=a), lease=LONG)


def test_one_orphan_of_a_parallel_batch_is_taken_over_and_its_siblings_are_not_repeated(in_world: InWorld) -> None:
    calls: list[tuple[str, int]] = []

    def noting(name: str) -> Callable[[Any], dict[str, int]]:
        def node(context: Any) -> dict[str, int]:
            calls.append((name, context.attempt))
            return {name: context.attempt}

        return node

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        hand = await HandDriven.of(world, (await world.claimed(run_id)).fence)
        for name in "abc":
            await hand.commit(hand.start(name))
        for name in "ac":
            await hand.commit(hand.complete(name))
        await world.expire_leases()
        result = await world.driven(run_id)
        assert result.outcome is AgentLoopOutcome.SUCCEEDED
        assert calls == [("b", 2)]
        assert result.report.node_attempts_started == 2
        assert await world.attempts() == [("a", 1, 1), ("b", 1, 1), ("c", 1, 1), ("b", 2, 2), ("z_last", 1, 2)]

    siblings = {name: noting(name) for name in "abc"}
    in_world(work, fan(first=siblings, last=lambda _context: Finish({})), lease=LONG, maximum_parallel_nodes=3)


def test_DRV_20_of_64_drives_three_have_trouble_of_their_own_and_no_other_has(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_ids = [await world.submitted() for _ in range(64)]
        # In the middle: they meet others in a set.
        held_up, forbidden, lost = run_ids[30:33]
        others = run_ids[:30] + run_ids[33:]
        stranger = Stranger(world.url)
        await stranger.forbid("node_results", f"NEW.run_id = '{forbidden.text}'")
        stale = await world.claimed(lost)
        await world.expire_leases()
        await world.claimed(lost)
        leases = {run_id: stale if run_id is lost else await world.claimed(run_id) for run_id in run_ids}
        async with stranger.holding(held_up):
            drives = {run_id: drive(world, held) for run_id, held in leases.items()}
            waiting = drives[held_up]
            # Sooner than whoever waits for the row gives up, which is after its third try.
            async with asyncio.timeout(2 * world.store.options.lock_timeout.total_seconds()):
                ends = await asyncio.gather(*(drives[run_id] for run_id in others))
            assert [end.outcome for end in ends] == [AgentLoopOutcome.SUCCEEDED] * 61
            with pytest.raises(InvariantError) as refused:
                await drives[forbidden]
            assert refused.value.reason == "forbidden"
            with pytest.raises(LeaseLostError) as gone:
                await drives[lost]
            assert gone.value.reason == "stale_fence"
            assert not waiting.done()
        assert (await waiting).outcome is AgentLoopOutcome.SUCCEEDED
        epochs = await world.rows("SELECT run_id, fencing_epoch FROM agentruns.runs WHERE fencing_epoch <> 1")
        assert [(str(row.run_id), row.fencing_epoch) for row in epochs] == [(lost.text, 2)]
        starts = await world.rows("SELECT DISTINCT attempt FROM agentruns.node_attempts")
        assert [row.attempt for row in starts] == [1]

    in_world(work, chain(a=lambda _context: {"a": 1}, b=lambda _context: Finish({})), lease=LONG)


def drive(world: DriveWorld, held: HeldLease) -> asyncio.Task[AgentLoopResult]:
    return asyncio.create_task(world.loop.run(held, world.shutdown))
