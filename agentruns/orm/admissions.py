"""Rows of agent admissions (0015)."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from agentruns.orm.base import Base, OfRun, WithEvent, belongs_to
from agentruns.orm.checks import MIB, body, digest, rule


class AgentAdmissionRow(OfRun, WithEvent, Base):
    """What was admitted: the agent, its request, its budget and its authority."""

    __tablename__ = "agent_admissions"
    __table_args__ = (
        body("body", 16 * MIB),
        digest("admission_digest"),
        rule("sequence", "sequence = 1"),
        belongs_to("run", "runs"),
        {"comment": "Admissions of agent runs."},
    )

    agent_name: Mapped[str] = mapped_column(comment="Projection: the name of the agent.")
    agent_version: Mapped[str] = mapped_column(comment="Projection: the version of the agent.")
    body: Mapped[bytes] = mapped_column(comment="Body: canonical JSON bytes of the admission's intent.")
    admission_digest: Mapped[bytes] = mapped_column(comment="Projection: the digest of the admission.")
