"""Keep the lease of one drive alive, and end the drive before anybody else can take the run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from agentruns.domain.lease import RunFence
from agentruns.errors import LeaseLostError, RefusedError, StoreError
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.telemetry.counts import lease_not_renewed, lease_renewed

T = TypeVar("T")

#: Between two tries while nothing can be renewed.
_PAUSE: Final = 0.05
_LONGER_ALREADY: Final = "lease_not_extended"


class LeaseKeeper:
    """Watch over one lease until the block is left, and stop whatever runs under it when it cannot be kept.

    The store renews it together with the leases of its other drives. The watchdog is the drive's own and needs no
    answer of anybody. Its deadline counts from a monotonic instant taken before the request whose answer is used, so it
    comes before the lease can be taken over whatever the two clocks say.
    """

    def __init__(self, store: AgentRunStore, held: HeldLease, *, interval: timedelta) -> None:
        self.held = held
        #: What the lease's owner proves itself with; no answer changes it.
        self.fence: Final[RunFence] = held.fence
        self.renewals = 0
        self._store = store
        self._interval = interval.total_seconds()
        self._deadline = held.deadline(store.options.lease_duration)
        self._half = store.options.lease_duration.total_seconds() / 2
        self._paused_until = 0.0
        self._watchdog: asyncio.TimerHandle | None = None
        self._guarded: asyncio.Task[Any] | None = None
        self._loss: Exception | None = None

    async def __aenter__(self) -> Self:
        self._watch()
        self.keep()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.let_go()
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None

    async def guard(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` while the lease lives; when it is lost, cancel the work and raise why.

        Raises:
            LeaseLostError: the lease is lost; nothing of the work may be committed any more.
            RunQuarantinedError: the run was isolated.
        """
        task, loss = asyncio.current_task(), self._loss
        if loss is not None or task is None or self._watchdog is None:
            work.close()
            raise loss or self._lost("no_lease")
        asked_before = task.cancelling()
        self._guarded = task
        try:
            return await work
        except (Exception, asyncio.CancelledError):
            # Somebody else may want this task to end as well, and that goes first.
            loss = self._loss
            if loss is None or task.cancelling() > asked_before + 1:
                raise
        finally:
            self._guarded = None
            if self._loss is not None:
                task.uncancel()
        raise loss

    def let_go(self) -> None:
        """Renew no more: what is sent next ends the lease, and a renewal that comes second finds none."""
        self._store.lease_renewals.leave(self)

    def keep(self) -> None:
        """Renew again: the lease has not been given back after all."""
        if self._loss is None:
            self._store.lease_renewals.join(self)

    def extended(self, held: HeldLease) -> None:
        """Take over what an answer says of the lease. The deadline never moves backwards."""
        deadline = held.deadline(self._store.options.lease_duration)
        if deadline > self._deadline:
            self.held, self._deadline = held, deadline

    def renewal_at(self, share: float) -> float:
        """Give the instant at which that share of an interval has passed, or at which half a lease is left."""
        return max(self._paused_until, min(self.held.sent_at + share * self._interval, self._deadline - self._half))

    async def renew(self) -> None:
        """Renew once; an outage shorter than what is left of the lease is survived, anything else ends the work."""
        try:
            held = await self._renewed()
            self.renewals += 1
            lease_renewed(self._deadline - time.monotonic())
            self.extended(held)
        except StoreError:
            lease_not_renewed()
        except Exception as error:  # noqa: BLE001 - whoever works under the lease must learn that nobody keeps it
            self._lose(error)
        # One that brought nothing is due again already.
        self._paused_until = time.monotonic() + _PAUSE

    async def _renewed(self) -> HeldLease:
        """Ask for a full lease from now and for no more: a dead worker's run is free that soon."""
        desired = self._store.clock.stamp().plus(self._store.options.lease_duration)
        sent_at = time.monotonic()
        try:
            return await self._store.renew(self.fence, desired=desired)
        except RefusedError as error:
            if error.reason != _LONGER_ALREADY:
                raise
        # A start that was committed meanwhile has extended the lease further than was asked for here.
        seen = await self._store.observe(self.fence)
        return HeldLease(lease=seen.lease, observed_at=seen.observed_at, sent_at=sent_at)

    def _watch(self) -> None:
        """Look at the deadline when it is due; it has mostly moved on by then."""
        left = self._deadline - time.monotonic()
        if left > 0:
            self._watchdog = asyncio.get_running_loop().call_later(left, self._watch)
        else:
            self._lose(self._lost("expired"))

    def _lose(self, error: Exception) -> None:
        """Cancel what runs under the lease; the first reason stands."""
        if self._loss is not None:
            return
        self._loss = error
        self.let_go()
        if self._guarded is not None:
            self._guarded.cancel()

    def _lost(self, reason: str) -> LeaseLostError:
        return LeaseLostError(tenant_id=self.fence.tenant_id, run_id=self.fence.run_id, reason=reason)
