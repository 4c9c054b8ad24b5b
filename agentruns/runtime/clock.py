"""Know the database's time without asking for it each time."""

from __future__ import annotations

import time
from collections.abc import Callable

from attrs import define, field

from agentruns.domain.timestamps import Timestamp


@define
class DatabaseClock:
    """Carry the database's last answer forward on the monotonic clock.

    A stamp is the ``clock_timestamp()`` that some statement answered plus the monotonic time since that answer
    arrived. The answer was older when it arrived than when it was read, so a stamp is never ahead of the database.
    The process's wall clock plays no part.
    """

    monotonic: Callable[[], float] = time.monotonic
    _observed: Timestamp | None = field(default=None, init=False)
    _arrived: float = field(default=0.0, init=False)

    @property
    def has_observation(self) -> bool:
        """Whether a statement has brought the database's time."""
        return self._observed is not None

    def observe(self, now: Timestamp) -> None:
        """Take the instant of an answer that has just arrived. An older one than is known already is no news."""
        arrived = self.monotonic()
        if self._observed is None or now > self._carried(self._observed, arrived):
            self._observed, self._arrived = now, arrived

    def stamp(self) -> Timestamp:
        """Give an instant that the database's clock has passed."""
        if self._observed is None:
            raise RuntimeError("no statement has brought the database's time yet")
        return self._carried(self._observed, self.monotonic())

    def correct(self, now: Timestamp) -> None:
        """Take the instant of an answer that refused a stamp, even when it is older than what is known."""
        self._observed, self._arrived = now, self.monotonic()

    def _carried(self, observed: Timestamp, until: float) -> Timestamp:
        return Timestamp(observed.micros + int((until - self._arrived) * 1_000_000))
