"""Whoever claims, takes over or gives back, and in whatever order: one fence owns a run, and no epoch is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from attrs import define, field

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.lease import RunFence
from agentruns.domain.ledger.event import JournalHead
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import ContentionError, LeaseLostError, NotYetAvailableError, RefusedError
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.replay import RunReader
from agentruns.testing.drives import TENANT, DriveWorld, chain
from agentruns.testing.movable_clock import MovableClock

InWorld = Callable[..., None]

LEASE = timedelta(seconds=2)
STEPS = 30
GRAPH = chain(a=lambda _context: Finish({}))
#: Long past: a deferral to it changes nothing, and is answered only to the fence that owns the run.
PAST = Timestamp.parse("2020-01-02T03:04:05.000006Z")


@define
class Crowd:
    """Workers that do with one run whatever comes to their mind, on a clock that stands still meanwhile.

    Attributes:
        fences: all that were ever answered.
    """

    world: DriveWorld
    clock: MovableClock
    run_id: RunId
    head: JournalHead
    chance: random.Random
    fences: list[RunFence] = field(factory=list)

    async def step(self) -> None:
        """Let something happen."""
        await self.chance.choice([self.claim, self.claim, self.lose_answer, self.supersede, self.renew, self.release])()
        await self.clock.advance(self.chance.choice([timedelta(0), LEASE / 3, LEASE]))

    async def claim(self) -> None:
        """Let several claim at once: one of them has the lease, or somebody had it before."""
        claims = [self.world.claimed(self.run_id) for _ in range(self.chance.randint(1, 4))]
        answers = await asyncio.gather(*claims, return_exceptions=True)
        held = [each for each in answers if isinstance(each, HeldLease)]
        assert len(held) <= 1
        refused = [each for each in answers if isinstance(each, NotYetAvailableError | ContentionError)]
        assert len(held) + len(refused) == len(answers)
        self.fences.extend(each.fence for each in held)

    async def lose_answer(self) -> None:
        """Claim, hear nothing, and ask again with the same id."""
        attempt_id = AttemptId.generate()
        with suppress(NotYetAvailableError):
            await self.world.store.claim(TENANT, self.run_id, attempt_id)
            found = await self.world.store.claim(TENANT, self.run_id, attempt_id)
            self.fences.append(found.fence)

    async def supersede(self) -> None:
        """Let two take the run over, one from the other."""
        takers = [self.world.store.supersede(TENANT, self.run_id, AttemptId.generate()) for _ in range(2)]
        answers = await asyncio.gather(*takers, return_exceptions=True)
        self.fences.extend(each.fence for each in answers if isinstance(each, HeldLease))

    async def renew(self) -> None:
        """Let some owner, former ones too, ask for more time."""
        with suppress(LeaseLostError, RefusedError):
            await self.world.store.renew(
                self._any(), desired=Timestamp.from_datetime(await self.clock.now()).plus(LEASE)
            )

    async def release(self) -> None:
        """Let some owner, former ones too, give its lease back."""
        with suppress(LeaseLostError):
            await self.world.store.release(self._any(), delay=self.chance.choice([None, LEASE / 2]))

    async def owners(self) -> list[RunFence]:
        """Find the fences that a worker's statement accepts now."""
        return [fence for fence in self.fences if await self._owns(fence)]

    async def _owns(self, fence: RunFence) -> bool:
        try:
            assert not await self.world.store.defer(fence, head=self.head, not_before=PAST)
        except LeaseLostError:
            return False
        return True

    def _any(self) -> RunFence:
        return self.chance.choice(self.fences)


@pytest.mark.parametrize("seed", range(3))
def test_LEA_01_LEA_03_one_fence_at_most_owns_a_run_and_every_epoch_was_answered_once(
    in_world: InWorld, clock: MovableClock, seed: int
) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await clock.advance(timedelta(0))
        replayed = await RunReader(world.store, world.executables).read(TENANT, run_id)
        assert replayed.state.head is not None
        crowd = Crowd(world, clock, run_id, replayed.state.head, random.Random(seed))
        await crowd.claim()
        owned = 0
        for _ in range(STEPS):
            await crowd.step()
            owners = await crowd.owners()
            assert len(owners) <= 1
            # Whoever owns it has the last epoch.
            assert owners in ([], [max(crowd.fences, key=lambda fence: fence.epoch.value)])
            owned += len(owners)
        (row,) = await world.rows("SELECT fencing_epoch FROM agentruns.runs")
        assert sorted(fence.epoch.value for fence in crowd.fences) == list(range(1, row.fencing_epoch + 1))
        assert len({fence.attempt_id for fence in crowd.fences}) == len(crowd.fences)
        # A walk in which nobody owned the run would have shown nothing.
        assert owned

    in_world(work, GRAPH, lease=LEASE)


