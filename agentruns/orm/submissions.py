"""Rows of submission keys and of retention's receipts (0016)."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from agentruns.orm.base import Base, Id, Medium, belongs_to
from agentruns.orm.checks import KIB, body, digest, uuid7, words


class AgentSubmissionKeyRow(Base):
    """The arbiter of admissions: a key, or the lack of one, stands for exactly one run."""

    __tablename__ = "agent_submission_keys"
    __table_args__ = (
        digest("key_digest"),
        uuid7("run_id"),
        words("origin", "admitted", "attached"),
        digest("submission_digest"),
        UniqueConstraint("tenant_id", "run_id", "origin", name="origin"),
        belongs_to("admission", "agent_admissions"),
        {"comment": "Submission keys of runs, by digest: the arbiter of admissions."},
    )

    tenant_id: Mapped[str] = mapped_column(primary_key=True, comment="Key: the tenant that submitted.")
    key_digest: Mapped[bytes] = mapped_column(
        primary_key=True, comment="Key: the digest of the submission key, or of the run where there is no key."
    )
    run_id: Mapped[Id] = mapped_column(comment="Run that the key stands for.")
    origin: Mapped[str] = mapped_column(comment="Whether the row came with the admission or was attached later.")
    submission_digest: Mapped[bytes] = mapped_column(comment="Digest of what was submitted.")
    created_at: Mapped[datetime] = mapped_column(comment="Instant of the admission, or of the attachment.")


class RetentionReceiptRow(Base):
    """Proof that a batch of runs was removed by policy, and not lost."""

    __tablename__ = "retention_receipts"
    __table_args__ = (
        digest("runs_digest"),
        body("policy", 16 * KIB),
        {"comment": "Receipts of removals by retention, without any id, key or content of a run."},
    )

    tenant_id: Mapped[str] = mapped_column(primary_key=True, comment="Key: the tenant.")
    receipt_id: Mapped[Id] = mapped_column(primary_key=True, comment="Key: the receipt.")
    removed_at: Mapped[datetime] = mapped_column(comment="Instant of the removal by the database's clock.")
    cutoff_at: Mapped[datetime] = mapped_column(comment="Instant before which the removed runs had ended.")
    run_count: Mapped[Medium] = mapped_column(comment="Number of runs that were removed.")
    row_count: Mapped[int] = mapped_column(comment="Number of rows that were removed.")
    byte_count: Mapped[int] = mapped_column(comment="Number of bytes of bodies that were removed.")
    runs_digest: Mapped[bytes] = mapped_column(comment="Digest of the sorted list of runs and admissions.")
    policy: Mapped[bytes] = mapped_column(comment="Body: canonical JSON bytes of the policy.")
