"""Say whether a run that was read is still its worker's."""

from __future__ import annotations

from types import SimpleNamespace

from agentruns.domain.lease import RunFence
from agentruns.store.journal import RunHistory
from agentruns.store.lease_refusals import check_live, lease_refusal
from agentruns.store.leases import LeaseAnswer
from agentruns.store.run_view import RUN_COLUMNS, LockedRun
from agentruns.store.statements.guards import CLAIMABLE


def check_owner(fence: RunFence, history: RunHistory) -> None:
    """Hold the run row that a reading ended with against the fence of the worker that read.

    Raises:
        RunQuarantinedError: the run is isolated.
        LeaseLostError: ``stale_fence``, ``no_lease`` or ``expired``.
        RunNotRunnableError: no worker may go on with it in this status.
        DatabaseClockRegressionError: the clock is before the lease's renewal.
    """
    row = SimpleNamespace(**{name: history.run[column] for name, column in RUN_COLUMNS.items()})
    run = LockedRun(fence.tenant_id, fence.run_id, row)
    check_live(fence, LeaseAnswer(word="seen", now=history.now, run=run, lease=None))
    if run.status.value not in CLAIMABLE:
        answer = LeaseAnswer(word="status", now=history.now, run=run, lease=None)
        raise lease_refusal(fence.tenant_id, fence.run_id, answer)
