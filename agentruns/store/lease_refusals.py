"""Say in the library's errors why a lease statement changed nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from attrs import evolve

from agentruns.domain.ids import RunId
from agentruns.domain.lease import LeaseObservation, RunFence, RunLease
from agentruns.domain.scalars import TenantId
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import (
    AgentRunsError,
    DatabaseClockRegressionError,
    InvariantError,
    LeaseLostError,
    NotYetAvailableError,
    RefusedError,
    RunNotRunnableError,
    RunQuarantinedError,
    StaleHeadError,
)
from agentruns.store.leases import LeaseAnswer
from agentruns.store.run_view import LockedRun

_Refusal = Callable[[TenantId, RunId, LeaseAnswer], AgentRunsError]

_STATUS_REASONS: Final[Mapping[RunStatus, str]] = {
    RunStatus.WAITING: "waiting",
    RunStatus.SUCCEEDED: "terminal",
    RunStatus.FAILED: "terminal",
    RunStatus.CANCELLED: "terminal",
}


def lease_refusal(tenant_id: TenantId, run_id: RunId, answer: LeaseAnswer) -> AgentRunsError:
    """Make the error of an answer that is not *done*."""
    make = _REFUSALS.get(answer.word)
    return make(tenant_id, run_id, answer) if make else InvariantError(reason=f"answer_{answer.word}")


def _lost(reason: str) -> _Refusal:
    return lambda tenant, run, _: LeaseLostError(tenant_id=tenant, run_id=run, reason=reason)


def _refused(reason: str) -> _Refusal:
    return lambda tenant, run, _: RefusedError(tenant_id=tenant, run_id=run, reason=reason)


def _clock(_tenant: TenantId, _run: RunId, answer: LeaseAnswer) -> AgentRunsError:
    return DatabaseClockRegressionError(observed=answer.now, recorded=answer.run.head.recorded_at)


def _status(tenant: TenantId, run: RunId, answer: LeaseAnswer) -> AgentRunsError:
    status = answer.run.status
    reason = _STATUS_REASONS.get(status, "transition")
    return RunNotRunnableError(tenant_id=tenant, run_id=run, status=status, revision=answer.run.revision, reason=reason)


def _deferred(tenant: TenantId, run: RunId, answer: LeaseAnswer) -> AgentRunsError:
    return NotYetAvailableError(tenant_id=tenant, run_id=run, reason="deferred", not_before=answer.run.available_at)


def _leased(tenant: TenantId, run: RunId, answer: LeaseAnswer) -> AgentRunsError:
    expires_at = answer.run.lease.expires_at if answer.run.lease else None
    return NotYetAvailableError(tenant_id=tenant, run_id=run, reason="leased", not_before=expires_at)


_REFUSALS: Final[Mapping[str, _Refusal]] = {
    "quarantined": lambda tenant, run, _: RunQuarantinedError(tenant_id=tenant, run_id=run),
    "stale_fence": _lost("stale_fence"),
    "no_lease": _lost("no_lease"),
    "expired": _lost("expired"),
    "clock": _clock,
    "head": lambda tenant, run, _: StaleHeadError(tenant_id=tenant, run_id=run, reason="journal"),
    "epoch": lambda tenant, run, _: StaleHeadError(tenant_id=tenant, run_id=run, reason="epoch"),
    "status": _status,
    "no_checkpoint": lambda tenant, run, answer: RunNotRunnableError(
        tenant_id=tenant, run_id=run, status=answer.run.status, revision=answer.run.revision, reason="no_checkpoint"
    ),
    "deferred": _deferred,
    "leased": _leased,
    "epoch_exhausted": _refused("epoch_exhausted"),
    "tenant_at_capacity": lambda tenant, run, _: NotYetAvailableError(
        tenant_id=tenant, run_id=run, reason="tenant_at_capacity"
    ),
    "lease_not_extended": _refused("lease_not_extended"),
    "lease_horizon": _refused("lease_horizon"),
}


def observation(fence: RunFence, answer: LeaseAnswer) -> LeaseObservation:
    """Judge what a read of the run row says of a fence.

    Raises:
        RunQuarantinedError: the run is isolated.
        LeaseLostError: ``stale_fence``, ``no_lease`` or ``expired``.
        DatabaseClockRegressionError: the clock is before the lease's renewal.
    """
    run, lease, superstep = answer.run, check_live(fence, answer), answer.run.superstep
    if superstep is None:
        raise lease_refusal(fence.tenant_id, fence.run_id, evolve(answer, word="no_checkpoint"))
    return LeaseObservation(
        lease=lease,
        observed_at=answer.now,
        status=run.status,
        revision=run.revision,
        head=run.head,
        superstep=superstep,
    )


def check_live(fence: RunFence, answer: LeaseAnswer) -> RunLease:
    """Insist that a read shows a fence's lease alive, and give the lease.

    Raises:
        RunQuarantinedError: the run is isolated.
        LeaseLostError: ``stale_fence``, ``no_lease`` or ``expired``.
        DatabaseClockRegressionError: the clock is before the lease's renewal.
    """
    lease = None if answer.run.is_quarantined else answer.run.lease
    word = _observed(fence, answer.run, lease, answer.now)
    if word or lease is None:
        raise lease_refusal(fence.tenant_id, fence.run_id, evolve(answer, word=word or "no_lease"))
    return lease


def _observed(fence: RunFence, run: LockedRun, lease: RunLease | None, now: Timestamp) -> str:
    if run.is_quarantined:
        return "quarantined"
    if run.epoch != fence.epoch.value:
        return "stale_fence"
    if lease is None:
        return "no_lease"
    if lease.fence != fence:
        return "stale_fence"
    if now < lease.renewed_at:
        return "clock"
    return "" if now < lease.expires_at else "expired"
