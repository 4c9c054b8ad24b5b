"""Rows of fair scheduling and of limits per tenant (0014)."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from agentruns.orm.base import Base, Id, Medium, Small, may_change
from agentruns.orm.checks import KIB, at_least, between, body, digest, positive, rule, tenant, together


class SchedulerFairnessShardRow(Base):
    """A cycle of tenants that workers share, and the place that it has reached."""

    __tablename__ = "scheduler_fairness_shards"
    __table_args__ = (
        tenant("shard_id"),
        body("policy", 256 * KIB),
        digest("policy_digest"),
        between("cycle_length", 1, 4096),
        rule("next_slot", "next_slot BETWEEN 0 AND cycle_length - 1"),
        at_least("next_sequence", 0),
        {
            "comment": "Cycles of fair scheduling, each with its place.",
            "info": may_change("next_slot", "next_sequence"),
            "postgresql_with": {"fillfactor": 50},
        },
    )

    shard_id: Mapped[str] = mapped_column(primary_key=True, comment="Key: the shard.")
    policy: Mapped[bytes] = mapped_column(comment="Body: canonical JSON bytes of the policy.")
    policy_digest: Mapped[bytes] = mapped_column(comment="Projection: the digest of the policy.")
    cycle_length: Mapped[Medium] = mapped_column(comment="Projection: the number of slots of the policy's cycle.")
    next_slot: Mapped[Medium] = mapped_column(comment="Slot of the cycle that is reserved next.")
    next_sequence: Mapped[int] = mapped_column(comment="Sequence of the reservation that is made next.")


class SchedulerFairnessReservationRow(Base):
    """A slot of a cycle that a worker has taken."""

    __tablename__ = "scheduler_fairness_reservations"
    __table_args__ = (
        at_least("sequence", 0),
        between("slot", 0, 4095),
        UniqueConstraint("shard_id", "sequence", name="sequence"),
        Index("retention", "reserved_at", "shard_id", "sequence"),
        {"comment": "Slots of fair scheduling that were taken."},
    )

    shard_id: Mapped[str] = mapped_column(primary_key=True, comment="Key: the shard.")
    reservation_id: Mapped[Id] = mapped_column(primary_key=True, comment="Key: the reservation.")
    sequence: Mapped[int] = mapped_column(comment="Place of the reservation in its shard, counted from 0.")
    slot: Mapped[Medium] = mapped_column(comment="Slot of the cycle that was taken.")
    reserved_at: Mapped[datetime] = mapped_column(comment="Instant of the reservation by the database's clock.")


class TenantLimitRow(Base):
    """How many leases of a tenant may live at once."""

    __tablename__ = "tenant_limits"
    __table_args__ = (
        tenant(),
        between("maximum_live", 1, 1024),
        {"comment": "Limits of tenants.", "info": may_change("maximum_live", "updated_at")},
    )

    tenant_id: Mapped[str] = mapped_column(primary_key=True, comment="Key: the tenant.")
    maximum_live: Mapped[Small | None] = mapped_column(comment="Leases that may live at once, absent for no limit.")
    updated_at: Mapped[datetime] = mapped_column(comment="Instant of the last change by the database's clock.")


class TenantSlotRow(Base):
    """A place for a live lease of a tenant with a limit."""

    __tablename__ = "tenant_slots"
    __table_args__ = (
        between("slot", 0, 1023),
        together("claim_together", "run_id", "fencing_epoch"),
        positive("fencing_epoch"),
        at_least("serial", 0),
        {
            "comment": "Places for live leases of tenants with a limit.",
            "info": may_change("run_id", "fencing_epoch", "serial"),
            "postgresql_with": {"fillfactor": 50},
        },
    )

    tenant_id: Mapped[str] = mapped_column(primary_key=True, comment="Key: the tenant.")
    slot: Mapped[Small] = mapped_column(primary_key=True, autoincrement=False, comment="Key: the number of the place.")
    run_id: Mapped[Id | None] = mapped_column(comment="Run that took the place last.")
    fencing_epoch: Mapped[int | None] = mapped_column(comment="Fence of the claim that took the place.")
    serial: Mapped[int] = mapped_column(comment="Number of times that the place was taken.")
