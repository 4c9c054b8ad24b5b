"""Ask for the end of a run while it is driven."""

from __future__ import annotations

from agentruns.domain.ids import EventId, RunId
from agentruns.runtime.control import AgentRunMutation
from agentruns.testing.drives import TENANT, DriveWorld
from agentruns.testing.samples import cancellation


async def request_cancellation(world: DriveWorld, run_id: RunId) -> AgentRunMutation:
    """Request it as an event of its own, for the sample reason."""
    return await world.runs.request_cancellation(TENANT, run_id, event_id=EventId.generate(), failure=cancellation())
