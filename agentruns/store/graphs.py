"""Graph definitions of tenants: published once, never changed."""

from __future__ import annotations

from collections.abc import Sequence

from agentruns.domain.digests import Digest
from agentruns.domain.graph.definition import CompiledGraph
from agentruns.domain.identity import CapabilityIdentity
from agentruns.domain.scalars import TenantId
from agentruns.store.sender import Sender
from agentruns.store.sets import POSITION
from agentruns.store.statements import graphs as statements


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


def _key(tenant_id: TenantId, identity: CapabilityIdentity) -> tuple[str, str, str, str, str]:
    owner, capability = identity.owner, identity.capability
    return tenant_id.text, owner.issuer.text, owner.subject.text, capability.name.text, str(capability.version)
