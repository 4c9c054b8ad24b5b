"""Rows of model invocations and their revisions (0004)."""

from __future__ import annotations

from sqlalchemy import Index, text
from sqlalchemy.orm import Mapped, mapped_column

from agentruns.orm.base import Base, Id, OfRun, WithEvent, belongs_to, may_change
from agentruns.orm.checks import MIB, at_least, body, digest, positive, rule, size, together, words

STATUSES = ("prepared", "executing", "committed", "failed")


class ModelInvocationRow(OfRun, Base):
    """One logical call of a model and its current place."""

    __tablename__ = "model_invocations"
    __table_args__ = (
        at_least("superstep", 0),
        size("node_id", 1, 128),
        body("intent", 128 * MIB),
        words("status", *STATUSES),
        at_least("number", 0),
        rule("prepared", "(number = 0) = (status = 'prepared')"),
        belongs_to("run", "runs"),
        Index(
            "open",
            "tenant_id",
            "run_id",
            "invocation_id",
            postgresql_where=text("status IN ('prepared', 'executing')"),
        ),
        {
            "comment": "Calls of models, each with its current place.",
            "info": may_change("status", "number"),
            "postgresql_with": {"fillfactor": 80},
        },
    )

    invocation_id: Mapped[Id] = mapped_column(primary_key=True, comment="Key: the call.")
    superstep: Mapped[int] = mapped_column(comment="Superstep of the activation that made the call.")
    node_id: Mapped[str] = mapped_column(comment="Node of the activation that made the call.")
    model_name: Mapped[str] = mapped_column(comment="Projection: the name of the model.")
    model_version: Mapped[str] = mapped_column(comment="Projection: the version of the model.")
    intent: Mapped[bytes] = mapped_column(comment="Body: canonical JSON bytes of what is to be called.")
    status: Mapped[str] = mapped_column(comment="Projection: the status that the last event of the call set.")
    number: Mapped[int] = mapped_column(comment="Projection: the number of the last event of the call.")


class ModelInvocationRevisionRow(OfRun, WithEvent, Base):
    """One change of a model call's place."""

    __tablename__ = "model_invocation_revisions"
    __table_args__ = (
        at_least("number", 0),
        words("status", *STATUSES),
        rule("attempt_id", "(attempt_id IS NULL) = (number = 0)"),
        body("body", 128 * MIB),
        rule("body_status", "(body IS NOT NULL) = (status IN ('committed', 'failed'))"),
        digest("digest"),
        together("body_together", "body", "digest"),
        positive("sequence"),
        belongs_to("invocation", "model_invocations", "invocation_id"),
        {"comment": "Changes of model calls, numbered within each call."},
    )

    invocation_id: Mapped[Id] = mapped_column(primary_key=True, comment="Key: the call.")
    number: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, comment="Key: the number of the change, 0 for the preparation."
    )
    status: Mapped[str] = mapped_column(comment="Projection: the status that the change set.")
    attempt_id: Mapped[Id | None] = mapped_column(comment="Attempt of the call, absent in its preparation.")
    body: Mapped[bytes | None] = mapped_column(comment="Body: canonical JSON bytes of the response or the error.")
    digest: Mapped[bytes | None] = mapped_column(comment="Projection: the digest of the body.")
