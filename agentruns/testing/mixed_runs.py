"""Runs of one graph brought into every state that a run can be in, by the operations that bring real ones there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from attrs import evolve

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.graph.returns import Continue, Finish, Suspend
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.numbers import DurationMillis
from agentruns.domain.payload import JournalPayload
from agentruns.domain.retry_advice import SafeAfter
from agentruns.domain.scalars import JournalEventKind
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.waits import NodeWait
from agentruns.errors import NodeFailedError
from agentruns.orm import Base
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.testing import samples
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import TENANT, DriveWorld, builder
from agentruns.testing.hand_driven import HandDriven
from agentruns.testing.isolating import flip, isolate

_PAST: Final = Timestamp.parse("2020-01-02T03:04:05.000006Z")
_RUN_TABLES: Final = [
    table.name for table in Base.metadata.tables.values() if {"tenant_id", "run_id"} <= set(table.c.keys())
]


def mixed_graph() -> GraphBundle:
    """Build a graph of three nodes whose first one does what the initial state says."""
    graph = builder()

    async def decide(context: Any) -> Continue | Suspend:
        what = context.state.get("what")
        if what == "fail":
            raise NodeFailedError(failure=samples.failure())
        if what == "retry" and context.attempt == 1:
            raise NodeFailedError(failure=samples.failure(retry_advice=SafeAfter(delay=DurationMillis(0))))
        if what == "wait":
            request = JournalPayload(
                schema=samples.schema_reference("evidence"), kind=JournalEventKind("question"), data=BoundedJson.of({})
            )
            return Suspend(NodeWait.interrupt("approval", request=request), NodeWait.timer(due_at=_PAST))
        return Continue({"decided": True})

    async def work(_context: Any) -> Continue:
        return Continue({"worked": True})

    async def finish(context: Any) -> Finish:
        return Finish(context.state)

    graph.node(name="decide", entry=True, then="work", wait_to="work")(decide)
    graph.node(name="work", then="finish")(work)
    graph.node(name="finish", terminal=True)(finish)
    return graph.build()


async def _admitted(world: DriveWorld, what: str) -> RunId:
    asked = world.request()
    state = samples.graph_state({"what": what}, schema=world.bundle.graph.state_schema)
    request = evolve(asked, initial_state=state)
    await world.runs.admit(request)
    return request.run_id


async def _driven(world: DriveWorld, what: str, outcome: AgentLoopOutcome) -> RunId:
    run_id = await _admitted(world, what)
    while (ended := (await world.driven(run_id)).outcome) is AgentLoopOutcome.DEFERRED:
        pass
    if ended is not outcome:
        raise AssertionError(f"a run that was to be {outcome.value} is {ended.value}")
    return run_id


async def _leased(world: DriveWorld) -> RunId:
    """Leave an attempt under way, and its lease alive."""
    run_id = await _admitted(world, "succeed")
    hand = await HandDriven.of(world, (await world.claimed(run_id)).lease.fence)
    await hand.commit(hand.start("decide"))
    return run_id


async def _superseded(world: DriveWorld) -> RunId:
    """Take the run from whoever has an attempt under way, and drive it to its end."""
    run_id = await _leased(world)
    await world.loop.run(await world.store.supersede(TENANT, run_id, AttemptId.generate()), world.shutdown)
    return run_id


async def _cancelled(world: DriveWorld) -> RunId:
    run_id = await _cancelling(world)
    await world.driven(run_id)
    return run_id


async def _cancelling(world: DriveWorld) -> RunId:
    run_id = await _driven(world, "wait", AgentLoopOutcome.WAITING)
    await request_cancellation(world, run_id)
    return run_id


async def _quarantined(world: DriveWorld) -> RunId:
    """Isolate a run over a bit that is put back: its record is whole."""
    isolated = await isolate(world, await _admitted(world, "succeed"))
    await flip(world, isolated.run_id)
    return isolated.run_id


_SUCCEEDED: Final = AgentLoopOutcome.SUCCEEDED

#: By name, how a run gets there.
MIXED_STATES: Final[Mapping[str, Callable[[DriveWorld], Awaitable[RunId]]]] = {
    "queued": lambda world: _admitted(world, "succeed"),
    "leased": _leased,
    "waiting": lambda world: _driven(world, "wait", AgentLoopOutcome.WAITING),
    "succeeded": lambda world: _driven(world, "succeed", _SUCCEEDED),
    "retried": lambda world: _driven(world, "retry", _SUCCEEDED),
    "superseded": _superseded,
    "failed": lambda world: _driven(world, "fail", AgentLoopOutcome.FAILED),
    "cancelling": _cancelling,
    "cancelled": _cancelled,
    "quarantined": _quarantined,
}


async def remove(world: DriveWorld, run_id: RunId) -> None:
    """Remove a run with everything that belongs to it, as retention does, but whatever its age."""
    for table in _RUN_TABLES:
        if table != "tenant_slots":
            await world.rows(f"DELETE FROM agentruns.{table} WHERE run_id = CAST(:run_id AS uuid)", run_id=run_id.text)  # noqa: S608 - a table of ours
