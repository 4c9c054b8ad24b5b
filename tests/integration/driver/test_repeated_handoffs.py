"""A handoff is committed once: whoever repeats it finds what the first try wrote, and asks for no evidence again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from attrs import define, field

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import AttemptId
from agentruns.domain.ledger.state import RunState
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.waits import NodeWait
from agentruns.errors import (
    CancellationConflictError,
    EvidenceUnavailableError,
    LeaseLostError,
    RunNotRunnableError,
    StaleHeadError,
)
from agentruns.runtime.driver.driver import DurableGraphDriver, GraphDriveResult
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.runtime.driver.outcomes import Blocked, CancellationRequested, LifecycleBarrierReady
from agentruns.runtime.evidence import LedgerEvidence
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.lease_keeper import LeaseKeeper
from agentruns.runtime.lifecycle import DurableGraphLifecycle, LifecycleEnd, LifecycleResult
from agentruns.runtime.supervisor import DurableRunSupervisor
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import TENANT, DriveWorld, builder

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
OPTIONS = DurableGraphDriverOptions(lease_renewal_interval=LONG / 4)


@define
class Evidence(LedgerEvidence):
    """Say what the fold says, note that it was asked, and fail while it is away."""

    is_away: bool = False
    asked: list[str] = field(factory=list)

    def terminal(self, state: RunState, output: BoundedJson) -> Any:
        self._note("terminal", state)
        return super().terminal(state, output)

    def usage(self, state: RunState) -> Any:
        self._note("usage", state)
        return super().usage(state)

    def _note(self, what: str, state: RunState) -> None:
        self.asked.append(what)
        if self.is_away:
            raise EvidenceUnavailableError(tenant_id=state.tenant_id, run_id=state.run_id, reason="usage")


def graph_of(kind: str) -> Any:
    graph = builder()

    def a(_context: Any) -> Any:
        if kind == "fail":
            raise ValueError
        return Suspend(NodeWait.timer(due_in=timedelta(hours=1))) if kind == "wait" else Finish({})

    graph.node(name="a", entry=True, wait_to="b", terminal=True)(a)
    graph.node(name="b", terminal=True)(lambda _context: Finish({}))
    return graph.build()


async def handed_on(world: DriveWorld, held: HeldLease) -> GraphDriveResult:
    """Drive a run to where something is to be committed."""
    driver = DurableGraphDriver(world.store, world.executables, OPTIONS)
    async with LeaseKeeper(world.store, held, interval=OPTIONS.lease_renewal_interval) as keeper:
        return await driver.drive(keeper, world.shutdown)


async def commit(lifecycle: DurableGraphLifecycle, held: HeldLease, driven: GraphDriveResult) -> LifecycleResult:
    """Commit what was handed on."""
    handoff, fence = driven.outcome, held.fence
    if isinstance(handoff, LifecycleBarrierReady):
        return await lifecycle.commit_barrier(fence, handoff, driven.intent)
    if isinstance(handoff, Blocked):
        return await lifecycle.resolve_blocked(fence, handoff)
    assert isinstance(handoff, CancellationRequested)
    return await lifecycle.confirm_cancellation(fence, handoff)


ENDS = {
    "wait": (LifecycleEnd.WAITING, []),
    "finish": (LifecycleEnd.SUCCEEDED, ["terminal"]),
    "fail": (LifecycleEnd.FAILED, ["usage"]),
    "cancel": (LifecycleEnd.CANCELLED, ["usage"]),
}


@pytest.mark.parametrize("kind", ENDS)
def test_LIF_03_LIF_04_a_handoff_that_is_committed_again_is_idempotent_and_asks_for_no_evidence(
    in_world: InWorld, kind: str
) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        if kind == "cancel":
            await request_cancellation(world, run_id)
        held = await world.claimed(run_id)
        driven, evidence = await handed_on(world, held), Evidence()
        lifecycle = DurableGraphLifecycle(world.store, world.executables, evidence=evidence)
        first = await commit(lifecycle, held, driven)
        end, asked = ENDS[kind]
        assert (first.end, first.outcome, evidence.asked) == (end, MutationOutcome.COMMITTED, asked)
        evidence.is_away = True
        before = await world.everything()
        for _ in range(3):
            again = await commit(lifecycle, held, driven)
            assert (again.end, again.outcome) == (end, MutationOutcome.IDEMPOTENT)
            assert (again.run_id, again.revision) == (run_id, first.revision)
        assert evidence.asked == asked
        assert await world.everything() == before
        if kind != "wait":
            return
        # Nor does it matter what has become of the run since.
        await request_cancellation(world, run_id)
        await world.driven(run_id)
        before = await world.everything()
        later = await commit(lifecycle, held, driven)
        assert (later.end, later.outcome) == (LifecycleEnd.WAITING, MutationOutcome.IDEMPOTENT)
        assert await world.everything() == before

    in_world(work, graph_of(kind), lease=LONG)


def test_LIF_04_evidence_that_was_away_is_asked_for_again(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        held = await world.claimed(await world.submitted())
        driven, evidence = await handed_on(world, held), Evidence(is_away=True)
        lifecycle = DurableGraphLifecycle(world.store, world.executables, evidence=evidence)
        before = await world.everything()
        with pytest.raises(EvidenceUnavailableError):
            await commit(lifecycle, held, driven)
        assert await world.everything() == before
        evidence.is_away = False
        assert (await commit(lifecycle, held, driven)).outcome is MutationOutcome.COMMITTED
        assert evidence.asked == ["terminal", "terminal"]

    in_world(work, graph_of("finish"), lease=LONG)


@pytest.mark.parametrize("kind", ["wait", "finish", "fail"])
def test_LIF_06_after_a_request_nothing_but_its_confirmation_is_committed(in_world: InWorld, kind: str) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        held = await world.claimed(run_id)
        driven = await handed_on(world, held)
        await request_cancellation(world, run_id)
        before = await world.everything()
        lifecycle = DurableGraphLifecycle(world.store, world.executables)
        with pytest.raises(StaleHeadError) as stale:
            await commit(lifecycle, held, driven)
        assert stale.value.reason == "handoff"
        assert await world.everything() == before
        confirmed = await commit(lifecycle, held, await handed_on(world, held))
        assert (confirmed.end, confirmed.revision.value) == (LifecycleEnd.CANCELLED, 3)
        assert (await world.kinds())[-2:] == ["agent-cancellation-requested", "agent-cancellation-confirmed"]

    in_world(work, graph_of(kind), lease=LONG)


TERMINAL = {
    "finish": "graph-barrier-succeeded",
    "fail": "graph-run-failed",
    "cancel": "agent-cancellation-confirmed",
}


@pytest.mark.parametrize("kind", TERMINAL)
def test_LIF_01_a_run_ends_once_and_nothing_but_a_repetition_succeeds_afterwards(in_world: InWorld, kind: str) -> None:
    async def work(world: DriveWorld) -> None:
        run_id, lifecycle = await world.submitted(), DurableGraphLifecycle(world.store, world.executables)
        if kind == "cancel":
            await request_cancellation(world, run_id)
        overtaken = await world.claimed(run_id)
        dropped = await handed_on(world, overtaken)
        await world.expire_leases()
        held = await world.claimed(run_id)
        driven = await handed_on(world, held)
        ended = await commit(lifecycle, held, driven)
        before, kinds = await world.everything(), await world.kinds()
        assert [each for each in kinds if each in TERMINAL.values()] == kinds[-1:] == [TERMINAL[kind]]
        desired = held.lease.expires_at.plus(LONG)
        refused = (
            (world.claimed(run_id), RunNotRunnableError, "terminal"),
            (world.store.supersede(TENANT, run_id, AttemptId.generate()), RunNotRunnableError, "terminal"),
            (world.store.renew(held.fence, desired=desired), LeaseLostError, "no_lease"),
            (commit(lifecycle, overtaken, dropped), LeaseLostError, "stale_fence"),
        )
        for attempt, error, reason in refused:
            with pytest.raises(error) as refusal:
                await attempt
            assert refusal.value.reason == reason
        with pytest.raises(CancellationConflictError if kind == "cancel" else RunNotRunnableError):
            await request_cancellation(world, run_id)
        tick = await DurableRunSupervisor(world.store, world.executables).tick(TENANT)
        assert (tick.cancellations_requested, tick.runs_failed, tick.timers_fired, tick.errors) == (0, 0, 0, ())
        await world.store.release(held.fence)
        again = await commit(lifecycle, held, driven)
        assert (again.outcome, again.revision) == (MutationOutcome.IDEMPOTENT, ended.revision)
        assert await world.everything() == before

    in_world(work, graph_of(kind), lease=LONG)
