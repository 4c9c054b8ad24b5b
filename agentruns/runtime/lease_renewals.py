"""Renew the leases of all drives of a store together."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Final, Protocol

#: What is at least this much of an interval old is renewed with what is due.
TAKEN_ALONG: Final = 0.5


class RenewedLease(Protocol):
    """Say when a lease is to be renewed, and renew it."""

    def renewal_at(self, share: float) -> float:
        """Give the monotonic instant at which that share of an interval has passed since the lease was extended."""
        ...

    async def renew(self) -> None:
        """Renew once. Whatever comes of it is the lease's own affair: nothing is raised."""
        ...


class LeaseRenewals:
    """Keep the leases of one store and event loop, in one statement for all that are due.

    It looks when the lease that was extended longest ago is due, and takes with it every lease that is half as old, so
    renewals come at most twice an interval, however many drives there are. Looking is the callback of one timer, and
    each renewal a task: one that hangs delays no other. A drive that ends before its first renewal costs an entry.
    """

    def __init__(self) -> None:
        self._leases: set[RenewedLease] = set()
        #: Held strongly until they have ended.
        self._renewing: dict[RenewedLease, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = math.inf

    def join(self, lease: RenewedLease) -> None:
        """Renew a lease from now on."""
        self._leases.add(lease)
        self._look_at(lease.renewal_at(1.0))

    def leave(self, lease: RenewedLease) -> None:
        """Renew a lease no more. A renewal under way is withdrawn; one that has been sent stands, unheard."""
        self._leases.discard(lease)
        if lease in self._renewing:
            self._renewing[lease].cancel()

    def _look_at(self, instant: float) -> None:
        """Look then, unless a look comes before."""
        if instant >= self._looks_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = instant
        self._timer = asyncio.get_running_loop().call_later(max(0.0, instant - time.monotonic()), self._look)

    def _look(self) -> None:
        self._timer, self._looks_at = None, math.inf
        now = time.monotonic()
        idle = [lease for lease in self._leases if lease not in self._renewing]
        if any(lease.renewal_at(1.0) <= now for lease in idle):
            for lease in idle:
                if lease.renewal_at(TAKEN_ALONG) <= now:
                    self._begin(lease)
        self._look_again()

    def _look_again(self) -> None:
        """Look when the next one is due; those under way ask for it themselves when they have ended."""
        due = [lease.renewal_at(1.0) for lease in self._leases if lease not in self._renewing]
        if due:
            self._look_at(min(due))

    def _begin(self, lease: RenewedLease) -> None:
        """Begin a renewal. What is begun in one turn of the event loop shares the lane's statement."""

        def ended(_task: asyncio.Task[None]) -> None:
            del self._renewing[lease]
            if lease in self._leases:
                self._look_at(lease.renewal_at(1.0))

        task = asyncio.create_task(lease.renew(), name="agentruns:renewal")
        self._renewing[lease] = task
        task.add_done_callback(ended)
