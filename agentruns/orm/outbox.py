"""Rows of the transactional outbox (0008)."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, text
from sqlalchemy.orm import Mapped, mapped_column

from agentruns.orm.base import Base, Id, OfRun, Small, WithEvent, belongs_to, may_change
from agentruns.orm.checks import MIB, between, body, digest, instant, positive, quoted, rule, tenant, words

SETTLED = ("acknowledged", "dead_letter", "expired")


class OutboxDestinationRow(Base):
    """A version of a destination's configuration, which never changes and holds no credentials."""

    __tablename__ = "outbox_destinations"
    __table_args__ = (
        tenant(),
        digest("digest"),
        rule("kind", "octet_length(kind) BETWEEN 1 AND 96 AND kind ~ '^[a-z0-9]+(-[a-z0-9]+)*$'"),
        body("config", 2 * MIB),
        {"comment": "Destinations of deliveries: immutable configuration without credentials."},
    )

    tenant_id: Mapped[str] = mapped_column(primary_key=True, comment="Key: the tenant that owns the destination.")
    destination_id: Mapped[Id] = mapped_column(primary_key=True, comment="Key: the destination.")
    digest: Mapped[bytes] = mapped_column(primary_key=True, comment="Key: the digest of the configuration.")
    kind: Mapped[str] = mapped_column(comment="Kind of the destination.")
    config: Mapped[bytes] = mapped_column(comment="Body: canonical JSON bytes of the configuration.")
    created_at: Mapped[datetime] = mapped_column(comment="Instant of the insertion by the database's clock.")


class OutboxDeliveryRow(OfRun, WithEvent, Base):
    """A payload to be delivered and its current place."""

    __tablename__ = "outbox_deliveries"
    __table_args__ = (
        digest("destination_digest"),
        body("body", 4 * MIB),
        digest("digest"),
        positive("sequence"),
        instant("expires_at"),
        words("status", "pending", "delivering", "retry_scheduled", *SETTLED),
        between("attempts", 0, 64),
        rule("attempt_expires_at", "(attempt_expires_at IS NOT NULL) = (status = 'delivering')"),
        rule("next_attempt_at", f"(next_attempt_at IS NULL) = (status IN ({quoted(*SETTLED)}))"),
        belongs_to("run", "runs"),
        Index(
            "ready",
            "tenant_id",
            "next_attempt_at",
            "run_id",
            "delivery_id",
            postgresql_where=text("next_attempt_at IS NOT NULL"),
        ),
        {
            "comment": "Deliveries of the outbox, each with its current place.",
            "info": may_change("status", "attempts", "attempt_expires_at", "next_attempt_at", "updated_at"),
            "postgresql_with": {"fillfactor": 70},
        },
    )

    delivery_id: Mapped[Id] = mapped_column(primary_key=True, comment="Key: the delivery.")
    destination_id: Mapped[Id] = mapped_column(comment="Destination of the delivery.")
    destination_digest: Mapped[bytes] = mapped_column(comment="Digest of the destination's configuration.")
    body: Mapped[bytes] = mapped_column(comment="Body: canonical JSON bytes of the payload.")
    digest: Mapped[bytes] = mapped_column(comment="Projection: the digest of the body.")
    expires_at: Mapped[datetime] = mapped_column(comment="Instant after which nothing is delivered any more.")
    status: Mapped[str] = mapped_column(comment="Current status of the delivery.")
    attempts: Mapped[Small] = mapped_column(comment="Number of attempts that were started.")
    attempt_expires_at: Mapped[datetime | None] = mapped_column(comment="Instant at which the open attempt ends.")
    next_attempt_at: Mapped[datetime | None] = mapped_column(comment="Instant from which the next attempt may start.")
    updated_at: Mapped[datetime] = mapped_column(comment="Instant of the last change by the database's clock.")


class OutboxAttemptRow(OfRun, Base):
    """The start of an attempt to deliver."""

    __tablename__ = "outbox_attempts"
    __table_args__ = (
        between("attempt", 1, 64),
        rule("expires_at", "expires_at > started_at AND expires_at <= started_at + interval '5 minutes'"),
        belongs_to("delivery", "outbox_deliveries", "delivery_id"),
        {"comment": "Starts of attempts to deliver."},
    )

    delivery_id: Mapped[Id] = mapped_column(primary_key=True, comment="Key: the delivery.")
    attempt: Mapped[Small] = mapped_column(
        primary_key=True, autoincrement=False, comment="Key: the number of the attempt, counted from 1."
    )
    attempt_id: Mapped[Id] = mapped_column(comment="Id of the attempt.")
    started_at: Mapped[datetime] = mapped_column(comment="Instant of the start by the database's clock.")
    expires_at: Mapped[datetime] = mapped_column(comment="Instant at which the attempt counts as lost.")


class OutboxResultRow(OfRun, Base):
    """The end of an attempt to deliver."""

    __tablename__ = "outbox_results"
    __table_args__ = (
        words("status", "acknowledged", "failed"),
        instant("retry_not_before"),
        rule("retry_status", "retry_not_before IS NULL OR status = 'failed'"),
        body("body", MIB),
        digest("digest"),
        belongs_to("attempt", "outbox_attempts", "delivery_id", "attempt"),
        {"comment": "Ends of attempts to deliver."},
    )

    delivery_id: Mapped[Id] = mapped_column(primary_key=True, comment="Key: the delivery.")
    attempt: Mapped[Small] = mapped_column(
        primary_key=True, autoincrement=False, comment="Key: the number of the attempt."
    )
    status: Mapped[str] = mapped_column(comment="Whether the destination acknowledged or the attempt failed.")
    completed_at: Mapped[datetime] = mapped_column(comment="Instant of the end by the database's clock.")
    retry_not_before: Mapped[datetime | None] = mapped_column(comment="Instant before which no retry starts.")
    body: Mapped[bytes] = mapped_column(comment="Body: canonical JSON bytes of the acknowledgement or the failure.")
    digest: Mapped[bytes] = mapped_column(comment="Projection: the digest of the body.")
