"""Who may write for a run, and until when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import frozen

from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.members import check_members
from agentruns.domain.numbers import FencingEpoch, RunRevision, Superstep
from agentruns.domain.scalars import TenantId
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import InvalidValueError

if TYPE_CHECKING:
    from agentruns.domain.ledger.event import JournalHead

#: The most that the limit of a tenant may be.
MAXIMUM_LIVE_LEASES: Final = 1_024


@frozen(kw_only=True)
class RunFence:
    """Prove ownership of a run to every write of a worker.

    Nothing about process or host is part of it, so a worker that restarts can never continue an older ownership.

    Attributes:
        tenant_id: of the run.
        run_id: of the run.
        attempt_id: of this ownership; it only lets a claim whose answer was lost be recognised.
        epoch: decides: only the last one issued may write.
    """

    tenant_id: TenantId
    run_id: RunId
    attempt_id: AttemptId
    epoch: FencingEpoch

    def __attrs_post_init__(self) -> None:
        check_members(self)


@frozen(kw_only=True)
class RunLease:
    """Limit an ownership in time. All instants are the database's.

    Attributes:
        fence: what the owner proves itself with.
        acquired_at: when the run was claimed.
        renewed_at: when the lease was last extended.
        expires_at: the lease is dead at this instant and after it.
    """

    fence: RunFence
    acquired_at: Timestamp
    renewed_at: Timestamp
    expires_at: Timestamp

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if not self.acquired_at <= self.renewed_at < self.expires_at:
            raise InvalidValueError(type_name="RunLease", reason="clock_regression")

    def is_live(self, now: Timestamp) -> bool:
        """Tell whether the lease holds at a database instant."""
        return self.renewed_at <= now < self.expires_at


@frozen(kw_only=True)
class LeaseObservation:
    """Hold what the owner of a lease saw of its run in one read.

    Attributes:
        lease: the owner's.
        observed_at: the database's instant of the read.
        status: of the run.
        revision: of its lifecycle.
        head: of its journal.
        superstep: the current one.
    """

    lease: RunLease
    observed_at: Timestamp
    status: RunStatus
    revision: RunRevision
    head: JournalHead
    superstep: Superstep
