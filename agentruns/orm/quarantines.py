"""Rows of quarantines and their releases (0010, 0011)."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from agentruns.orm.base import Base, Id, OfRun, belongs_to
from agentruns.orm.checks import KIB, body, digest, positive, size, words


class RunQuarantineRow(OfRun, Base):
    """Why a run was isolated."""

    __tablename__ = "run_quarantines"
    __table_args__ = (
        words(
            "cause_kind",
            "integrity_failure",
            "unsupported_schema",
            "missing_artifact",
            "cross_tenant_reference",
            "projection_mismatch",
            "fencing_epoch_exhausted",
            "operator_policy",
        ),
        size("component", 1, 128),
        body("body", 64 * KIB),
        digest("digest"),
        positive("epoch"),
        belongs_to("run", "runs"),
        {"comment": "Quarantines of runs, of which at most one per run is unreleased."},
    )

    quarantine_id: Mapped[Id] = mapped_column(primary_key=True, comment="Key: the quarantine.")
    quarantined_at: Mapped[datetime] = mapped_column(comment="Instant of the isolation by the database's clock.")
    cause_kind: Mapped[str] = mapped_column(comment="Projection: the kind of the cause.")
    component: Mapped[str] = mapped_column(comment="Projection: the rule or the column that does not verify.")
    body: Mapped[bytes] = mapped_column(comment="Body: canonical JSON bytes of the record.")
    digest: Mapped[bytes] = mapped_column(comment="Projection: the digest of the body.")
    epoch: Mapped[int | None] = mapped_column(comment="Fence that quarantined, absent for the control plane.")


class RunQuarantineReleaseRow(OfRun, Base):
    """Who let a run go on, and on what evidence."""

    __tablename__ = "run_quarantine_releases"
    __table_args__ = (
        body("body", 64 * KIB),
        digest("digest"),
        belongs_to("quarantine", "run_quarantines", "quarantine_id"),
        {"comment": "Releases from quarantine."},
    )

    quarantine_id: Mapped[Id] = mapped_column(primary_key=True, comment="Key: the quarantine.")
    released_at: Mapped[datetime] = mapped_column(comment="Instant of the release by the database's clock.")
    body: Mapped[bytes] = mapped_column(comment="Body: canonical JSON bytes of the record.")
    digest: Mapped[bytes] = mapped_column(comment="Projection: the digest of the body.")
