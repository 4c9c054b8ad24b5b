"""Rows of graph definitions (0013)."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from agentruns.orm.base import Base
from agentruns.orm.checks import body, digest, size, tenant


class GraphDefinitionRow(Base):
    """A version of a graph, immutable for ever."""

    __tablename__ = "graph_definitions"
    __table_args__ = (
        tenant(),
        size("graph_owner_issuer", 9, 512),
        size("graph_owner_subject", 1, 255),
        size("graph_name", 1, 128),
        size("graph_version", 5, 62),
        digest("definition_digest"),
        body("definition", 2_097_280),
        UniqueConstraint("tenant_id", "definition_digest", name="digest"),
        {"comment": "Definitions of graphs: a version never changes."},
    )

    tenant_id: Mapped[str] = mapped_column(primary_key=True, comment="Key: the tenant that published the graph.")
    graph_owner_issuer: Mapped[str] = mapped_column(primary_key=True, comment="Key: the issuer of the graph's owner.")
    graph_owner_subject: Mapped[str] = mapped_column(primary_key=True, comment="Key: the subject of the graph's owner.")
    graph_name: Mapped[str] = mapped_column(primary_key=True, comment="Key: the name of the graph.")
    graph_version: Mapped[str] = mapped_column(primary_key=True, comment="Key: the version of the graph.")
    definition_digest: Mapped[bytes] = mapped_column(comment="Digest of the definition, by which runs pin it.")
    definition: Mapped[bytes] = mapped_column(comment="Body: canonical JSON bytes of the definition.")
    created_at: Mapped[datetime] = mapped_column(comment="Instant of the insertion by the database's clock.")
