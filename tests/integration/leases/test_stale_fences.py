"""What a worker may still do after another one has taken its run: nothing, and it learns why."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from agentruns.domain.digests import plain_digest
from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import EventId, QuarantineId
from agentruns.domain.outcome import SucceededOutcome
from agentruns.domain.quarantine import Quarantine, QuarantineCause
from agentruns.domain.submission import MutationOutcome
from agentruns.errors import IdConflictError, LeaseLostError
from agentruns.testing.drives import DriveWorld, chain
from agentruns.testing.hand_driven import HandDriven
from agentruns.testing.movable_clock import MovableClock

InWorld = Callable[..., None]
Try = Callable[[DriveWorld, HandDriven], Awaitable[None]]

GRAPH = chain(a=lambda _context: {"by": "second"}, b=lambda context: Finish(context.state))


async def superseded(world: DriveWorld) -> HandDriven:
    """A worker that has started a node, and whose run another one has claimed since."""
    held = await world.claimed(await world.submitted())
    hand = await HandDriven.of(world, held.fence)
    await hand.commit(hand.start())
    await world.expire_leases()
    await world.claimed(held.fence.run_id)
    return hand


async def _renew(world: DriveWorld, hand: HandDriven) -> None:
    await world.store.renew(hand.fence, desired=world.store.clock.stamp().plus(timedelta(minutes=1)))


async def _observe(world: DriveWorld, hand: HandDriven) -> None:
    await world.store.observe(hand.fence)


async def _release(world: DriveWorld, hand: HandDriven) -> None:
    await world.store.release(hand.fence, delay=timedelta(minutes=1))


async def _defer(world: DriveWorld, hand: HandDriven) -> None:
    assert hand.state.head is not None
    gate = world.store.clock.stamp().plus(timedelta(minutes=1))
    await world.store.defer(hand.fence, head=hand.state.head, not_before=gate)


async def _complete(_world: DriveWorld, hand: HandDriven) -> None:
    await hand.committer.commit(hand.complete())


TRIES: list[Try] = [_renew, _observe, _release, _defer, _complete]


@pytest.mark.parametrize("attempt", TRIES)
def test_LEA_10_a_superseded_fence_is_refused_and_changes_no_row(in_world: InWorld, attempt: Try) -> None:
    async def work(world: DriveWorld) -> None:
        hand = await superseded(world)
        before = await world.everything()
        with pytest.raises(LeaseLostError) as lost:
            await attempt(world, hand)
        assert (lost.value.reason, lost.value.run_id) == ("stale_fence", hand.fence.run_id)
        assert await world.everything() == before

    in_world(work, GRAPH)


def quarantine_of(hand: HandDriven) -> Quarantine:
    assert hand.state.head is not None
    return Quarantine(
        quarantine_id=QuarantineId.generate(),
        cause=QuarantineCause.INTEGRITY_FAILURE,
        component="chain",
        evidence_digest=plain_digest(b"chain"),
        expected_head=hand.state.head.digest,
        epoch=hand.fence.epoch,
    )


async def isolate(world: DriveWorld, hand: HandDriven, *, at: HandDriven | None = None) -> str:
    """Ask for the isolation of a hand's run, and give the answer's word."""
    head = (at or hand).state.head
    assert head is not None
    answer = await world.store.run(
        lambda work: work.quarantines.add_claimed(hand.fence, head=head, quarantine=quarantine_of(hand))
    )
    assert answer is not None
    return answer.word


def test_LEA_25_a_superseded_fence_isolates_nothing(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        hand = await superseded(world)
        before = await world.everything()
        assert await isolate(world, hand) == "stale_fence"
        assert await world.everything() == before

    in_world(work, GRAPH)


def test_LEA_25_an_expired_fence_isolates_nothing(in_world: InWorld, clock: MovableClock) -> None:
    async def work(world: DriveWorld) -> None:
        held = await world.claimed(await world.submitted())
        hand = await HandDriven.of(world, held.fence)
        await clock.set(held.lease.expires_at.to_datetime())
        before = await world.everything()
        assert await isolate(world, hand) == "expired"
        assert await world.everything() == before

    in_world(work, GRAPH)


def test_LEA_25_a_finding_made_at_another_head_isolates_nothing(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        held = await world.claimed(await world.submitted())
        hand = await HandDriven.of(world, held.fence)
        reader = await HandDriven.of(world, held.fence)
        await hand.commit(hand.start())
        before = await world.everything()
        assert await isolate(world, hand, at=reader) == "head"
        assert await world.everything() == before

    in_world(work, GRAPH)


def test_LEA_24_an_isolation_ends_the_lease_and_leaves_head_epoch_and_status(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        held = await world.claimed(await world.submitted())
        hand = await HandDriven.of(world, held.fence)
        (before,) = await world.rows("SELECT * FROM agentruns.runs")
        assert await isolate(world, hand) == "done"
        (after,) = await world.rows("SELECT * FROM agentruns.runs")
        lease = {f"lease_{name}" for name in ("attempt_id", "acquired_at", "renewed_at", "expires_at")}
        moved = {name for name in before._fields if getattr(before, name) != getattr(after, name)}
        assert moved == lease | {"quarantined_at"}
        assert after.lease_attempt_id is None
        (record,) = await world.rows("SELECT * FROM agentruns.run_quarantines")
        assert (record.quarantined_at, record.cause_kind, record.component) == (
            after.quarantined_at,
            "integrity_failure",
            "chain",
        )
        assert record.epoch == 1
        # The first record wins; giving back what is gone already is a success.
        assert await isolate(world, hand) == "quarantined"
        await world.store.release(hand.fence)

    in_world(work, GRAPH)


def test_B3_a_worker_that_stalled_finds_its_run_finished_by_another(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        held = await world.claimed(await world.submitted())
        hand = await HandDriven.of(world, held.fence)
        await hand.commit(hand.start())
        await world.expire_leases()
        await world.driven(held.fence.run_id)
        before = await world.everything()
        for attempt in (_renew, _observe, _release, _complete):
            with pytest.raises(LeaseLostError) as lost:
                await attempt(world, hand)
            assert lost.value.reason == "stale_fence"
        assert await isolate(world, hand) == "stale_fence"
        assert await world.everything() == before
        outcome = (await world.loaded(held.fence.run_id)).outcome
        assert isinstance(outcome, SucceededOutcome)
        assert outcome.result.output.value == {"by": "second"}
        # Superseded, not failed: the first attempt stays a start without an end.
        assert await world.attempts() == [("a", 1, 1), ("a", 2, 2), ("b", 1, 2)]
        results = await world.rows("SELECT node_id, attempt FROM agentruns.node_results ORDER BY sequence")
        assert [tuple(row) for row in results] == [("a", 2), ("b", 1)]

    in_world(work, GRAPH)


def test_B11_a_start_of_the_claim_s_own_lease_commits_and_one_after_a_takeover_does_not(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        held = await world.claimed(await world.submitted())
        hand = await HandDriven.of(world, held.fence)
        assert (await hand.committer.commit(hand.start())).outcome is MutationOutcome.COMMITTED
        second = await world.claimed(await world.submitted())
        late = await HandDriven.of(world, second.fence)
        await world.expire_leases()
        await world.claimed(second.fence.run_id)
        with pytest.raises(LeaseLostError) as lost:
            await late.committer.commit(late.start())
        assert lost.value.reason == "stale_fence"

    in_world(work, GRAPH)


def test_LEA_10_a_superseded_fence_finds_what_it_had_committed_itself(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        held = await world.claimed(await world.submitted())
        hand = await HandDriven.of(world, held.fence)
        plan = hand.start()
        first = await hand.committer.commit(plan)
        await world.expire_leases()
        await world.driven(held.fence.run_id)
        before = await world.everything()
        again = await hand.committer.commit(plan)
        assert (first.outcome, again.outcome) == (MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT)
        assert again.draft.events == first.draft.events
        assert again.held is None
        assert await world.everything() == before

    in_world(work, GRAPH)


def test_LEA_22_an_id_that_stands_for_other_content_is_a_conflict(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        held = await world.claimed(await world.submitted())
        hand = await HandDriven.of(world, held.fence)
        event_id = EventId.generate()
        other = hand.start(event_id=event_id)
        await hand.committer.commit(hand.start(event_id=event_id))
        before = await world.everything()
        with pytest.raises(IdConflictError) as conflict:
            await hand.committer.commit(other)
        assert (conflict.value.kind, conflict.value.id) == ("event", event_id)
        assert await world.everything() == before

    in_world(work, GRAPH)
