"""Rows of node attempts (0006)."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from agentruns.orm.base import Base, Id, OfNode, WithEvent
from agentruns.orm.checks import at_least, between, positive, size


class NodeAttemptRow(OfNode, WithEvent, Base):
    """The start of an attempt, committed before the node's code ran."""

    __tablename__ = "node_attempts"
    __table_args__ = (
        at_least("superstep", 0),
        size("node_id", 1, 128),
        between("attempt", 1, 64),
        positive("sequence"),
        {"comment": "Starts of attempts of nodes, each committed before the node's code ran."},
    )

    attempt_id: Mapped[Id] = mapped_column(comment="Id of the attempt.")
