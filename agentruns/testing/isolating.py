"""Damage a run's record until a drive isolates the run, and put it back as it was."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from agentruns.domain.ids import QuarantineId, RunId
from agentruns.errors import RunQuarantinedError
from agentruns.runtime.agent_loop import DurableAgentLoop
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.testing.drives import DriveWorld

#: Flips one bit of an event, and a second time puts it back.
FLIP: Final = (
    "UPDATE agentruns.run_events SET data = set_byte(data, 5, get_byte(data, 5) # 1)"
    " WHERE run_id = cast(:run_id AS uuid) AND sequence = :sequence"
)


@frozen(kw_only=True)
class IsolatedRun:
    """Name a run and the record that isolates it."""

    run_id: RunId
    quarantine_id: QuarantineId


async def flip(world: DriveWorld, run_id: RunId, *, sequence: int = 1) -> None:
    """Flip one bit of one event, or put it back."""
    await world.rows(FLIP, run_id=run_id.text, sequence=sequence)


async def isolate(world: DriveWorld, run_id: RunId) -> IsolatedRun:
    """Damage a run that nobody holds, and let a worker find it that has never read it. The damage stays.

    Raises:
        AssertionError: the drive has not found it.
    """
    options = DurableGraphDriverOptions(lease_renewal_interval=world.store.options.lease_duration / 4)
    loop = DurableAgentLoop(world.store, world.executables, driver_options=options)
    held = await world.claimed(run_id)
    await flip(world, run_id)
    try:
        await loop.run(held, world.shutdown)
    except RunQuarantinedError as found:
        return IsolatedRun(run_id=run_id, quarantine_id=QuarantineId(str(found.quarantine_id)))
    raise AssertionError("the drive has not isolated the run")
