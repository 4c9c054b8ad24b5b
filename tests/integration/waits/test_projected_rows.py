"""After everything that anybody may ask of a run, its rows are what its events say, and nothing more."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from attrs import define, field
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.failure import SafeAfter
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import AttemptId, EventId, RunId
from agentruns.domain.ledger.rows import RunProjection
from agentruns.domain.numbers import DurationMillis
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scalars import JournalEventKind
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.snapshot import AgentRunSnapshot
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.waits import NodeWait, WaitResolver
from agentruns.errors import NodeFailedError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.supervisor import DurableRunSupervisor
from agentruns.runtime.waits import DurableRunWaits
from agentruns.testing import samples
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import TENANT, DriveWorld, builder
from agentruns.testing.movable_clock import MovableClock
from agentruns.testing.refolding import refolded

InWorld = Callable[..., None]

#: Sequence, kind and data.
Event = tuple[int, str, dict[str, Any]]

LONG = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def payload(data: Any) -> JournalPayload:
    schema, kind = samples.schema_reference("evidence"), JournalEventKind("answer")
    return JournalPayload(schema=schema, kind=kind, data=BoundedJson.of(data))


def graph() -> GraphBundle:
    """Fail once and go on, ask and sleep, and finish; or fail for good, where the input says so."""
    built = builder()

    def a(context: Any) -> dict[str, int]:
        if context.attempt == 1:
            raise NodeFailedError(failure=samples.failure(retry_advice=SafeAfter(delay=DurationMillis(0))))
        return {"a": context.attempt}

    def b(_context: Any) -> Suspend:
        expiring = NodeWait.interrupt("approval", request=payload({"may": "I"}), expires_in=HOUR)
        return Suspend(expiring, NodeWait.timer(due_in=HOUR), update={"b": True})

    built.node(name="a", entry=True, then="b")(a)
    built.node(name="b", wait_to="c")(b)
    built.node(name="c", terminal=True)(lambda context: Finish(context.state))
    return built.build()


# --- what rows must be -----------------------------------------------------------------------------------------------

#: For each kind of row, the columns that the fold gives, in an order.
COLUMNS = {
    "node_attempts": "superstep, node_id, attempt, attempt_id::text, sequence",
    "node_results": "superstep, node_id, attempt, status, 'sha256:' || encode(digest, 'hex'), sequence",
    "run_checkpoints": "superstep, 'sha256:' || encode(digest, 'hex'), sequence",
    "run_outcomes": "kind, 'sha256:' || encode(digest, 'hex'), sequence",
    "run_waits": "wait_id::text, 'sha256:' || encode(digest, 'hex'), sequence, status, settled_sequence,"
    " 'sha256:' || encode(resolution_digest, 'hex')",
}


def expected(events: list[Event]) -> dict[str, list[tuple[Any, ...]]]:
    """Say which rows stand beside events, from nothing but the events."""
    rows: dict[str, list[Any]] = {name: [] for name in COLUMNS if name != "run_waits"}
    for sequence, kind, data in events:
        step = int(data.get("superstep", 0))
        if "checkpoint_digest" in data:
            rows["run_checkpoints"].append((step + (kind != "agent-admitted"), data["checkpoint_digest"], sequence))
        if kind == "graph-node-attempt-started":
            rows["node_attempts"].append((step, data["node_id"], int(data["attempt"]), data["attempt_id"], sequence))
        elif kind.startswith("graph-node-attempt-"):
            status, attempt = kind.rsplit("-", 1)[1], int(data["attempt"])
            rows["node_results"].append((step, data["node_id"], attempt, status, data["result_digest"], sequence))
        if "request_digest" in data:
            rows["run_outcomes"].append(("cancellation", data["request_digest"], sequence))
        if "outcome_digest" in data:
            rows["run_outcomes"].append(("outcome", data["outcome_digest"], sequence))
    return {name: sorted(each) for name, each in rows.items()} | {"run_waits": expected_waits(events)}


def expected_waits(events: list[Event]) -> list[tuple[Any, ...]]:
    """Say how waits stand, from nothing but the events."""
    waits: dict[str, list[Any]] = {}
    for sequence, kind, data in events:
        for each in data.get("waits", ()):
            waits[each["wait_id"]] = [each["wait_id"], each["digest"], sequence, "outstanding", None, None]
        for wait_id in data.get("abandoned", ()):
            waits[wait_id][3:5] = ["abandoned", sequence]
        if kind == "graph-interrupt-resolved":
            waits[data["wait_id"]][3:] = ["resolved", sequence, data["resolution_digest"]]
        elif kind == "graph-timer-fired":
            waits[data["wait_id"]][3:5] = ["fired", sequence]
    return sorted(map(tuple, waits.values()))


@define
class Seen:
    """Hold every projected column of a run against its events and their fold, whenever it is looked at.

    Attributes:
        snapshots: the first that was shown of each revision of a run.
    """

    world: DriveWorld
    connection: AsyncConnection
    snapshots: dict[Any, AgentRunSnapshot] = field(factory=dict)

    async def rows(self, statement: str, **values: Any) -> list[Any]:
        """Read on the connection of the one who looks."""
        return list((await self.connection.execute(text(statement), values)).all())

    async def check(self, run_id: RunId) -> None:
        """Look at a run."""
        events = await self._check_rows(run_id)
        snapshot = await self.world.loaded(run_id)
        # LIF-02: each transition is one revision, and each revision is shown alike for ever.
        assert snapshot.revision.value == 1 + sum("revision" in data for _, _, data in events)
        assert self.snapshots.setdefault(snapshot.observation, snapshot) == snapshot

    async def _check_rows(self, run_id: RunId) -> list[Event]:
        """Hold the rows of a run against its events, and give these."""
        state = (await refolded(self.world, run_id, rows=self.rows))[-1]
        after = RunProjection.of(state)
        (row,) = await self.rows("SELECT * FROM agentruns.runs WHERE run_id = :run_id", run_id=run_id.text)
        assert (row.status, row.revision, row.superstep) == (
            after.status.value,
            int(after.revision),
            int(after.superstep),
        )
        assert (row.changed_at, row.lifecycle_sequence) == (
            after.changed_at.to_datetime(),
            int(after.lifecycle_sequence),
        )
        head = (int(after.head.sequence), after.head.digest.raw, after.head.recorded_at.to_datetime())
        assert (row.head_sequence, row.head_digest, row.head_recorded_at) == head
        assert after.checkpoint_digest is not None
        assert row.checkpoint_digest == after.checkpoint_digest.raw
        assert row.graph_definition_digest == after.graph_definition_digest.raw
        assert row.agent_deadline_at == after.agent_deadline_at.to_datetime()
        assert (row.scheduler_ready_at is not None) == after.status.is_claimable
        query = "SELECT sequence, kind, convert_from(data, 'UTF8') AS data FROM agentruns.run_events"
        found = await self.rows(f"{query} WHERE run_id = :run_id ORDER BY sequence", run_id=run_id.text)
        events = [(each.sequence, each.kind, json.loads(each.data)) for each in found]
        wanted = expected(events)
        for table, columns in COLUMNS.items():
            query = f"SELECT {columns} FROM agentruns.{table} WHERE run_id = :run_id"  # noqa: S608  # stands above
            found = await self.rows(query, run_id=run_id.text)
            assert sorted(map(tuple, found)) == wanted[table], table
        keys = await self.rows(
            "SELECT submission_digest FROM agentruns.agent_submission_keys WHERE run_id = :run_id", run_id=run_id.text
        )
        assert state.admission is not None
        assert {each.submission_digest for each in keys} == {state.admission.submission_digest.raw}
        return events


# --- what is done ----------------------------------------------------------------------------------------------------


async def claimed_by_name(seen: Seen, run_id: RunId) -> None:
    """Claim, renew, release, take over, defer, and claim with others."""
    world = seen.world
    held = await world.claimed(run_id)
    await seen.check(run_id)
    await world.store.renew(held.fence, desired=held.lease.expires_at.plus(LONG))
    await seen.check(run_id)
    taken = await world.store.supersede(TENANT, run_id, AttemptId.generate())
    await seen.check(run_id)
    await world.store.release(taken.fence)
    await seen.check(run_id)


async def driven(seen: Seen, run_id: RunId) -> AgentLoopOutcome:
    """Drive until the run sleeps or ends, and look after each time that it was given back."""
    while True:
        outcome = (await seen.world.driven(run_id)).outcome
        await seen.check(run_id)
        if outcome not in (AgentLoopOutcome.YIELDED, AgentLoopOutcome.DEFERRED):
            return outcome


async def answer(world: DriveWorld, run_id: RunId) -> None:
    """Answer what a run asks."""
    service = DurableRunWaits(world.store, world.executables)
    asked, _ = await service.outstanding(TENANT, run_id)
    await service.resolve_interrupt(
        TENANT,
        run_id,
        asked.wait_id,
        event_id=EventId.generate(),
        resolution=payload({"yes": True}),
        resolver=WaitResolver(principal=samples.principal(), scopes=ScopeSet.of()),
    )


async def lives(world: DriveWorld, seen: Seen, clock: MovableClock) -> None:
    """Let three runs live, of which one succeeds, one is cancelled and one fails."""
    world.store.clock.monotonic = lambda: 0.0
    await clock.advance(timedelta(0))
    supervisor = DurableRunSupervisor(world.store, world.executables)
    request = world.request()
    await world.runs.admit(request)
    await seen.check(request.run_id)
    await world.runs.submit(AgentSubmissionKey.generate(), request)
    answered, cancelled, expired = request.run_id, await world.submitted(), await world.submitted()
    for run_id in (answered, cancelled, expired):
        await seen.check(run_id)
        if run_id == answered:
            await claimed_by_name(seen, run_id)
        assert await driven(seen, run_id) is AgentLoopOutcome.WAITING
    await answer(world, answered)
    await seen.check(answered)
    await request_cancellation(world, cancelled)
    await seen.check(cancelled)
    assert await driven(seen, cancelled) is AgentLoopOutcome.CANCELLATION_CONFIRMED
    # The timer of the one fires, the question of the other has expired.
    await clock.advance(2 * HOUR)
    tick = await supervisor.tick(TENANT)
    assert (tick.timers_fired, tick.runs_failed, tick.errors) == (1, 1, ())
    for run_id in (answered, expired):
        await seen.check(run_id)
    assert await driven(seen, answered) is AgentLoopOutcome.SUCCEEDED
    rows = await world.rows("SELECT status FROM agentruns.runs ORDER BY 1")
    assert [row.status for row in rows] == ["cancelled", "failed", "succeeded"]
    # Admitted, waiting, one of two waits settled, active again, succeeded; requested and confirmed; failed.
    assert sorted(each.revision.value for each in seen.snapshots) == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5]


def test_LED_01_LIF_02_after_every_operation_the_rows_are_what_the_fold_of_the_events_says(
    in_world: InWorld, clock: MovableClock
) -> None:
    async def work(world: DriveWorld) -> None:
        engine = create_async_engine(world.url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        async with engine.connect() as connection:
            await lives(world, Seen(world, connection), clock)

    in_world(work, graph(), lease=LONG, maximum_durable_events=4)
