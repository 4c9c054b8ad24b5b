"""What one read brings of the two ends of a run's evidence, before anything of it is believed."""

from __future__ import annotations

from datetime import datetime

from attrs import frozen

from agentruns.domain.digests import Digest
from agentruns.domain.scalars import TenantId


@frozen(kw_only=True)
class StoredRun:
    """The run row, as it was read.

    Attributes:
        run_id: of the row.
    """

    run_id: str
    thread_id: str
    invocation_id: str
    status: str
    revision: int
    changed_at: datetime
    lifecycle_sequence: int
    head_sequence: int
    head_digest: bytes
    head_recorded_at: datetime
    fencing_epoch: int
    lease_attempt_id: str | None
    lease_acquired_at: datetime | None
    lease_renewed_at: datetime | None
    lease_expires_at: datetime | None
    quarantined_at: datetime | None
    superstep: int | None
    checkpoint_digest: bytes | None
    scheduler_ready_at: datetime | None
    scheduler_not_before: datetime | None
    graph_definition_digest: bytes | None
    agent_deadline_at: datetime | None


@frozen(kw_only=True)
class StoredKey:
    """A row under which a run was submitted."""

    key_digest: bytes
    submission_digest: bytes
    created_at: datetime


@frozen(kw_only=True)
class StoredAdmission:
    """The row of the admission. ``body`` is ``None`` where it was left out of a batch for its size."""

    agent_name: str
    agent_version: str
    admission_digest: bytes
    sequence: int
    body: bytes | None


@frozen(kw_only=True)
class StoredCheckpoint:
    """A checkpoint's row; its state was hashed where it lies.

    Attributes:
        parent_digest: the digest that the row of the superstep before states; ``None`` where there is no such row.
    """

    superstep: int
    checkpoint_id: str
    ready: bytes
    state_digest: bytes
    digest: bytes
    sequence: int
    parent_digest: bytes | None


@frozen(kw_only=True)
class StoredEvent:
    """An event's row, and the digest that the row before it states."""

    sequence: int
    event_id: str
    recorded_at: datetime
    epoch: int
    kind: str
    schema_digest: bytes
    data: bytes
    digest: bytes
    previous: bytes | None


@frozen(kw_only=True)
class StoredOutcome:
    """A row of how a run ended, or why it was asked to. ``body`` as in :class:`StoredAdmission`."""

    digest: bytes
    sequence: int
    body: bytes | None


@frozen(kw_only=True)
class StoredWait:
    """An outstanding wait; its registration was hashed where it lies.

    Attributes:
        is_settled: whether a column says what only a settled wait has.
    """

    wait_id: str
    kind: str
    digest: bytes
    sequence: int
    registration_digest: bytes
    is_settled: bool


@frozen(kw_only=True)
class StoredQuarantine:
    """A quarantine without a release."""

    quarantine_id: str
    quarantined_at: datetime
    cause_kind: str
    component: str
    body: bytes
    digest: bytes
    epoch: int | None


@frozen(kw_only=True)
class RunEnds:
    """Hold the ends of one run's evidence in one snapshot of the database.

    Attributes:
        tenant_id: whose run it is.
        run_id: of the run that was asked for, or as the row of the key states it; ``None`` when there is no such row.
        key_digest: digest of the key that was looked up, if it was a key.
        now: the database's clock at the read.
        is_read_only: whether the transaction may not write.
        is_whole: whether bodies were read; they are left out when a batch grows too large.
        run: ``None`` when there is no run row.
        admitted: the row that the admission wrote, with or without a key.
        attached: the row of a key that came later.
        first: the checkpoint of superstep 0.
        newest: the checkpoint of the highest superstep above 0.
        events: by sequence: event 1, the head, and those that run row, newest checkpoint and cancellation name.
        is_head_passed: whether an event stands above the head.
        waits: the outstanding ones.
        quarantines: the unreleased ones.
    """

    tenant_id: TenantId
    run_id: str | None
    key_digest: Digest | None
    now: datetime
    is_read_only: bool
    is_whole: bool
    run: StoredRun | None
    admitted: StoredKey | None
    attached: StoredKey | None
    admission: StoredAdmission | None
    first: StoredCheckpoint | None
    newest: StoredCheckpoint | None
    events: dict[int, StoredEvent]
    is_head_passed: bool
    cancellation: StoredOutcome | None
    outcome: StoredOutcome | None
    waits: tuple[StoredWait, ...]
    quarantines: tuple[StoredQuarantine, ...]
