"""Ask for the end of a stored run, as the control plane would, in one transaction behind the drive's back."""

from __future__ import annotations

from typing import Final

from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.ids import EventId, RunId
from agentruns.domain.ledger.commit import DraftedCommit
from agentruns.domain.ledger.outcomes import CancellationRequest
from agentruns.domain.ledger.requests import CancellationRequestDraft
from agentruns.orm.base import SCHEMA_TOKEN
from agentruns.runtime.replay import RunReader
from agentruns.store.mapping import instant
from agentruns.store.tables import events, outcomes, runs
from agentruns.testing.drives import TENANT, DriveWorld
from agentruns.testing.samples import cancellation

_IN_SCHEMA: Final = {"schema_translate_map": {SCHEMA_TOKEN: "agentruns"}}


async def request_cancellation(world: DriveWorld, run_id: RunId) -> None:
    """Commit a request at the head where the run stands now; the lease stays with its owner, who confirms."""
    engine = create_async_engine(world.url, poolclass=NullPool, execution_options=_IN_SCHEMA)
    async with engine.begin() as connection:
        row = runs.c.run_id == run_id.text
        await connection.execute(select(runs.c.run_id).where(row).with_for_update(key_share=True))
        read = await RunReader(world.store, world.executables).read(TENANT, run_id)
        request = CancellationRequest(failure=cancellation())
        draft = CancellationRequestDraft(state=read.state, event_id=EventId.generate(), request=request)
        now = instant((await connection.execute(select(func.clock_timestamp()))).scalar_one())
        await _write(connection, draft.build(now))
    await engine.dispose()


async def _write(connection: AsyncConnection, commit: DraftedCommit) -> None:
    (event,), outcome, after = commit.events, commit.outcome, commit.projection
    identity = {"tenant_id": event.tenant_id.text, "run_id": event.run_id.text}
    at = event.recorded_at.to_datetime()
    if outcome is None:
        raise ValueError("a request has a body")
    await connection.execute(
        insert(events).values(
            **identity,
            sequence=event.sequence.value,
            event_id=event.event_id.text,
            recorded_at=at,
            epoch=event.epoch,
            kind=event.kind.text,
            schema_digest=event.schema_digest.raw,
            data=event.data,
            digest=event.digest.raw,
        )
    )
    await connection.execute(
        insert(outcomes).values(
            **identity,
            kind=outcome.kind,
            body=outcome.body,
            digest=outcome.digest.raw,
            sequence=outcome.sequence.value,
        )
    )
    await connection.execute(
        update(runs)
        .where(runs.c.run_id == event.run_id.text)
        .values(
            status=after.status.value,
            revision=after.revision.value,
            changed_at=at,
            lifecycle_sequence=event.sequence.value,
            head_sequence=event.sequence.value,
            head_digest=event.digest.raw,
            head_recorded_at=at,
            scheduler_ready_at=at,
            scheduler_not_before=None,
        )
    )
