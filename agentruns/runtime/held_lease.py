"""A lease and the two clocks by which its end is known."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from attrs import field, frozen

from agentruns.domain.lease import RunFence, RunLease
from agentruns.domain.timestamps import Timestamp
from agentruns.store.journal import RunHistory

#: Share of a lease by which its owner stops early: clocks may differ in rate, and an abort takes a moment.
_MARGIN: Final = 1 / 30


@frozen(kw_only=True)
class HeldLease:
    """What a process knows of a lease that it owns.

    Attributes:
        lease: as the database wrote it.
        observed_at: the database's instant of the answer that told of it.
        sent_at: monotonic instant before that request was sent, so the lease ends later than is counted from it.
        history: of a short run, where it came with the claim; nothing of it is believed before it is folded.
    """

    lease: RunLease
    observed_at: Timestamp
    sent_at: float
    history: RunHistory | None = field(default=None, eq=False, repr=False)

    @property
    def fence(self) -> RunFence:
        """What the owner proves itself with."""
        return self.lease.fence

    def deadline(self, duration: timedelta) -> float:
        """Give the monotonic instant at which the owner must have stopped, before anybody can take over."""
        left = self.lease.expires_at.minus(self.observed_at).total_seconds()
        return self.sent_at + left - duration.total_seconds() * _MARGIN
