"""Graph definitions of tenants: published once, never changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from attrs import frozen

from agentruns.domain.digests import Digest
from agentruns.domain.graph.definition import CompiledGraph
from agentruns.domain.identity import CapabilityIdentity
from agentruns.domain.scalars import TenantId
from agentruns.errors import CorruptDataError, InvalidValueError
from agentruns.store.sender import Sender
from agentruns.store.sets import POSITION
from agentruns.store.statements import graphs as statements


@frozen(kw_only=True)
class PublishedGraph:
    """Say what a tenant has of a graph.

    Attributes:
        issuer: of the graph's owner.
        subject: of the graph's owner.
        name: of the graph.
        version: of the graph.
        definition_digest: by which runs pin it.
        bytes: of the definition.
        published_at: by the database's clock.
        live_runs: number of runs that pin it and are not over.
    """

    issuer: str
    subject: str
    name: str
    version: str
    definition_digest: Digest
    bytes: int
    published_at: datetime
    live_runs: int


@frozen(kw_only=True)
class PinnedGraph:
    """Say which graph live runs of a tenant pin.

    Attributes:
        tenant_id: whose runs.
        definition_digest: what they pin.
        name: of the graph; absent where the tenant does not have it.
        version: of the graph, likewise.
        live_runs: how many of them.
    """

    tenant_id: TenantId
    definition_digest: Digest
    name: str | None
    version: str | None
    live_runs: int


class Graphs:
    """Hold which graphs a tenant has. What is admitted pins one of them by its digest."""

    def __init__(self, work: Sender) -> None:
        self._work = work

    def add(self, graphs: Sequence[tuple[TenantId, CompiledGraph]]) -> tuple[bool, ...]:
        """Insert definitions; ``False`` for a version that the tenant has already, with whatever content."""
        rows = [
            (*_key(tenant, graph.identity), graph.definition_digest.raw, graph.canonical) for tenant, graph in graphs
        ]
        found = self._work.execute(statements.publish(), statements.DEFINITIONS.parameters(rows))
        inserted = {tuple(row) for row in found}
        return tuple(_key(tenant, graph.identity) in inserted for tenant, graph in graphs)

    def digests(self, identities: Sequence[tuple[TenantId, CapabilityIdentity]]) -> tuple[Digest | None, ...]:
        """Read the digest that stands under each identity; ``None`` where the tenant has no such version."""
        rows = [_key(tenant, identity) for tenant, identity in identities]
        found = self._work.execute(statements.published(), statements.IDENTITIES.parameters(rows)).mappings()
        digests: list[Digest | None] = [None] * len(identities)
        for row in found:
            digests[row[POSITION] - 1] = Digest(row["definition_digest"])
        return tuple(digests)

    def published(self, tenant_id: TenantId) -> tuple[PublishedGraph, ...]:
        """List what a tenant has, by name and then in the order of publication."""
        found = self._work.execute(statements.listed(), {"tenant_id": tenant_id.text})
        return tuple(
            PublishedGraph(
                issuer=row.graph_owner_issuer,
                subject=row.graph_owner_subject,
                name=row.graph_name,
                version=row.graph_version,
                definition_digest=Digest(row.definition_digest),
                bytes=row.bytes,
                published_at=row.created_at,
                live_runs=row.live_runs,
            )
            for row in found
        )

    def find(self, tenant_id: TenantId, definition_digest: Digest) -> CompiledGraph | None:
        """Read a definition, verified against its digest.

        Raises:
            CorruptDataError: the stored bytes are not the definition of that digest.
        """
        named = {"tenant_id": tenant_id.text, "definition_digest": definition_digest.raw}
        stored = self._work.execute(statements.definition(), named).scalar_one_or_none()
        if stored is None:
            return None
        graph = _restored(stored)
        if graph is None or graph.definition_digest != definition_digest:
            raise CorruptDataError(tenant_id=tenant_id, component="graph_definitions.definition")
        return graph

    def pinned(self) -> tuple[PinnedGraph, ...]:
        """List the graphs that live runs pin, whoever's they are: a process that drives them all has each."""
        return tuple(
            PinnedGraph(
                tenant_id=TenantId(row.tenant_id),
                definition_digest=Digest(row.graph_definition_digest),
                name=row.graph_name,
                version=row.graph_version,
                live_runs=row.live_runs,
            )
            for row in self._work.execute(statements.pinned())
        )


def _restored(stored: bytes) -> CompiledGraph | None:
    try:
        return CompiledGraph.restore(stored)
    except InvalidValueError:
        return None


def _key(tenant_id: TenantId, identity: CapabilityIdentity) -> tuple[str, str, str, str, str]:
    owner, capability = identity.owner, identity.capability
    return tenant_id.text, owner.issuer.text, owner.subject.text, capability.name.text, str(capability.version)
