"""A run ends in the commit of its last completion, where nobody else has a say in what it ends with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from attrs import define, field

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import RunId
from agentruns.domain.ledger.state import RunState
from agentruns.domain.outcome import SucceededOutcome
from agentruns.domain.status import RunStatus
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.waits import NodeWait
from agentruns.errors import EvidenceUnavailableError, StaleHeadError
from agentruns.runtime.agent_loop import AgentLoopOutcome, DurableAgentLoop
from agentruns.runtime.driver.ending import commit_superstep
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.runtime.evidence import LedgerEvidence
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import DriveWorld, builder, chain
from agentruns.testing.faults import WireProxy

InWorld = Callable[..., None]
Behind = Callable[..., None]

LONG = timedelta(minutes=1)
ADMITTED = "agent-admitted"
STARTED = "graph-node-attempt-started"
SUCCEEDED = "graph-node-attempt-succeeded"
ENDED = "graph-barrier-succeeded"
ONE_NODE = [ADMITTED, STARTED, SUCCEEDED, ENDED]


def finishing(output: dict[str, Any] | None = None) -> Any:
    return chain(a=lambda _context: Finish(output or {"sum": 3}))


@define
class NotedEvidence(LedgerEvidence):
    """Say what the fold says, and note what was stored when it was asked."""

    states: list[RunState] = field(factory=list)

    def terminal(self, state: RunState, output: BoundedJson) -> Any:
        self.states.append(state)
        return super().terminal(state, output)


def loop_with(world: DriveWorld, *, evidence: LedgerEvidence | None = None, **options: Any) -> DurableAgentLoop:
    chosen = DurableGraphDriverOptions(lease_renewal_interval=LONG / 4, **options)
    return DurableAgentLoop(
        world.store, world.executables, driver_options=chosen, evidence=evidence, error_release_delay=timedelta(0)
    )


async def output_of(world: DriveWorld, run_id: RunId) -> Any:
    outcome = (await world.loaded(run_id)).outcome
    assert isinstance(outcome, SucceededOutcome)
    return outcome.result.output.value


def test_the_last_completion_and_the_end_are_one_commit_of_two_events(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        result = await world.driven(run_id)
        assert result.outcome is AgentLoopOutcome.SUCCEEDED
        assert (await world.kinds(), await world.commits()) == (ONE_NODE, [1, 1, 2])
        (row,) = await world.rows(
            "SELECT status, revision, head_sequence, lease_attempt_id, scheduler_not_before FROM agentruns.runs"
        )
        assert tuple(row) == ("succeeded", 2, 4, None, None)
        assert await output_of(world, run_id) == {"sum": 3}
        assert (result.report.commits, result.report.durable_events, result.report.barriers_committed) == (2, 3, 1)

    in_world(work, finishing(), lease=LONG)


def test_LIF_04_evidence_of_ones_own_is_asked_once_the_completion_is_stored(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id, evidence = await world.submitted(), NotedEvidence()
        loop = loop_with(world, evidence=evidence)
        result = await loop.run(await world.claimed(run_id), world.shutdown)
        assert result.outcome is AgentLoopOutcome.SUCCEEDED
        assert (await world.kinds(), await world.commits()) == (ONE_NODE, [1, 1, 1, 1])
        (state,) = evidence.states
        stored = await world.rows("SELECT digest FROM agentruns.run_events ORDER BY sequence")
        assert state.head is not None
        assert (state.head.sequence.value, state.head.digest.raw) == (3, stored[2].digest)

    in_world(work, finishing(), lease=LONG)


def test_DRV_04_an_end_that_no_event_is_left_for_waits_for_the_next_drive(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        short = loop_with(world, maximum_durable_events=2)
        result = await short.run(await world.claimed(run_id), world.shutdown)
        assert (result.outcome, result.report.durable_events) == (AgentLoopOutcome.YIELDED, 2)
        assert await world.kinds() == ONE_NODE[:-1]
        assert (await short.run(await world.claimed(run_id), world.shutdown)).outcome is AgentLoopOutcome.SUCCEEDED
        assert (await world.kinds(), await world.commits()) == (ONE_NODE, [1, 1, 1, 1])

        other = await world.submitted()
        exact = loop_with(world, maximum_durable_events=3)
        result = await exact.run(await world.claimed(other), world.shutdown)
        assert (result.outcome, result.report.durable_events) == (AgentLoopOutcome.SUCCEEDED, 3)

    in_world(work, finishing(), lease=LONG)


def test_a_result_that_cannot_stand_leaves_its_completion_and_fails_the_run_next(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted(limits=BudgetLimits.of(output_bytes=10))
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.FAILED
        assert await world.kinds() == [ADMITTED, STARTED, SUCCEEDED, "graph-run-failed"]
        assert await world.commits() == [1, 1, 1, 1]

    in_world(work, finishing({"text": "longer than ten bytes"}), lease=LONG)


def test_evidence_that_is_not_there_leaves_the_completion_and_the_run_active(
    in_world: InWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_evidence: LedgerEvidence, state: RunState, _output: BoundedJson) -> Any:
        raise EvidenceUnavailableError(tenant_id=state.tenant_id, run_id=state.run_id, reason="usage")

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        with monkeypatch.context() as patched:
            patched.setattr(LedgerEvidence, "terminal", away)
            with pytest.raises(EvidenceUnavailableError):
                await world.driven(run_id)
        assert (await world.loaded(run_id)).status is RunStatus.ACTIVE
        assert await world.kinds() == ONE_NODE[:-1]
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
        assert (await world.kinds(), await world.commits()) == (ONE_NODE, [1, 1, 1, 1])

    in_world(work, finishing(), lease=LONG)


def test_a_wait_is_a_commit_of_its_own(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        assert (await world.driven(await world.submitted())).outcome is AgentLoopOutcome.WAITING
        assert (await world.commits())[-2:] == [1, 1]

    graph = builder()
    wait = NodeWait.timer(due_in=timedelta(hours=1))
    graph.node(name="a", entry=True, wait_to="b")(lambda _context: Suspend(wait))
    graph.node(name="b", terminal=True)(lambda _context: Finish({}))
    in_world(work, graph.build(), lease=LONG)


def test_LIF_05_a_request_that_comes_first_drops_completion_and_end_together(in_world: InWorld) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def a(_context: Any) -> Finish:
        begun.set()
        await go_on.wait()
        return Finish({"sum": 3})

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        driving = asyncio.create_task(world.driven(run_id))
        await begun.wait()
        await request_cancellation(world, run_id)
        go_on.set()
        result = await driving
        assert result.outcome is AgentLoopOutcome.CANCELLATION_CONFIRMED
        assert await world.kinds() == [
            ADMITTED,
            STARTED,
            "agent-cancellation-requested",
            "agent-cancellation-confirmed",
        ]
        assert (await world.loaded(run_id)).status is RunStatus.CANCELLED

    # So rarely does the drive look for a request that its commit meets it first.
    in_world(work, chain(a=a), lease=LONG, cancellation_poll_interval=timedelta(seconds=30))


@pytest.mark.parametrize("needle", [SUCCEEDED.encode(), ENDED.encode()])
def test_DRV_07_an_end_whose_answer_was_lost_is_found_and_the_drive_is_over(
    behind_a_wire: Behind, needle: bytes
) -> None:
    calls: list[str] = []

    def a(_context: Any) -> Finish:
        calls.append("a")
        return Finish({"sum": 3})

    async def work(world: DriveWorld, proxy: WireProxy) -> None:
        run_id = await world.submitted()
        proxy.lose_answer(needle)
        result = await world.driven(run_id)
        assert (result.outcome, proxy.lost, calls) == (AgentLoopOutcome.SUCCEEDED, 1, ["a"])
        assert (await world.kinds(), await world.commits()) == (ONE_NODE, [1, 1, 2])
        assert await output_of(world, run_id) == {"sum": 3}

    behind_a_wire(work, chain(a=a), lease=LONG)


# --- the lease of a run that may end ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("may_end", "status", "outcome", "told"),
    [
        (True, RunStatus.SUCCEEDED, MutationOutcome.COMMITTED, ["let_go"]),
        (True, RunStatus.SUCCEEDED, MutationOutcome.IDEMPOTENT, ["let_go"]),
        (True, RunStatus.SUCCEEDED, None, ["let_go", "keep"]),
        (True, RunStatus.ACTIVE, MutationOutcome.COMMITTED, ["let_go", "keep"]),
        (False, RunStatus.ACTIVE, MutationOutcome.COMMITTED, []),
        (True, None, None, ["let_go", "keep"]),
    ],
    ids=["ended", "found ended", "planned anew", "has not ended", "cannot end", "stale"],
)
def test_nothing_renews_the_lease_that_a_commit_clears(
    run: Callable[..., Any],
    *,
    may_end: bool,
    status: RunStatus | None,
    outcome: MutationOutcome | None,
    told: list[str],
) -> None:
    heard: list[str] = []

    async def commit(_plan: Any) -> Any:
        if status is None:
            raise StaleHeadError(tenant_id=None, run_id=None, reason="journal")
        return SimpleNamespace(outcome=outcome, draft=SimpleNamespace(state=SimpleNamespace(status=status)))

    committer, keeper = (
        cast("Any", SimpleNamespace(commit=commit)),
        cast("Any", SimpleNamespace(let_go=lambda: heard.append("let_go"), keep=lambda: heard.append("keep"))),
    )

    async def work() -> None:
        try:
            await commit_superstep(committer, cast("Any", None), keeper, may_end=may_end)
        except StaleHeadError:
            assert status is None

    run(work())
    assert heard == told
