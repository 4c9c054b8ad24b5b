"""Ten thousand times a worker goes on whose run another one has taken: nothing happens, and it learns why."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import pytest
from attrs import frozen

from agentruns.domain.digests import plain_digest
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import CheckpointId, EventId, QuarantineId, RunId
from agentruns.domain.ledger.superstep import BarrierIds, SuperstepDraft
from agentruns.domain.quarantine import Quarantine, QuarantineCause
from agentruns.domain.waits import NodeWait
from agentruns.errors import LeaseLostError
from agentruns.runtime.committer import CommitPlan, RunCommitter
from agentruns.runtime.driver.driver import DurableGraphDriver, GraphDriveResult
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.lease_keeper import LeaseKeeper
from agentruns.runtime.lifecycle import DurableGraphLifecycle
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import DriveWorld, builder
from agentruns.testing.hand_driven import HandDriven

pytestmark = pytest.mark.slow

InWorld = Callable[..., None]

RUNS: Final = 20
ROUNDS: Final = 42
LONG: Final = timedelta(minutes=1)
MINUTE: Final = timedelta(minutes=1)
OPTIONS: Final = DurableGraphDriverOptions(lease_renewal_interval=timedelta(seconds=20))


@frozen
class Owner:
    """A worker that planned something under a lease which it has lost since."""

    hand: HandDriven
    driven: GraphDriveResult | None


Try = Callable[["Workshop", Owner], Awaitable[object]]


@frozen
class Workshop:
    """What all owners share, so that their tries meet in the lanes."""

    world: DriveWorld
    committer: RunCommitter
    lifecycle: DurableGraphLifecycle
    stages: dict[RunId, str]

    @classmethod
    def of(cls, world: DriveWorld, stages: dict[RunId, str]) -> Workshop:
        committer = RunCommitter(world.store)
        lifecycle = DurableGraphLifecycle(world.store, world.executables, committer=committer)
        return cls(world, committer, lifecycle, stages)

    async def owner(self, stage: str) -> Owner:
        """Bring a run to a stage of its life, under a lease of its own."""
        run_id = await self.world.submitted()
        self.stages[run_id] = stage
        if stage == "cancel":
            await request_cancellation(self.world, run_id)
        held = await self.world.claimed(run_id)
        driven = await self._driven(held) if stage in _HANDED_ON else None
        hand = await HandDriven.of(self.world, held.fence, committer=self.committer)
        if stage in ("started", "completed"):
            await hand.commit(hand.start())
        if stage == "completed":
            await hand.commit(hand.complete())
        return Owner(hand, driven)

    async def _driven(self, held: HeldLease) -> GraphDriveResult:
        driver = DurableGraphDriver(self.world.store, self.world.executables, OPTIONS)
        async with LeaseKeeper(self.world.store, held, interval=OPTIONS.lease_renewal_interval) as keeper:
            return await driver.drive(keeper, self.world.shutdown)


# --- what is tried ---------------------------------------------------------------------------------------------------


async def _renew(shop: Workshop, owner: Owner) -> object:
    return await shop.world.store.renew(owner.hand.fence, desired=shop.world.store.clock.stamp().plus(MINUTE))


async def _observe(shop: Workshop, owner: Owner) -> object:
    return await shop.world.store.observe(owner.hand.fence)


async def _release(shop: Workshop, owner: Owner) -> object:
    await shop.world.store.release(owner.hand.fence)
    return None


async def _defer(shop: Workshop, owner: Owner) -> object:
    assert owner.hand.state.head is not None
    gate = shop.world.store.clock.stamp().plus(MINUTE)
    return await shop.world.store.defer(owner.hand.fence, head=owner.hand.state.head, not_before=gate)


async def _quarantine(shop: Workshop, owner: Owner) -> object:
    head, fence = owner.hand.state.head, owner.hand.fence
    assert head is not None
    quarantine = Quarantine(
        quarantine_id=QuarantineId.generate(),
        cause=QuarantineCause.INTEGRITY_FAILURE,
        component="chain",
        evidence_digest=plain_digest(b"chain"),
        expected_head=head.digest,
        epoch=fence.epoch,
    )
    answer = await shop.world.store.run(
        lambda work: work.quarantines.add_claimed(fence, head=head, quarantine=quarantine)
    )
    assert answer is not None
    # The driver makes this error of the word.
    raise LeaseLostError(tenant_id=fence.tenant_id, run_id=fence.run_id, reason=answer.word)


async def _start(shop: Workshop, owner: Owner) -> object:
    return await shop.committer.commit(owner.hand.start())


async def _complete(shop: Workshop, owner: Owner) -> object:
    return await shop.committer.commit(owner.hand.complete())


async def _barrier(shop: Workshop, owner: Owner) -> object:
    hand = owner.hand
    assert hand.state.head is not None
    draft = SuperstepDraft(
        state=hand.state,
        graph=hand.graph,
        epoch=hand.fence.epoch,
        barrier=BarrierIds(event_id=EventId.generate(), checkpoint_id=CheckpointId.generate()),
        plan=hand.state.barrier(hand.graph),
    )
    return await shop.committer.commit(CommitPlan(fence=hand.fence, head=hand.state.head, build=draft.build, size=0))


async def _end_step(shop: Workshop, owner: Owner) -> object:
    driven: Any = owner.driven
    return await shop.lifecycle.commit_barrier(owner.hand.fence, driven.outcome, driven.intent)


async def _fail(shop: Workshop, owner: Owner) -> object:
    driven: Any = owner.driven
    return await shop.lifecycle.resolve_blocked(owner.hand.fence, driven.outcome)


async def _confirm(shop: Workshop, owner: Owner) -> object:
    driven: Any = owner.driven
    return await shop.lifecycle.confirm_cancellation(owner.hand.fence, driven.outcome)


#: By the stage that a run must have reached for it.
TRIES: Final[Mapping[str, Mapping[str, Try]]] = {
    "ready": {
        "renew": _renew,
        "observe": _observe,
        "release": _release,
        "defer": _defer,
        "quarantine": _quarantine,
        "start": _start,
    },
    "started": {"complete": _complete},
    "completed": {"barrier": _barrier},
    "wait": {"wait": _end_step},
    "finish": {"finish": _end_step},
    "fail": {"fail": _fail},
    "cancel": {"confirm": _confirm},
}
_HANDED_ON: Final = ("wait", "finish", "fail", "cancel")


def graph_of(stages: Mapping[RunId, str]) -> GraphBundle:
    """Build a graph whose first node leads a run to its stage."""
    graph = builder()

    @graph.node(entry=True, then="b", wait_to="b", terminal=True)
    def a(context: Any) -> Any:
        stage = stages[context.run_id]
        if stage == "fail":
            raise ValueError
        return Suspend(NodeWait.timer(due_in=MINUTE)) if stage == "wait" else Finish({})

    graph.node(name="b", terminal=True)(lambda _context: Finish({}))
    return graph.build()


async def outcomes(shop: Workshop, owners: Mapping[str, Sequence[Owner]]) -> Counter[tuple[str, str]]:
    """Try everything with all owners at once, and count how each kind ended."""

    async def tried(kind: str, attempt: Try, owner: Owner) -> tuple[str, str]:
        try:
            await attempt(shop, owner)
        except LeaseLostError as lost:
            return kind, lost.reason
        return kind, "done"

    tries = [
        tried(kind, attempt, owner)
        for stage, kinds in TRIES.items()
        for kind, attempt in kinds.items()
        for owner in owners[stage]
    ]
    return Counter(await asyncio.gather(*tries))


async def journal(world: DriveWorld) -> list[tuple[str, str]]:
    """Read every row but those of the runs themselves, whose lease and epoch a takeover moves."""
    return [row for row in await world.everything() if row[0] != "runs"]


def test_LEA_10_ten_thousand_stale_fences_change_nothing(in_world: InWorld) -> None:
    stages: dict[RunId, str] = {}

    async def work(world: DriveWorld) -> None:
        shop = Workshop.of(world, stages)
        owners = {stage: [await shop.owner(stage) for _ in range(RUNS)] for stage in TRIES}
        every = [owner.hand.fence.run_id for each in owners.values() for owner in each]
        written = await journal(world)

        # The lease is over, and somebody else takes the run while its owner still tries: either is in time to see it.
        await world.expire_leases()
        raced = asyncio.create_task(outcomes(shop, owners))
        await asyncio.gather(*(world.claimed(run_id) for run_id in every))
        # Only to give back is permitted until somebody has taken over.
        assert {reason for kind, reason in await raced if kind != "release"} <= {"expired", "stale_fence"}
        assert await journal(world) == written

        # From now on the fence is stale, whatever is tried and however often.
        before = await world.everything()
        found: Counter[tuple[str, str]] = Counter()
        for _ in range(ROUNDS):
            found += await outcomes(shop, owners)
        kinds = [kind for tries in TRIES.values() for kind in tries]
        assert found == {(kind, "stale_fence"): RUNS * ROUNDS for kind in kinds}
        assert found.total() >= 10_000
        assert await world.everything() == before

    in_world(work, graph_of(stages), lease=LONG)
