"""Fold what is stored of a run apart from the reader: row by row, and one state after each event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from agentruns.domain.digests import Digest
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.ids import CheckpointId, EventId, RunId
from agentruns.domain.ledger.bodies import BodyRow
from agentruns.domain.ledger.event import Event
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import JournalSequence
from agentruns.domain.scalars import JournalEventKind, TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.testing.drives import TENANT, DriveWorld

#: Every body of a run with the digest by which an event names it.
_BODIES: Final = """
    SELECT admission_digest AS digest, body, NULL::text AS id FROM agentruns.agent_admissions WHERE run_id = :run_id
    UNION ALL SELECT digest, state, checkpoint_id::text FROM agentruns.run_checkpoints WHERE run_id = :run_id
    UNION ALL SELECT digest, body, NULL FROM agentruns.node_results WHERE run_id = :run_id
    UNION ALL SELECT digest, registration, NULL FROM agentruns.run_waits WHERE run_id = :run_id
    UNION ALL SELECT resolution_digest, resolution, NULL FROM agentruns.run_waits
        WHERE run_id = :run_id AND resolution IS NOT NULL
    UNION ALL SELECT digest, body, NULL FROM agentruns.run_outcomes WHERE run_id = :run_id"""
_EVENTS: Final = "SELECT * FROM agentruns.run_events WHERE run_id = :run_id ORDER BY sequence"


async def refolded(
    world: DriveWorld, run_id: RunId, *, rows: Callable[..., Awaitable[list[Any]]] | None = None
) -> list[RunState]:
    """Give the state of a run of the sample tenant after each of its events; calls of models and tools are no part.

    Args:
        world: has the run.
        run_id: of the run.
        rows: reads, where the test has a connection for it; else as :meth:`DriveWorld.rows`.
    """
    rows = rows or world.rows
    events = [_event(row) for row in await rows(_EVENTS, run_id=run_id.text)]
    bodies = {Digest(row.digest): _body(row) for row in await rows(_BODIES, run_id=run_id.text)}
    graph, states = _graph(world), [RunState.empty(TENANT, run_id)]
    for event in events:
        states.append(states[-1].apply(event, bodies, graph))
    return states[1:]


def _graph(world: DriveWorld) -> ExecutableGraph:
    return world.executables.resolve(world.bundle.graph.definition_digest)


def _event(row: Any) -> Event:
    return Event(
        tenant_id=TenantId(row.tenant_id),
        run_id=RunId(str(row.run_id)),
        sequence=JournalSequence(row.sequence),
        event_id=EventId(str(row.event_id)),
        recorded_at=Timestamp.from_datetime(row.recorded_at),
        epoch=row.epoch,
        kind=JournalEventKind(row.kind),
        schema_digest=Digest(row.schema_digest),
        data=row.data,
        digest=Digest(row.digest),
    )


def _body(row: Any) -> BodyRow:
    return BodyRow(data=row.body, checkpoint_id=None if row.id is None else CheckpointId(row.id))
