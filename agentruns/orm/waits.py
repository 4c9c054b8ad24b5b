"""Rows of waits (0009)."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from sqlalchemy import Index, text
from sqlalchemy.orm import Mapped, mapped_column

from agentruns.orm.base import Base, Id, OfRun, WithEvent, belongs_to, may_change
from agentruns.orm.checks import MIB, body, digest, instant, positive, quoted, rule, together, words

INTERRUPTS: Final = ("approval", "input", "authentication", "external_signal", "reconciliation")
TIMERS: Final = ("sleep", "retry_backoff")


class RunWaitRow(OfRun, WithEvent, Base):
    """What a run waits for, or waited for: an interrupt or a timer."""

    __tablename__ = "run_waits"
    __table_args__ = (
        words("kind", *INTERRUPTS, *TIMERS),
        body("registration", 4 * MIB),
        digest("digest"),
        positive("sequence"),
        instant("due_at"),
        rule("due_kind", f"(due_at IS NOT NULL) = (kind IN ({quoted(*TIMERS)}))"),
        instant("expires_at"),
        rule("expires_kind", f"expires_at IS NULL OR kind IN ({quoted(*INTERRUPTS)})"),
        words("status", "outstanding", "resolved", "fired", "abandoned"),
        rule("settled_status", "(settled_sequence IS NULL) = (status = 'outstanding')"),
        rule("settled_sequence", "settled_sequence > sequence"),
        body("resolution", 4 * MIB),
        digest("resolution_digest"),
        together("resolution_together", "resolution", "resolution_digest"),
        rule("resolution_status", "(resolution IS NOT NULL) = (status = 'resolved')"),
        belongs_to("run", "runs"),
        Index(
            "due",
            "tenant_id",
            "due_at",
            "run_id",
            "wait_id",
            postgresql_where=text("due_at IS NOT NULL AND status = 'outstanding'"),
        ),
        Index(
            "expiry",
            "tenant_id",
            "expires_at",
            "run_id",
            "wait_id",
            postgresql_where=text("expires_at IS NOT NULL AND status = 'outstanding'"),
        ),
        {
            "comment": "What runs wait for, each with its settlement.",
            "info": may_change("status", "settled_sequence", "resolution", "resolution_digest"),
            "postgresql_with": {"fillfactor": 80},
        },
    )

    wait_id: Mapped[Id] = mapped_column(primary_key=True, comment="Key: the wait.")
    kind: Mapped[str] = mapped_column(comment="Projection: the kind of the interrupt or the timer.")
    registration: Mapped[bytes] = mapped_column(comment="Body: canonical JSON bytes of what is waited for.")
    digest: Mapped[bytes] = mapped_column(comment="Projection: the digest of the registration.")
    due_at: Mapped[datetime | None] = mapped_column(comment="Projection: the instant at which the timer fires.")
    expires_at: Mapped[datetime | None] = mapped_column(
        comment="Projection: the instant at which the interrupt expires."
    )
    status: Mapped[str] = mapped_column(comment="Projection: whether and how the wait was settled.")
    settled_sequence: Mapped[int | None] = mapped_column(comment="Projection: the event that settled the wait.")
    resolution: Mapped[bytes | None] = mapped_column(comment="Body: canonical JSON bytes of the resolution.")
    resolution_digest: Mapped[bytes | None] = mapped_column(comment="Projection: the digest of the resolution.")
