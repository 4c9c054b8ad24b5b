"""A real database for the machines: one store, a tenant for each example, and a clock that the machine moves."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count
from typing import Any, Final, TypeAlias

from attrs import define, field, frozen
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import StoreOptions
from agentruns.testing.machines.record_laws import RecordedEvent, check_record
from agentruns.testing.movable_clock import MovableClock

#: Runs a coroutine to its end on the loop that the store belongs to.
RunCoroutine: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]

_OF_RUN: Final = " WHERE tenant_id = :tenant AND run_id = cast(:run AS uuid)"
_EVENTS: Final = f"SELECT * FROM agentruns.run_events{_OF_RUN} ORDER BY sequence"  # noqa: S608  # our own names
_CHECKPOINTS: Final = f"SELECT superstep, ready FROM agentruns.run_checkpoints{_OF_RUN}"  # noqa: S608


@frozen
class StoredWorld:
    """Hold what the machines share: opened once, since a database costs more than an example.

    Attributes:
        run: a coroutine, from outside of any loop.
        store: of the machines, under the role of a runtime.
        engine: a superuser's, past the library.
    """

    run: RunCoroutine
    store: AgentRunStore
    engine: AsyncEngine
    numbers: count[int] = field(factory=count)

    def tenant(self) -> TenantId:
        """Name a tenant that no example has had."""
        return TenantId(f"example-{next(self.numbers)}")

    async def rows(self, statement: str, **values: Any) -> list[Row[Any]]:
        """Read, or write, past the library."""
        async with self.engine.begin() as connection:
            result = await connection.execute(text(statement), values)
            return list(result.all()) if result.returns_rows else []

    async def set_clock(self, now: Timestamp) -> None:
        """Hold the database's clock at an instant; the store learns of it as from any answer."""
        await self.rows("UPDATE moved.clock SET at = :at", at=now.to_datetime())


@define
class StoredClock:
    """Count the time of one example, in whole microseconds of the database's clock."""

    world: StoredWorld
    now: Timestamp

    def advance(self, micros: int) -> None:
        """Let time pass."""
        self.now = self.now.plus_micros(micros)
        self.world.run(self.world.set_clock(self.now))


@asynccontextmanager
async def open_stored(
    url: str, *, store_url: str, has_frozen_clock: bool = False, lease: timedelta = timedelta(seconds=30)
) -> AsyncIterator[tuple[AgentRunStore, AsyncEngine]]:
    """Open a store on a migrated database that is nobody else's.

    Args:
        url: for a superuser.
        store_url: of the same database, for the role of a runtime.
        has_frozen_clock: whether the database's clock stands still until it is moved.
        lease: how long a claim lasts.
    """
    if has_frozen_clock:
        clock = MovableClock(url)
        await clock.install()
        await clock.set(await clock.now())
    engine = create_async_engine(url)
    try:
        async with AgentRunStore(store_url, StoreOptions(lease_duration=lease, notifies=False)) as store:
            if has_frozen_clock:
                store.clock.monotonic = lambda: 0.0
            yield store, engine
    finally:
        await engine.dispose()


async def check_stored(world: StoredWorld, tenant_id: TenantId, run_id: RunId) -> None:
    """Hold a stored journal against the laws of every record.

    Raises:
        RecordLawError: the first law that is broken.
    """
    of_run = {"tenant": str(tenant_id), "run": str(run_id)}
    events = await world.rows(_EVENTS, **of_run)
    checkpoints = await world.rows(_CHECKPOINTS, **of_run)
    recorded = [
        RecordedEvent(
            sequence=row.sequence,
            recorded_at=Timestamp.from_datetime(row.recorded_at).micros,
            epoch=row.epoch,
            kind=row.kind,
            data=json.loads(row.data),
        )
        for row in events
    ]
    check_record(recorded, {row.superstep: json.loads(row.ready) for row in checkpoints})
