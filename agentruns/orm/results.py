"""Rows of node results (0005)."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from agentruns.orm.base import Base, OfNode, WithEvent
from agentruns.orm.checks import MIB, at_least, between, body, digest, instant, positive, rule, size, words


class NodeResultRow(OfNode, WithEvent, Base):
    """The outcome of a completed attempt of a node."""

    __tablename__ = "node_results"
    __table_args__ = (
        at_least("superstep", 0),
        size("node_id", 1, 128),
        between("attempt", 1, 64),
        words("status", "succeeded", "failed"),
        body("body", 16 * MIB),
        digest("digest"),
        instant("retry_not_before"),
        rule("retry_status", "retry_not_before IS NULL OR status = 'failed'"),
        positive("sequence"),
        {"comment": "Outcomes of attempts of nodes."},
    )

    status: Mapped[str] = mapped_column(comment="Projection: whether the attempt succeeded or failed.")
    body: Mapped[bytes] = mapped_column(
        comment="Body: canonical JSON bytes of the result, or of the failure and usage."
    )
    digest: Mapped[bytes] = mapped_column(comment="Projection: the digest of the body.")
    retry_not_before: Mapped[datetime | None] = mapped_column(
        comment="Projection: the instant before which no retry starts."
    )
