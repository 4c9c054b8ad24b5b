"""Supervise tenants beside a worker, round after round, whatever becomes of one round."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

from agentruns.domain.scalars import TenantId
from agentruns.errors import AgentRunsError
from agentruns.runtime.discovery import PAGE, DurableRunDiscovery
from agentruns.runtime.supervisor import DurableRunSupervisor, SupervisionCursor, SupervisionTick
from agentruns.runtime.worker_events import RunsSupervised, WorkerObserver

_log: Final = logging.getLogger("agentruns.runtime.supervision")


class Supervision:
    """Tick for each tenant that has something due, as long as the block lasts; without an interval nothing is done.

    Args:
        supervisor: settles what is due of a tenant.
        discovery: says whom something is due for.
        tenants: who is supervised; all that have something due where none are given, those that come later too.
        interval: pause between two rounds.
        observer: told of what was settled.
    """

    def __init__(
        self,
        supervisor: DurableRunSupervisor,
        discovery: DurableRunDiscovery,
        *,
        tenants: Sequence[TenantId] | None,
        interval: timedelta | None,
        observer: WorkerObserver | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._discovery = discovery
        self._tenants = None if tenants is None else tuple(tenants)
        self._interval = interval
        self._observer = observer
        self._cursors: dict[TenantId, SupervisionCursor] = {}
        self._failing: set[TenantId | None] = set()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._interval is not None:
            rounds = self._rounds(self._interval.total_seconds())
            self._task = asyncio.create_task(rounds, name="agentruns:supervision")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _rounds(self, seconds: float) -> None:
        while True:
            await self.round()
            # Jittered, so that the supervisors of many processes do not meet at every row.
            await asyncio.sleep(seconds * random.uniform(0.75, 1.0))  # noqa: S311 - jitter, not a secret

    async def round(self) -> int:
        """Tick once for each tenant, and say how much was settled; what goes wrong is logged and left to the next."""
        if self._interval is None:
            return 0
        settled = 0
        try:
            async for tenant_id in self._whose_turn():
                settled += await self._tick(tenant_id)
        except AgentRunsError as error:
            self._fails(None, error)
        else:
            self._failing.discard(None)
        return settled

    async def _whose_turn(self) -> AsyncIterator[TenantId]:
        if self._tenants is not None:
            for tenant_id in await self._discovery.due_among(self._tenants):
                yield tenant_id
            return
        after: TenantId | None = None
        while True:
            page = await self._discovery.due_tenants(after=after)
            for tenant_id in page:
                yield tenant_id
            if len(page) < PAGE:
                return
            after = page[-1]

    async def _tick(self, tenant_id: TenantId) -> int:
        try:
            tick = await self._supervisor.tick(tenant_id, self._cursors.pop(tenant_id, None))
        except AgentRunsError as error:
            self._fails(tenant_id, error)
            return 0
        self._failing.discard(tenant_id)
        if tick.cursor != SupervisionCursor():
            self._cursors[tenant_id] = tick.cursor
        for each in tick.errors:
            _log.warning(
                "a run could not be supervised",
                extra={"run_id": str(each.run_id), "error": type(each.error).__name__},
            )
        self._tell(tenant_id, tick)
        return tick.cancellations_requested + tick.runs_failed + tick.timers_fired

    def _tell(self, tenant_id: TenantId, tick: SupervisionTick) -> None:
        counts = (tick.cancellations_requested, tick.runs_failed, tick.timers_fired, len(tick.errors))
        if self._observer is None or not any(counts):
            return
        cancellations, failed, fired, errors = counts
        event = RunsSupervised(
            tenant_id=tenant_id,
            cancellations_requested=cancellations,
            runs_failed=failed,
            timers_fired=fired,
            error_count=errors,
        )
        self._observer.tell(event)

    def _fails(self, tenant_id: TenantId | None, error: AgentRunsError) -> None:
        """Tell of it once; of nobody in particular where those with something due cannot be listed."""
        if tenant_id not in self._failing:
            told = "supervision of a tenant fails" if tenant_id else "supervision cannot tell who has something due"
            _log.warning(told, extra={"error": type(error).__name__})
        self._failing.add(tenant_id)
