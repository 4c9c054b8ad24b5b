"""Rows of checkpoints (0002)."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from agentruns.orm.base import Base, Id, OfRun, WithEvent
from agentruns.orm.checks import KIB, MIB, at_least, body, digest, positive


class RunCheckpointRow(OfRun, WithEvent, Base):
    """The state that a run stood in before one of its supersteps."""

    __tablename__ = "run_checkpoints"
    __table_args__ = (
        at_least("superstep", 0),
        body("ready", 160 * KIB),
        body("state", 2 * MIB),
        digest("digest"),
        positive("sequence"),
        {"comment": "Checkpoints of runs, exactly one for each superstep."},
    )

    superstep: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, comment="Key: the superstep that starts from the checkpoint."
    )
    checkpoint_id: Mapped[Id] = mapped_column(comment="Id of the checkpoint.")
    ready: Mapped[bytes] = mapped_column(comment="Body: canonical JSON array of the nodes that run next.")
    state: Mapped[bytes] = mapped_column(comment="Body: canonical JSON bytes of the graph's state.")
    digest: Mapped[bytes] = mapped_column(comment="Projection: the digest of the checkpoint.")
