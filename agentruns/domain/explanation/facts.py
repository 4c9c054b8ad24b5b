"""What is read of a run to explain it. Nothing of it is verified, and any of it may be damaged."""

from __future__ import annotations

from attrs import frozen

from agentruns.domain.digests import Digest
from agentruns.domain.ids import EventId, QuarantineId, RunId, WaitId
from agentruns.domain.ledger.run_data import MAX_ATTEMPTS
from agentruns.domain.numbers import FencingEpoch
from agentruns.domain.scalars import FailureCode, TenantId
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp


@frozen(kw_only=True)
class ObservedGraph:
    """Name the graph that a run pins.

    Attributes:
        name: absent where the tenant does not have the graph.
        version: likewise.
    """

    digest: Digest
    name: str | None
    version: str | None


@frozen(kw_only=True)
class ObservedIsolation:
    """Say since when a run is isolated, and by which record; absent where no record is left."""

    quarantined_at: Timestamp
    quarantine_id: QuarantineId | None
    cause: str | None
    component: str | None


@frozen(kw_only=True)
class ObservedRequest:
    """Say which event asked for the end of a run."""

    event_id: EventId
    requested_at: Timestamp
    by_deadline: bool


@frozen(kw_only=True)
class ObservedWait:
    """Say what a run waits for.

    Attributes:
        kind: of the timer or the interrupt.
        registered_at: absent where the event is lost.
        due_at: exactly of a timer.
        expires_at: of an interrupt that expires.
    """

    wait_id: WaitId
    kind: str
    registered_at: Timestamp | None
    due_at: Timestamp | None
    expires_at: Timestamp | None


@frozen(kw_only=True)
class ObservedAttempt:
    """Say how the last attempt of a node in the current superstep stands.

    Attributes:
        epoch: under which it was started; absent where the event is lost, and so is ``started_at``.
        has_failed: ``None`` while it is open.
        ended_at: absent while it is open.
        not_before: gate of a failure that advises another attempt.
        failure_code: absent where nobody asked for it, or the failure cannot be read.
    """

    node_id: str
    attempt: int
    epoch: int | None
    started_at: Timestamp | None
    has_failed: bool | None
    ended_at: Timestamp | None
    not_before: Timestamp | None
    failure_code: FailureCode | None

    @property
    def is_last(self) -> bool:
        """Whether the node has no other attempt."""
        return self.attempt >= MAX_ATTEMPTS


@frozen(kw_only=True)
class ObservedRun:
    """Hold what the record says of a run at one instant.

    Attributes:
        now: that instant, of the database.
        superstep: absent without a checkpoint.
        head_recorded_at: instant of the last event.
        epoch: the last one issued; 0 means never.
        lease_renewed_at: of the lease, expired or not.
        lease_expires_at: likewise.
        ready_at: since when it may be claimed.
        not_before: gate before which nobody claims it.
        request: for its end.
        waits: outstanding ones.
        attempts: the last one of each node that was started in the current superstep, in the order of their ids.
    """

    tenant_id: TenantId
    run_id: RunId
    now: Timestamp
    status: RunStatus
    superstep: int | None
    head_recorded_at: Timestamp
    epoch: int
    lease_renewed_at: Timestamp | None
    lease_expires_at: Timestamp | None
    ready_at: Timestamp | None
    not_before: Timestamp | None
    deadline_at: Timestamp | None
    graph: ObservedGraph | None
    isolation: ObservedIsolation | None
    request: ObservedRequest | None
    waits: tuple[ObservedWait, ...]
    attempts: tuple[ObservedAttempt, ...]

    @property
    def is_held(self) -> bool:
        """Whether somebody's lease lives."""
        return self.lease_expires_at is not None and self.now < self.lease_expires_at

    @property
    def due_at(self) -> Timestamp | None:
        """Since when, or from when on, a worker may claim the run: readiness, gate and the lease before."""
        if self.ready_at is None or self.isolation is not None:
            return None
        return max(each for each in (self.ready_at, self.not_before, self.lease_expires_at) if each is not None)

    @property
    def is_due(self) -> bool:
        """Whether a worker may claim the run now."""
        return self.due_at is not None and self.due_at <= self.now

    @property
    def may_have_ended_its_superstep(self) -> bool:
        """Whether every node that was started in the current superstep has succeeded; others may be left."""
        return self.status is RunStatus.ACTIVE and {each.has_failed for each in self.attempts} == {False}

    @property
    def has_no_epoch_left(self) -> bool:
        """Whether there can be no further claim."""
        return self.epoch >= FencingEpoch.highest

    def is_in_flight(self, attempt: ObservedAttempt) -> bool:
        """Whether the holder of the lease is at work on an attempt."""
        return self.is_held and attempt.has_failed is None and attempt.epoch == self.epoch


@frozen(kw_only=True)
class ClaimConditions:
    """Hold what decides whether somebody claims a run that is due, and what the claim leads to.

    Attributes:
        live_leases: of the tenant.
        maximum_live: how many may live at once; ``None`` for any number.
        has_room: whether the limit permits another one.
        is_in_policy: whether a fairness policy lists the tenant, or there is none at all.
        maximum_supersteps: of the graph; absent where its definition is not there or cannot be read.
        rejection: why the results of the superstep cannot become a barrier; absent where they can, are not complete, or
            nobody has tried.
    """

    live_leases: int
    maximum_live: int | None
    has_room: bool
    is_in_policy: bool
    maximum_supersteps: int | None
    rejection: str | None = None