#: What makes a run claimable, written down apart from the statement: each member with the values that permit a claim.
STATUSES = ("active", "cancellation_requested")
LEASES = {
    "none": "lease_attempt_id = NULL, lease_acquired_at = NULL, lease_renewed_at = NULL, lease_expires_at = NULL",
    "ended": "lease_attempt_id = run_id, lease_acquired_at = :now - interval '2 s', lease_renewed_at = :now - interval"
    " '1 s', lease_expires_at = :now",
}
GATES = {"none": "NULL", "passed": ":now"}
LIMITS = (None, 1)
LAST_BUT_ONE = 2**63 - 2
#: One condition each that does not hold.
REFUSING = {
    "waiting": "status = 'waiting', scheduler_ready_at = NULL",
    "terminal": "status = 'failed', scheduler_ready_at = NULL",
    "isolated": "quarantined_at = :now",
    "no checkpoint": "superstep = NULL, checkpoint_digest = NULL, scheduler_ready_at = NULL",
    "leased": LEASES["ended"].replace("lease_expires_at = :now", "lease_expires_at = :now + interval '1 us'"),
    "gate": "scheduler_not_before = :now + interval '1 us'",
    "exhausted": f"fencing_epoch = {2**63 - 1}",
}


async def _claims(world: DriveWorld, run_id: RunId, *, by_name: bool) -> bool:
    """Try a claim, and say whether it was one."""
    if not by_name:
        ids, digests = [AttemptId.generate()], [world.bundle.graph.definition_digest]
        return len(await world.store.claim_ready(TENANT, 1, attempt_ids=ids, graph_digests=digests)) == 1
    try:
        await world.claimed(run_id)
    except RefusedError:
        return False
    return True


@pytest.mark.parametrize("by_name", [True, False])
def test_LEA_11_a_run_is_claimable_exactly_when_nothing_stands_against_it(
    in_world: InWorld, clock: MovableClock, *, by_name: bool
) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await clock.advance(timedelta(seconds=10))
        now = await clock.now()
        (fresh,) = await world.rows("SELECT * FROM agentruns.runs")

        async def put(*changes: str) -> None:
            """Make the row as it was at first, but for some changes."""
            at_first = (
                "status = 'active', fencing_epoch = 1, scheduler_ready_at = :ready, scheduler_not_before = NULL,"
                f" quarantined_at = NULL, superstep = 0, checkpoint_digest = :digest, {LEASES['none']}"
            )
            values: dict[str, Any] = {"ready": fresh.scheduler_ready_at, "digest": fresh.checkpoint_digest, "now": now}
            for change in (at_first, *changes):
                named = {name: value for name, value in values.items() if f":{name}" in change}
                typed = change.replace(":now", "cast(:now AS timestamptz)")
                await world.rows(f"UPDATE agentruns.runs SET {typed}", **named)  # noqa: S608  # stands above

        for status, lease, gate, limit in product(STATUSES, LEASES, GATES, LIMITS):
            if (lease, gate) == ("ended", "passed"):
                continue  # no lease stands beside a gate
            await world.store.set_tenant_limit(TENANT, limit)
            changes = f"status = '{status}', fencing_epoch = {LAST_BUT_ONE}, {LEASES[lease]}"
            await put(f"{changes}, scheduler_not_before = {GATES[gate]}")
            assert await _claims(world, run_id, by_name=by_name), (status, lease, gate, limit)
        await world.store.set_tenant_limit(TENANT, None)
        for what, change in REFUSING.items():
            await put(change)
            assert not await _claims(world, run_id, by_name=by_name), what
        await put()
        assert await _claims(world, run_id, by_name=by_name)

    in_world(work, GRAPH, lease=LEASE)
