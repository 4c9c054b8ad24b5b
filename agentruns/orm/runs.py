"""Rows of runs, their journal and their outcomes, and of the revisions that were applied (0001 and later)."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from sqlalchemy import Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from agentruns.orm.base import Base, Id, OfRun, Small, WithEvent, belongs_to, may_change
from agentruns.orm.checks import (
    KIB,
    MIB,
    at_least,
    body,
    digest,
    instant,
    positive,
    quoted,
    rule,
    size,
    tenant,
    together,
    uuid7,
    words,
)

CLAIMABLE: Final = ("active", "cancellation_requested")
LIVE: Final = ("active", "waiting", "cancellation_requested")
ENDED: Final = ("succeeded", "failed", "cancelled")
LEASE: Final = ("lease_attempt_id", "lease_acquired_at", "lease_renewed_at", "lease_expires_at")


class AppliedRevisionRow(Base):
    """A revision that was applied to this schema."""

    __tablename__ = "applied_revisions"
    __table_args__ = (
        UniqueConstraint("revision", name="revision"),
        digest("checksum"),
        rule("oldest_code", "oldest_code BETWEEN 1 AND number"),
        {"comment": "Revisions applied to this schema, each written in the transaction that applied it."},
    )

    number: Mapped[Small] = mapped_column(
        primary_key=True, autoincrement=False, comment="Key: the number of the revision, counted from 1."
    )
    revision: Mapped[str] = mapped_column(comment="Id of the revision in the migration chain.")
    checksum: Mapped[bytes] = mapped_column(comment="SHA-256 of the revision's file with LF line ends.")
    oldest_code: Mapped[Small] = mapped_column(
        comment="Lowest head whose release may still run against the schema after this revision."
    )
    applied_at: Mapped[datetime] = mapped_column(comment="Instant of the application by the database's clock.")
    applied_by: Mapped[str] = mapped_column(comment="Role that applied the revision.")
    package_version: Mapped[str] = mapped_column(comment="Version of the package that applied the revision.")


class RunRow(OfRun, Base):
    """The only row of a run that moves: the cache of the fold of its journal, its lease and its place in line."""

    __tablename__ = "runs"
    __table_args__ = (
        tenant(),
        uuid7("run_id"),
        uuid7("thread_id"),
        uuid7("invocation_id"),
        words("status", *LIVE, *ENDED),
        at_least("revision", 1),
        rule("lifecycle_sequence", "lifecycle_sequence BETWEEN 1 AND head_sequence"),
        digest("head_digest"),
        rule("head_recorded_at", "head_recorded_at >= changed_at"),
        at_least("fencing_epoch", 0),
        together("lease_together", *LEASE),
        rule(
            "lease_shape",
            "lease_attempt_id IS NULL OR fencing_epoch > 0 AND lease_renewed_at >= lease_acquired_at"
            f" AND lease_expires_at > lease_renewed_at AND status IN ({quoted(*CLAIMABLE)}) AND quarantined_at IS NULL",
        ),
        rule("trace_context", "octet_length(trace_context) = 55"),
        together("checkpoint_together", "superstep", "checkpoint_digest"),
        at_least("superstep", 0),
        digest("checkpoint_digest"),
        rule(
            "scheduler_ready",
            f"(scheduler_ready_at IS NOT NULL) = (status IN ({quoted(*CLAIMABLE)}) AND superstep IS NOT NULL)",
        ),
        rule(
            "scheduler_gate",
            "scheduler_not_before IS NULL OR scheduler_ready_at IS NOT NULL"
            " AND scheduler_not_before >= scheduler_ready_at AND lease_attempt_id IS NULL",
        ),
        digest("graph_definition_digest"),
        instant("agent_deadline_at"),
        Index(
            "terminal",
            "tenant_id",
            "changed_at",
            "run_id",
            postgresql_where=text(f"status IN ({quoted(*ENDED)})"),
        ),
        Index(
            "quarantined",
            "tenant_id",
            "quarantined_at",
            "run_id",
            postgresql_where=text("quarantined_at IS NOT NULL"),
        ),
        Index(
            "runnable",
            "tenant_id",
            text("greatest(scheduler_ready_at, scheduler_not_before)"),
            "run_id",
            postgresql_where=text("scheduler_ready_at IS NOT NULL AND quarantined_at IS NULL"),
        ),
        Index(
            "live",
            "tenant_id",
            "graph_definition_digest",
            "run_id",
            postgresql_where=text(f"status IN ({quoted(*LIVE)})"),
        ),
        Index(
            "deadline",
            "tenant_id",
            "agent_deadline_at",
            "run_id",
            postgresql_where=text(
                "agent_deadline_at IS NOT NULL AND status IN ('active', 'waiting') AND quarantined_at IS NULL"
            ),
        ),
        {
            "comment": "Runs: the one row of a run that moves, recomputed by the fold of its journal.",
            "info": may_change(
                "status",
                "revision",
                "changed_at",
                "lifecycle_sequence",
                "head_sequence",
                "head_digest",
                "head_recorded_at",
                "fencing_epoch",
                *LEASE,
                "quarantined_at",
                "superstep",
                "checkpoint_digest",
                "scheduler_ready_at",
                "scheduler_not_before",
            ),
            "postgresql_with": {
                "fillfactor": 50,
                "autovacuum_vacuum_scale_factor": 0.01,
                "autovacuum_vacuum_threshold": 500,
                "autovacuum_analyze_scale_factor": 0.02,
            },
        },
    )

    thread_id: Mapped[Id] = mapped_column(comment="Id of the conversation that the run belongs to.")
    invocation_id: Mapped[Id] = mapped_column(comment="Id of the agent's invocation.")
    status: Mapped[str] = mapped_column(comment="Projection: the status of the run.")
    revision: Mapped[int] = mapped_column(comment="Projection: the number of the status, raised by each change.")
    changed_at: Mapped[datetime] = mapped_column(comment="Projection: the instant of the event that set the status.")
    lifecycle_sequence: Mapped[int] = mapped_column(comment="Projection: the event that set the status.")
    head_sequence: Mapped[int] = mapped_column(comment="Projection: the last event of the journal.")
    head_digest: Mapped[bytes] = mapped_column(comment="Projection: the digest of the last event.")
    head_recorded_at: Mapped[datetime] = mapped_column(comment="Projection: the instant of the last event.")
    fencing_epoch: Mapped[int] = mapped_column(comment="Fence of the last claim; each claim raises it by one.")
    lease_attempt_id: Mapped[Id | None] = mapped_column(comment="Attempt that holds the lease.")
    lease_acquired_at: Mapped[datetime | None] = mapped_column(comment="Instant at which the lease was taken.")
    lease_renewed_at: Mapped[datetime | None] = mapped_column(comment="Instant of the lease's last renewal.")
    lease_expires_at: Mapped[datetime | None] = mapped_column(comment="Instant at which the lease ends by itself.")
    quarantined_at: Mapped[datetime | None] = mapped_column(
        comment="Projection: the instant of the one unreleased quarantine."
    )
    trace_context: Mapped[str | None] = mapped_column(comment="W3C traceparent of the submitter; no evidence.")
    superstep: Mapped[int | None] = mapped_column(comment="Projection: the superstep of the last checkpoint.")
    checkpoint_digest: Mapped[bytes | None] = mapped_column(comment="Projection: the digest of the last checkpoint.")
    scheduler_ready_at: Mapped[datetime | None] = mapped_column(comment="Instant since which a worker may claim.")
    scheduler_not_before: Mapped[datetime | None] = mapped_column(comment="Gate before which no worker may claim.")
    graph_definition_digest: Mapped[bytes | None] = mapped_column(
        comment="Projection: the digest of the graph that the admission pins."
    )
    agent_deadline_at: Mapped[datetime | None] = mapped_column(comment="Projection: the deadline of the admission.")


class RunEventRow(OfRun, Base):
    """A fact in a run's journal: the evidence."""

    __tablename__ = "run_events"
    __table_args__ = (
        positive("sequence"),
        at_least("epoch", 0),
        size("kind", 1, 64),
        digest("schema_digest"),
        body("data", 16 * KIB),
        digest("digest"),
        {"comment": "Journals of runs, hash-chained: the evidence that everything else is recomputed from."},
    )

    sequence: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, comment="Key: the place in the journal, counted from 1."
    )
    event_id: Mapped[Id] = mapped_column(comment="Id of the event, chosen by whoever asked for the change.")
    recorded_at: Mapped[datetime] = mapped_column(comment="Instant of the event by the database's clock.")
    epoch: Mapped[int] = mapped_column(comment="Fence of the worker that wrote the event, 0 for the control plane.")
    kind: Mapped[str] = mapped_column(comment="Kind of the fact.")
    schema_digest: Mapped[bytes] = mapped_column(comment="Digest of the document that describes the data.")
    data: Mapped[bytes] = mapped_column(comment="Canonical JSON bytes of the fact: identities, numbers and digests.")
    digest: Mapped[bytes] = mapped_column(comment="Digest of the event chained to that of its predecessor.")


class RunOutcomeRow(OfRun, WithEvent, Base):
    """How a run ended, or why it was asked to."""

    __tablename__ = "run_outcomes"
    __table_args__ = (
        words("kind", "cancellation", "outcome"),
        body("body", 2 * MIB),
        digest("digest"),
        positive("sequence"),
        belongs_to("run", "runs"),
        {"comment": "Ends of runs and requests to cancel them, at most one of each per run."},
    )

    kind: Mapped[str] = mapped_column(primary_key=True, comment="Key: the request to cancel, or the outcome.")
    body: Mapped[bytes] = mapped_column(comment="Body: canonical JSON bytes of the request or the outcome.")
    digest: Mapped[bytes] = mapped_column(comment="Projection: the digest of the body.")
