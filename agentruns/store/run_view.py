"""What a statement saw of a run row when it had locked it."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from agentruns.domain.ids import RunId
from agentruns.domain.lease import RunLease
from agentruns.domain.ledger.event import JournalHead
from agentruns.domain.numbers import RunRevision, Superstep
from agentruns.domain.scalars import TenantId
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp
from agentruns.store.mapping import head_of, lease_of, optional_instant


@frozen(kw_only=True)
class LockedRun:
    """The moving part of a run row.

    Attributes:
        epoch: the last one issued; 0 means never.
        ready_at: since when the run may be claimed.
        not_before: gate of a deferred run.
    """

    status: RunStatus
    revision: RunRevision
    superstep: Superstep | None
    head: JournalHead
    epoch: int
    lease: RunLease | None
    ready_at: Timestamp | None
    not_before: Timestamp | None
    quarantined_at: Timestamp | None

    @property
    def available_at(self) -> Timestamp | None:
        """When the run may be claimed, by readiness and gate."""
        instants = [each for each in (self.ready_at, self.not_before) if each is not None]
        return max(instants, default=None)


def locked_run(tenant_id: TenantId, run_id: RunId, row: Any) -> LockedRun:
    """Read the columns that every statement brings of the row that it locked."""
    return LockedRun(
        status=RunStatus(row.run_status),
        revision=RunRevision(row.run_revision),
        superstep=None if row.run_superstep is None else Superstep(row.run_superstep),
        head=head_of(row.run_head_sequence, row.run_head_digest, row.run_head_recorded_at),
        epoch=row.run_epoch,
        lease=lease_of(tenant_id, run_id, row),
        ready_at=optional_instant(row.run_ready_at),
        not_before=optional_instant(row.run_not_before),
        quarantined_at=optional_instant(row.run_quarantined_at),
    )
