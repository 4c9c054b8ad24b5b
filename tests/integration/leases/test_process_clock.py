"""Only the database's clock counts: whatever the clock of a process shows, leases, gates and drives are the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from agentruns.domain import ids
from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import AttemptId
from agentruns.errors import LeaseLostError, NotYetAvailableError, RefusedError
from agentruns.runtime.held_lease import HeldLease
from agentruns.testing.drives import TENANT, DriveWorld, chain
from agentruns.testing.hand_driven import HandDriven
from agentruns.testing.movable_clock import MovableClock

InWorld = Callable[..., None]

LEASE = timedelta(seconds=30)
YEARS = timedelta(days=3650)


async def life_of_a_lease(world: DriveWorld, clock: MovableClock) -> list[Any]:
    """Claim, keep, lose, defer and drive a run, and say what each step came to beside the database's clock."""
    seen: list[Any] = []
    began = await clock.now()

    def note(answer: HeldLease | RefusedError | datetime | str) -> None:
        if isinstance(answer, HeldLease):
            instants = (answer.lease.acquired_at, answer.lease.renewed_at, answer.lease.expires_at)
            seen.append([each.to_datetime() - began for each in instants])
        else:
            seen.append(answer.reason if isinstance(answer, RefusedError) else answer)

    async def refused(attempt: Any, error: type[RefusedError]) -> None:
        with pytest.raises(error) as refusal:
            await attempt
        note(refusal.value)

    store, run_id = world.store, await world.submitted()
    held = await world.claimed(run_id)
    note(held)
    await refused(world.claimed(run_id), NotYetAvailableError)
    await clock.advance(LEASE / 2)
    note(await store.renew(held.fence, desired=held.lease.expires_at.plus(LEASE)))
    await refused(store.renew(held.fence, desired=held.lease.expires_at.plus(timedelta(hours=1))), RefusedError)
    await clock.advance(2 * LEASE)
    await refused(store.observe(held.fence), LeaseLostError)
    await store.release(held.fence, delay=LEASE)
    await refused(world.claimed(run_id), NotYetAvailableError)
    await clock.advance(LEASE)
    hand = await HandDriven.of(world, (await world.claimed(run_id)).fence)
    assert hand.state.head is not None
    gate = store.clock.stamp().plus(LEASE)
    note(str(await store.defer(hand.fence, head=hand.state.head, not_before=gate)))
    await clock.set(gate.to_datetime())
    digests = [world.bundle.graph.definition_digest]
    (ready,) = await store.claim_ready(TENANT, 1, attempt_ids=[AttemptId.generate()], graph_digests=digests)
    note(ready)
    taken = await store.supersede(TENANT, run_id, AttemptId.generate(), expected_epoch=ready.fence.epoch)
    note(taken)
    note((await world.loop.run(taken, world.shutdown)).outcome.value)
    (row,) = await world.rows(
        "SELECT max(recorded_at) AS last FROM agentruns.run_events WHERE run_id = :id", id=run_id.text
    )
    note(str(row.last - began))
    return seen


def shift(monkeypatch: pytest.MonkeyPatch, by: timedelta) -> None:
    """Set the clock of this process, and of the ids that it makes."""
    real = time.time

    def made() -> UUID:
        millis, chance = int((real() + by.total_seconds()) * 1000), uuid4().hex
        return UUID(f"{millis:012x}7{chance[:3]}8{chance[3:18]}")

    monkeypatch.setattr(time, "time", lambda: real() + by.total_seconds())
    monkeypatch.setattr(time, "time_ns", lambda: int((real() + by.total_seconds()) * 10**9))
    monkeypatch.setattr(ids, "uuid7", made)


def test_LEA_28_no_clock_of_a_process_changes_an_outcome(in_world: InWorld, clock: MovableClock) -> None:
    async def work(world: DriveWorld) -> None:
        # What the process adds to the database's instants is the time that passes; here none does.
        world.store.clock.monotonic = lambda: 0.0
        await clock.advance(timedelta(0))
        lives = []
        for by in (timedelta(0), YEARS, -YEARS):
            with pytest.MonkeyPatch.context() as monkeypatch:
                shift(monkeypatch, by)
                lives.append(await life_of_a_lease(world, clock))
        assert lives[0] == lives[1] == lives[2]
        reasons = [each for each in lives[0] if isinstance(each, str)]
        assert reasons[:6] == ["leased", "lease_horizon", "expired", "deferred", "True", "succeeded"]

    in_world(work, chain(a=lambda _context: Finish({})), lease=LEASE)
