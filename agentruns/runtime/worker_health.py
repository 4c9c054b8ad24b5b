"""Whether a worker can do its work, from what its own statements have met: nobody is asked for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum, unique
from typing import Final

from attrs import frozen

from agentruns.runtime.shutdown import ShutdownSignal

NODE_THREADS_EXHAUSTED: Final = "node_threads_exhausted"
STORE_UNAVAILABLE: Final = "store_unavailable"

#: Seconds for which an answer of the database proves that it is there.
FRESH: Final = 20.0


@unique
class WorkerStatus(Enum):
    """Say what a worker can do.

    ``STARTING`` before the database has answered a claim; ``READY`` for as long as its last answer is younger than 20
    seconds; ``DEGRADED`` when it works, but not as it should; ``UNAVAILABLE`` when it does not reach the database, and
    tries on; ``DRAINING`` when it claims nothing further; ``STOPPED`` when every lease is given back.
    """

    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    UNAVAILABLE = "unavailable"
    DRAINING = "draining"
    STOPPED = "stopped"


_READY: Final = (WorkerStatus.READY, WorkerStatus.DEGRADED)


@frozen(kw_only=True)
class WorkerHealth:
    """Say whether a worker can do its work. A run that fails is no reason for a worker to be ill.

    Attributes:
        status: what the worker can do.
        reason: ``store_unavailable`` when it is unavailable. Why it is degraded: ``node_threads_exhausted`` when nodes
            that never ended hold every thread, so that what needs one is given back; ``listener_down`` when the
            connection for wake-ups is lost, and tried again; ``listener_behind_pooler`` when it ends at a pooler, so
            name a direct one as ``listen_url`` or do not listen. Without wake-ups the worker polls at its
            ``poll_interval``. Otherwise ``None``.
    """

    status: WorkerStatus
    reason: str | None = None

    @property
    def is_live(self) -> bool:
        """Whether a new process would be no better: false when the worker has stopped, or has no thread left."""
        return self.status is not WorkerStatus.STOPPED and self.reason != NODE_THREADS_EXHAUSTED

    @property
    def is_ready(self) -> bool:
        """Whether the worker drives runs now: ready, or degraded."""
        return self.status in _READY


class HealthRecord:
    """Note what a worker's statements have met, and give its health from that.

    Args:
        trouble: says why the worker does not work as it should, or ``None``; asked each time, so it must be cheap.
        monotonic: the process's clock.
    """

    def __init__(self, trouble: Callable[[], str | None], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._trouble = trouble
        self._monotonic = monotonic
        self._shutdown: ShutdownSignal | None = None
        self._has_ended = False
        self._answered_at: float | None = None
        #: Claims in a row that have not reached the database.
        self.failures = 0

    def begin(self, shutdown: ShutdownSignal) -> None:
        """Begin to work; nothing that an earlier work has met counts any more."""
        self._shutdown, self._has_ended, self._answered_at, self.failures = shutdown, False, None, 0

    def end(self) -> None:
        """End the work."""
        self._has_ended = True

    def answered(self) -> None:
        """Note that the database has answered a claim."""
        self._answered_at = self._monotonic()
        self.failures = 0

    def answered_a_question(self) -> None:
        """Note that the database has answered what is no claim: that proves nothing about claims that fail."""
        self._answered_at = self._monotonic()

    def failed(self) -> None:
        """Note that a claim has not reached the database."""
        self.failures += 1

    @property
    def silence(self) -> float | None:
        """Seconds since the last answer, as long as no claim fails; ``None`` when claims tell by themselves."""
        return None if self.failures or self._answered_at is None else self._monotonic() - self._answered_at

    @property
    def health(self) -> WorkerHealth:
        """Say how it is now."""
        if self._has_ended:
            return WorkerHealth(status=WorkerStatus.STOPPED)
        if self._shutdown is not None and self._shutdown.is_draining:
            return WorkerHealth(status=WorkerStatus.DRAINING)
        if self.failures or (self.silence or 0.0) >= FRESH:
            return WorkerHealth(status=WorkerStatus.UNAVAILABLE, reason=STORE_UNAVAILABLE)
        if self._answered_at is None:
            return WorkerHealth(status=WorkerStatus.STARTING)
        trouble = self._trouble()
        return WorkerHealth(status=WorkerStatus.READY if trouble is None else WorkerStatus.DEGRADED, reason=trouble)
