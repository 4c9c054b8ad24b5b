"""Keep the lease of one drive alive, and end the drive before anybody else can take the run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from agentruns.domain.lease import RunFence
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import LeaseLostError, RefusedError, StoreError
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.store import AgentRunStore

T = TypeVar("T")

#: Between two looks while nothing can be renewed.
_PAUSE: Final = 0.05
_LONGER_ALREADY: Final = "lease_not_extended"


class LeaseKeeper:
    """Renew a lease until the block is left, and stop whatever runs under it when it cannot be kept.

    The deadline counts from a monotonic instant taken before the request whose answer is used, so it comes before the
    lease can be taken over whatever the two clocks say.
    """

    def __init__(self, store: AgentRunStore, held: HeldLease, *, interval: timedelta) -> None:
        self.held = held
        self.renewals = 0
        self._store = store
        self._interval = interval.total_seconds()
        self._deadline = held.deadline(store.options.lease_duration)
        self._keeping: asyncio.Task[None] | None = None
        self._is_letting_go = False

    @property
    def fence(self) -> RunFence:
        """What the lease's owner proves itself with."""
        return self.held.fence

    async def __aenter__(self) -> Self:
        self._keeping = asyncio.create_task(self._keep(), name=f"agentruns:{self.fence.run_id}:lease")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)

    async def guard(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` while the lease lives; when it is lost, cancel the work and raise why.

        Raises:
            LeaseLostError: the lease is lost; nothing of the work may be committed any more.
            RunQuarantinedError: the run was isolated.
        """
        if self._keeping is None:
            work.close()
            raise self._lost("no_lease")
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._keeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        if self._keeping.done() and (task.cancelled() or task.exception() is not None):
            self._keeping.result()
        return task.result()

    def let_go(self) -> None:
        """Renew no more: what is sent next ends the lease, and a renewal that comes second finds none."""
        self._is_letting_go = True

    def keep(self) -> None:
        """Renew again: the lease has not been given back after all."""
        self._is_letting_go = False

    def extended(self, held: HeldLease) -> None:
        """Take over what an answer says of the lease. The deadline never moves backwards."""
        deadline = held.deadline(self._store.options.lease_duration)
        if deadline > self._deadline:
            self.held, self._deadline = held, deadline

    async def _keep(self) -> None:
        while True:
            due = self.held.sent_at + self._interval
            await asyncio.sleep(max(0.0, min(due, self._deadline) - time.monotonic()))
            if time.monotonic() >= self._deadline:
                raise self._lost("expired")
            if self._is_letting_go:
                await self._pause()
            elif time.monotonic() >= self.held.sent_at + self._interval:
                await self._renew()

    async def _renew(self) -> None:
        """Renew once; an outage shorter than what is left of the lease is survived."""
        options, now = self._store.options, self._store.clock.stamp()
        later = self.held.lease.expires_at.plus(timedelta(seconds=self._interval))
        desired = min(max(now.plus(options.lease_duration), later), now.plus(options.maximum_lease_horizon))
        try:
            async with asyncio.timeout(self._deadline - time.monotonic()):
                held = await self._renewed(desired)
        except TimeoutError:
            raise self._lost("expired") from None
        except LeaseLostError:
            if not self._is_letting_go:
                raise
            return
        except StoreError:
            await self._pause()
            return
        self.renewals += 1
        self.extended(held)

    async def _renewed(self, desired: Timestamp) -> HeldLease:
        sent_at = time.monotonic()
        try:
            return await self._store.renew(self.fence, desired=desired)
        except RefusedError as error:
            if error.reason != _LONGER_ALREADY:
                raise
        # A start that was committed meanwhile has extended the lease further than was asked for here.
        seen = await self._store.observe(self.fence)
        return HeldLease(lease=seen.lease, observed_at=seen.observed_at, sent_at=sent_at)

    async def _pause(self) -> None:
        await asyncio.sleep(max(0.0, min(_PAUSE, self._deadline - time.monotonic())))

    def _lost(self, reason: str) -> LeaseLostError:
        return LeaseLostError(tenant_id=self.fence.tenant_id, run_id=self.fence.run_id, reason=reason)
