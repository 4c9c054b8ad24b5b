"""What a lease is, in a few lines of arithmetic: who may write for a run at an instant, and what each call answers."""

from __future__ import annotations

from typing import Final

from attrs import define, frozen

SECOND: Final = 1_000_000


@frozen
class Fence:
    """Name an ownership of a run: the owner's attempt, and the epoch that decides."""

    attempt: int
    epoch: int


@define(kw_only=True)
class LeaseModel:
    """Keep the lease of one run. Instants are microseconds of the database's clock; every call says what is answered.

    Attributes:
        duration: of a fresh lease.
        horizon: how far ahead a lease may reach.
        epoch: the last one issued.
        owner: the attempt that holds the lease, live or not; ``None`` when it was given back.
        gate: the run is not claimed before it.
        head: the sequence of the run's last event.
    """

    duration: int
    horizon: int
    epoch: int = 0
    owner: int | None = None
    renewed: int = 0
    expires: int = 0
    ready: int = 0
    gate: int | None = None
    head: int = 1
    is_claimable: bool = True

    def claim(self, attempt: int, now: int) -> str:
        """Take the run, unless somebody holds it."""
        if self.owner == attempt and now < self.expires:
            return "mine"
        refusal = self._unavailable(now)
        if refusal is None and self.owner is not None and now < self.expires:
            refusal = "leased"
        return refusal or self._take(attempt, now)

    def supersede(self, attempt: int, now: int) -> str:
        """Take the run from whoever holds it."""
        if self.owner == attempt and now < self.expires:
            return "mine"
        return self._unavailable(now) or self._take(attempt, now)

    def renew(self, fence: Fence, desired: int, now: int) -> str:
        """Extend a live lease, never shorten it."""
        refusal = self._stale(fence)
        if refusal is None and desired == self.expires:
            return "same" if now < self.expires else "expired"
        if refusal is None and now >= self.expires:
            refusal = "expired"
        if refusal is None and desired < self.expires:
            refusal = "lease_not_extended"
        if refusal is None and desired > now + self.horizon:
            refusal = "lease_horizon"
        if refusal is None:
            self.renewed, self.expires = now, desired
        return refusal or "done"

    def release(self, fence: Fence, delay: int | None, now: int) -> str:
        """Give the lease back, expired or not; somebody else's is left alone."""
        refusal = self._stale(fence)
        if refusal == "no_lease":
            return "done"
        if refusal is None:
            self._let_go()
            if self.is_claimable:
                self.ready, self.gate = now, None if delay is None else now + delay
        return refusal or "done"

    def observe(self, fence: Fence, now: int) -> str:
        """Look whether the lease lives."""
        return self._dead(fence, now) or "done"

    def commit(self, fence: Fence, head: int, now: int, *, events: int, starts: bool, ends: bool = False) -> str:
        """Append events that were planned at a head; a start extends the lease, an end clears it."""
        refusal = self._dead(fence, now)
        if refusal is None and head != self.head:
            refusal = "journal"
        if refusal is not None:
            return refusal
        self.head += events
        if ends:
            self._let_go()
            self.is_claimable = False
        elif starts:
            self.renewed, self.expires = now, max(self.expires, now + self.duration)
        return "done"

    def _unavailable(self, now: int) -> str | None:
        if not self.is_claimable:
            return "status"
        return "deferred" if max(self.ready, self.gate or 0) > now else None

    def _take(self, attempt: int, now: int) -> str:
        self.epoch, self.owner, self.gate = self.epoch + 1, attempt, None
        self.renewed, self.expires = now, now + self.duration
        return "done"

    def _stale(self, fence: Fence) -> str | None:
        if fence.epoch != self.epoch:
            return "stale_fence"
        if self.owner is None:
            return "no_lease"
        return None if self.owner == fence.attempt else "stale_fence"

    def _dead(self, fence: Fence, now: int) -> str | None:
        refusal = self._stale(fence)
        return "expired" if refusal is None and now >= self.expires else refusal

    def _let_go(self) -> None:
        self.owner = None
