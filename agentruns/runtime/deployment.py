"""The short way in: graphs are collected, and everything around them is assembled."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import TypeVar

from sqlalchemy import URL, select

from agentruns.domain.admission import AgentAdmissionBudgetLayer
from agentruns.domain.digests import Digest
from agentruns.domain.identity import PrincipalIdentity
from agentruns.domain.scalars import SubjectId, TenantId
from agentruns.domain.uris import IssuerId
from agentruns.errors import InvalidOptionError
from agentruns.orm.graphs import GraphDefinitionRow
from agentruns.runtime.deployment_graphs import DeployableGraph, DeploymentGraphs
from agentruns.runtime.deployment_open import OpenDeployment, tenant_id_of
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import StoreOptions
from agentruns.store.unit_of_work import UnitOfWork

GraphT = TypeVar("GraphT", bound=DeployableGraph)

_NO_COSTS: Mapping[str, int] = MappingProxyType({})


class Deployment:
    """Collect graphs, and run them without assembling registries, descriptors and authorities by hand.

    ::

        deployment = Deployment(issuer="https://example.com/", subject="back-office")
        triage = deployment.add(GraphBuilder("triage", "1.0.0", input=…, state=…, output=…))

        async with deployment.open(url, tenant="acme") as app:
            request = app.request(triage, input={"text": "…"})
            admitted = await app.runs.submit(AgentSubmissionKey.generate(), request)

    Args:
        issuer: with ``subject`` the principal that owns the graphs and, by default, admits their runs.
        subject: as the issuer calls it.
        costs: what one run may spend, in millionths per currency; no money by default.
        budget_layers: limits of further policies. The system's default layer is always the first.
    """

    def __init__(
        self,
        *,
        issuer: str,
        subject: str,
        costs: Mapping[str, int] = _NO_COSTS,
        budget_layers: Iterable[AgentAdmissionBudgetLayer] = (),
    ) -> None:
        self.owner = PrincipalIdentity(issuer=IssuerId(issuer), subject=SubjectId(subject))
        self._layers = (AgentAdmissionBudgetLayer.system_default(costs=costs), *budget_layers)
        self._graphs: list[DeployableGraph] = []

    def add(self, graph: GraphT) -> GraphT:
        """Take a graph into the deployment, and give it back. Its nodes may still be added until it is used."""
        self._graphs.append(graph)
        return graph

    def build(self) -> DeploymentGraphs:
        """Compile the graphs that were added so far, and check that they fit together. No database is needed.

        Raises:
            DefinitionError: a graph, a schema or the registry cannot be used as it is defined.
            InvalidOptionError: no graph was added.
        """
        if not self._graphs:
            raise InvalidOptionError(option="graphs", reason="empty", value="none", bound="at least one graph")
        return DeploymentGraphs.build(self._graphs, owner=self.owner, budget_layers=self._layers)

    @asynccontextmanager
    async def open(
        self,
        url: str | URL,
        *,
        tenant: TenantId | str | Sequence[TenantId | str] | None = None,
        options: StoreOptions | None = None,
    ) -> AsyncIterator[OpenDeployment]:
        """Open the database, and publish the graphs to the tenants.

        Args:
            url: of the database, whose schema has been migrated.
            tenant: whose runs; several may be given. By default every tenant that has one of the graphs already.
            options: of the store.

        Raises:
            DefinitionError: a graph cannot be used; nothing was opened.
            InvalidOptionError: no tenant was given, and none has a graph of this deployment.
            SchemaVerificationError: migrate the database first.
            IdConflictError: kind ``graph``: a version is published with another content; give it a new version.
        """
        graphs = self.build()
        async with AgentRunStore(url, options) as store:
            tenants = _given(tenant) or await _known_tenants(store, graphs.executables.graph_digests)
            opened = OpenDeployment(store, graphs, tenants=tenants)
            for tenant_id in tenants:
                for graph in graphs.definitions:
                    await opened.runs.publish(tenant_id, graph)
            yield opened


def _given(tenant: TenantId | str | Sequence[TenantId | str] | None) -> tuple[TenantId, ...]:
    """Take one tenant or several, each once."""
    named = () if tenant is None else (tenant,) if isinstance(tenant, TenantId | str) else tenant
    return tuple(dict.fromkeys(map(tenant_id_of, named)))


async def _known_tenants(store: AgentRunStore, graph_digests: Sequence[Digest]) -> tuple[TenantId, ...]:
    tenant, digest = GraphDefinitionRow.tenant_id, GraphDefinitionRow.definition_digest
    statement = select(tenant).where(digest.in_([each.raw for each in graph_digests])).distinct().order_by(tenant)

    def read(work: UnitOfWork) -> tuple[TenantId, ...]:
        return tuple(map(TenantId, work.execute(statement).scalars()))

    found = await store.run(read)
    if not found:
        bound = "at least one tenant, as none has a graph of this deployment yet"
        raise InvalidOptionError(option="tenant", reason="missing", value="none", bound=bound)
    return found
