"""The short way in: graphs are collected, and everything around them is assembled."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import product
from types import MappingProxyType
from typing import TypeVar

from sqlalchemy import URL, select

from agentruns.domain.admission import AgentAdmissionBudgetLayer
from agentruns.domain.graph.definition import CompiledGraph
from agentruns.domain.identity import (
    CapabilityIdentity,
    CapabilityReference,
    PrincipalIdentity,
    SchemaReference,
)
from agentruns.domain.scalars import CapabilityName, SubjectId, TenantId, Version
from agentruns.domain.uris import IssuerId
from agentruns.errors import InvalidOptionError
from agentruns.orm.graphs import GraphDefinitionRow
from agentruns.runtime.arguments import check_argument
from agentruns.runtime.deployment_graphs import DeployableGraph, DeploymentGraphs, check_graph
from agentruns.runtime.deployment_open import OpenDeployment, tenant_id_of
from agentruns.runtime.schema_sources import GraphSchema, SchemaSource, read_schema
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.worker_options import AgentWorkerOptions
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
        check_argument("costs", costs, Mapping)
        self._layers = (AgentAdmissionBudgetLayer.system_default(costs=costs), *budget_layers)
        for layer in self._layers:
            check_argument("budget_layers", layer, AgentAdmissionBudgetLayer)
        self._graphs: list[DeployableGraph] = []
        self._documents: list[GraphSchema] = []

    def add(self, graph: GraphT) -> GraphT:
        """Take a graph into the deployment, and give it back. Its nodes may still be added until it is used.

        Raises:
            TypeError: it is no graph.
        """
        check_graph(graph)
        self._graphs.append(graph)
        return graph

    def add_schema(self, source: SchemaSource, *, name: str, version: str = "1.0.0") -> SchemaReference:
        """Install a document that is no graph's own, such as that of a question or of its answer, and name it.

        Args:
            source: a dict, a file or a class with ``model_json_schema()``.
            name: stands in the document's id, where it has none of its own.
            version: of the content; a changed document is a new version.

        Raises:
            DefinitionError: the source is none, or the document has an unusable id.
            InvalidValueError: name or version break their grammar.
        """
        capability = CapabilityReference(name=CapabilityName(name), version=Version(version))
        identity = CapabilityIdentity(owner=self.owner, capability=capability)
        document = GraphSchema.of(read_schema(source, role=name), role="document", graph=identity)
        self._documents.append(document)
        return document.reference

    def build(self) -> DeploymentGraphs:
        """Compile the graphs that were added so far, and check that they fit together. No database is needed.

        Raises:
            DefinitionError: a graph, a schema or the registry cannot be used as it is defined.
            InvalidOptionError: no graph was added.
        """
        if not self._graphs:
            raise InvalidOptionError(option="graphs", reason="empty", value="none", bound="at least one graph")
        return DeploymentGraphs.build(
            self._graphs, owner=self.owner, budget_layers=self._layers, documents=self._documents
        )

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
            tenant: whose runs; several may be given. By default those of every tenant, of later ones too; then each
                that has one of the graphs is given the others.
            options: of the store.

        Raises:
            DefinitionError: a graph cannot be used; nothing was opened.
            InvalidOptionError: a list of tenants is empty, or the deployment has no graph.
            SchemaVerificationError: migrate the database first.
            IdConflictError: kind ``graph``: a version is published with another content; give it a new version.
        """
        graphs = self.build()
        async with AgentRunStore(url, options) as store:
            yield await opened_on(store, graphs, tenant)


async def opened_on(
    store: AgentRunStore,
    graphs: DeploymentGraphs,
    tenant: TenantId | str | Sequence[TenantId | str] | None,
    *,
    worker_options: AgentWorkerOptions | None = None,
) -> OpenDeployment:
    """Publish graphs on a store that is open, and give what works there; as :meth:`Deployment.open`."""
    named = _given(tenant)
    opened = OpenDeployment(store, graphs, tenants=named, worker_options=worker_options)
    lacking = await _lacking(store, graphs.definitions) if named is None else product(named, graphs.definitions)
    for tenant_id, graph in lacking:
        await opened.runs.publish(tenant_id, graph)
    return opened


def _given(tenant: TenantId | str | Sequence[TenantId | str] | None) -> tuple[TenantId, ...] | None:
    """Take one tenant or several, each once; a list that came out empty is no wish for all of them."""
    if tenant is None:
        return None
    named = (tenant,) if isinstance(tenant, TenantId | str) else tenant
    if not named:
        bound = "at least one tenant, or none at all for every tenant"
        raise InvalidOptionError(option="tenant", reason="missing", value="()", bound=bound)
    return tuple(dict.fromkeys(map(tenant_id_of, named)))


async def _lacking(store: AgentRunStore, graphs: Sequence[CompiledGraph]) -> list[tuple[TenantId, CompiledGraph]]:
    """Find tenants that have some of the graphs, with the graphs that they lack."""
    tenant, digest = GraphDefinitionRow.tenant_id, GraphDefinitionRow.definition_digest
    asked = {graph.reference.definition_digest.raw: graph for graph in graphs}
    statement = select(tenant, digest).where(digest.in_(asked)).order_by(tenant)

    def read(work: UnitOfWork) -> set[tuple[str, bytes]]:
        return {(row.tenant_id, row.definition_digest) for row in work.execute(statement)}

    found = await store.read(read)
    tenants = sorted({of_tenant for of_tenant, _ in found})
    return [(TenantId(each), graph) for each in tenants for raw, graph in asked.items() if (each, raw) not in found]
