"""A minimal worker: claim what is ready, drive it, and give everything back on the way out."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from attrs import frozen

from agentruns.domain.ids import AttemptId
from agentruns.domain.scalars import TenantId
from agentruns.errors import AgentRunsError, InvalidOptionError, StoreError
from agentruns.runtime.agent_loop import DurableAgentLoop
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.retry import as_store_error
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import check_count, check_duration

_log: Final = logging.getLogger("agentruns.runtime.worker")

_MAXIMUM_BATCH: Final = 64
_LONGEST_BACK_OFF: Final = 30.0
#: As often as this a pause is doubled at most; by then it has reached the longest.
_DOUBLED: Final = 10


@frozen(kw_only=True)
class AgentWorkerOptions:
    """Say how a worker works.

    Attributes:
        slots: runs that are driven at once.
        poll_interval: pause of an idle worker, jittered; polling alone is always sufficient.
        drain_timeout: how long running nodes may finish after a shutdown was asked for.
    """

    slots: int = 4
    poll_interval: timedelta = timedelta(milliseconds=200)
    drain_timeout: timedelta = timedelta(seconds=30)

    def __attrs_post_init__(self) -> None:
        check_count("slots", self.slots, low=1, high=1024)
        least = timedelta(milliseconds=1)
        check_duration("poll_interval", self.poll_interval, low=least, high=timedelta(minutes=1))
        check_duration("drain_timeout", self.drain_timeout, low=timedelta(0), high=timedelta(days=1))


class AgentWorker:
    """Drive the ready runs of some tenants, as many at once as it has slots.

    It only claims runs whose graph this process has. A run is never tied to a worker: whoever claims it next goes on
    from the record.
    """

    def __init__(
        self,
        store: AgentRunStore,
        executables: ExecutableGraphRegistry,
        *,
        tenants: Sequence[TenantId],
        loop: DurableAgentLoop | None = None,
        options: AgentWorkerOptions | None = None,
    ) -> None:
        if not tenants:
            raise InvalidOptionError(option="tenants", value="()", bound="at least one tenant")
        self._store = store
        self._executables = executables
        self._tenants = tuple(tenants)
        self._loop = loop or DurableAgentLoop(store, executables)
        self._options = options or AgentWorkerOptions()
        self._driving: set[asyncio.Task[None]] = set()

    async def run(self, shutdown: ShutdownSignal) -> None:
        """Work until ``shutdown`` drains; then let running nodes finish, and return when every lease is given back.

        A worker that is cancelled, or meets what time does not cure, gives everything back at once.
        """
        try:
            await self._work(shutdown)
            await self._drain(shutdown)
        finally:
            await self._abandon()

    async def _work(self, shutdown: ShutdownSignal) -> None:
        failures = 0
        while not shutdown.is_draining:
            try:
                claimed = await self._claim(shutdown)
            except StoreError as error:
                failures += 1
                if failures == 1:
                    _log.warning("the database is away", extra={"error": type(error).__name__})
                await self._pause(shutdown, _back_off(failures))
                continue
            failures = 0
            if not claimed:
                await self._pause(shutdown, self._options.poll_interval.total_seconds())

    async def _claim(self, shutdown: ShutdownSignal) -> int:
        """Ask for a run for each idle slot, tenant by tenant, and drive what comes; say how many came."""
        claimed = 0
        for tenant_id in self._tenants:
            idle = min(self._options.slots - len(self._driving), _MAXIMUM_BATCH)
            if idle < 1:
                break
            ids = [AttemptId.generate() for _ in range(idle)]
            digests = self._executables.graph_digests
            with as_store_error(self._store.options.schema):
                leases = await self._store.claim_ready(tenant_id, idle, attempt_ids=ids, graph_digests=digests)
            for held in leases:
                self._start(held, shutdown)
            claimed += len(leases)
        return claimed

    def _start(self, held: HeldLease, shutdown: ShutdownSignal) -> None:
        task = asyncio.create_task(self._drive(held, shutdown), name=f"agentruns:{held.fence.run_id}")
        self._driving.add(task)
        task.add_done_callback(self._driving.discard)

    async def _drive(self, held: HeldLease, shutdown: ShutdownSignal) -> None:
        """Drive one run; whatever goes wrong with it is its own affair and leaves the others alone."""
        try:
            await self._loop.run(held, shutdown)
        except AgentRunsError as error:
            _log.warning(
                "a run was given back",
                extra={"run_id": str(held.fence.run_id), "error": type(error).__name__},
            )
        except Exception as error:  # noqa: BLE001 - one run's fault is no fault of the others
            _log.exception(
                "a run was given back after a fault of the library",
                extra={"run_id": str(held.fence.run_id), "error": type(error).__name__},
            )

    async def _pause(self, shutdown: ShutdownSignal, seconds: float) -> None:
        """Wait a jittered while, and no longer than until a slot is free or a shutdown is asked for."""
        draining = asyncio.create_task(shutdown.wait_draining())
        timeout = seconds * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
        try:
            await asyncio.wait({draining, *self._driving}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            draining.cancel()
            await asyncio.gather(draining, return_exceptions=True)

    async def _drain(self, shutdown: ShutdownSignal) -> None:
        if self._driving:
            await asyncio.wait(set(self._driving), timeout=self._options.drain_timeout.total_seconds())
        shutdown.stop()
        if self._driving:
            await asyncio.wait(set(self._driving))

    async def _abandon(self) -> None:
        """Cancel the drives that nobody would wait for any more; each gives its lease back."""
        for task in self._driving:
            task.cancel()
        if self._driving:
            await asyncio.wait(set(self._driving))


def _back_off(failures: int) -> float:
    """Give the longest pause after that many failures in a row, in seconds."""
    return min(_LONGEST_BACK_OFF, 0.1 * 2.0 ** min(failures, _DOUBLED))
