"""What a worker tells of its work: ids, counts and codes, and nothing of what its runs are about."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeAlias

from attrs import frozen

from agentruns.domain.ids import RunId
from agentruns.domain.numbers import FencingEpoch
from agentruns.domain.scalars import TenantId
from agentruns.errors import AgentRunsError, InvalidOptionError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.worker_health import WorkerHealth

_log: Final = logging.getLogger("agentruns.runtime.worker")


@frozen(kw_only=True)
class WorkerStarted:
    """The worker begins to claim.

    Attributes:
        tenants: whose runs it drives; ``None`` for all that have work.
        graph_count: of the graphs that it has.
        slots: runs that it drives at once.
    """

    tenants: tuple[TenantId, ...] | None
    graph_count: int
    slots: int


@frozen(kw_only=True)
class RunClaimed:
    """The worker holds a run's lease, and begins to drive it."""

    tenant_id: TenantId
    run_id: RunId
    epoch: FencingEpoch


@frozen(kw_only=True)
class DriveEnded:
    """The drive of a claimed run is over; the run may go on elsewhere.

    Attributes:
        epoch: of the claim.
        outcome: what it came to; ``None`` after an error.
        error: the class of the error with which the run was given back.
        reason: which case of that class, where it is one of the library's and has cases.
        duration: since the claim was sent, monotonic.
    """

    tenant_id: TenantId
    run_id: RunId
    epoch: FencingEpoch
    outcome: AgentLoopOutcome | None
    error: str | None = None
    reason: str | None = None
    duration: timedelta


@frozen(kw_only=True)
class RunsSupervised:
    """Supervision has settled what was due of a tenant's runs, or could not.

    Attributes:
        cancellations_requested: runs whose deadline had come.
        runs_failed: runs whose interrupt had expired.
        timers_fired: timers that were due.
        error_count: runs that could not be settled; the next round meets them again.
    """

    tenant_id: TenantId
    cancellations_requested: int
    runs_failed: int
    timers_fired: int
    error_count: int


@frozen(kw_only=True)
class HealthChanged:
    """A working worker has become ready, degraded or unavailable."""

    health: WorkerHealth


@frozen(kw_only=True)
class WorkerDraining:
    """The worker claims nothing further.

    Attributes:
        running: drives that are still under way.
    """

    running: int


@frozen(kw_only=True)
class WorkerStopped:
    """The worker holds no lease any more.

    Attributes:
        error: the class of the error that ended it; ``None`` when it was asked to end.
    """

    error: str | None = None


#: What a drive came to, or the error that ended it.
DriveEnd: TypeAlias = AgentLoopOutcome | BaseException


def run_claimed(held: HeldLease) -> RunClaimed:
    """Tell of a lease that was claimed."""
    fence = held.fence
    return RunClaimed(tenant_id=fence.tenant_id, run_id=fence.run_id, epoch=fence.epoch)


def drive_ended(held: HeldLease, end: DriveEnd) -> DriveEnded:
    """Tell of a drive that is over; of an error only the class and the case, never the text."""
    fence, error = held.fence, end if isinstance(end, BaseException) else None
    return DriveEnded(
        tenant_id=fence.tenant_id,
        run_id=fence.run_id,
        epoch=fence.epoch,
        outcome=end if isinstance(end, AgentLoopOutcome) else None,
        error=None if error is None else type(error).__name__,
        reason=getattr(error, "reason", None) if isinstance(error, AgentRunsError) else None,
        duration=timedelta(seconds=time.monotonic() - held.sent_at),
    )


WorkerEvent: TypeAlias = (
    WorkerStarted | RunClaimed | DriveEnded | RunsSupervised | HealthChanged | WorkerDraining | WorkerStopped
)
#: Called on the worker's event loop while it waits: it must return at once.
OnWorkerEvent: TypeAlias = Callable[[WorkerEvent], None]


class WorkerObserver:
    """Call a function for each event. What it raises touches no run: the first time is logged, by class."""

    def __init__(self, on_event: OnWorkerEvent) -> None:
        if not callable(on_event) or inspect.iscoroutinefunction(on_event):
            bound = "a plain function of one event, which returns at once"
            raise InvalidOptionError(option="on_event", value=type(on_event).__name__, bound=bound)
        self._on_event = on_event
        self._has_failed = False

    def tell(self, event: WorkerEvent) -> None:
        """Tell of one event."""
        try:
            self._on_event(event)
        # A cancellation that it raises would look like one of the worker.
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever it was
            if not self._has_failed:
                _log.warning("the observer of a worker fails", extra={"error": type(error).__name__})
            self._has_failed = True
