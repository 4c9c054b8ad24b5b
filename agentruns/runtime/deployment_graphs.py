"""The graphs of a deployment, compiled and bound to their code, and the requests for runs of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Self, TypeAlias

from attrs import field, frozen

from agentruns.domain.admission import AgentAdmissionBudgetLayer
from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.canonical import JsonTree
from agentruns.domain.graph.definition import CompiledGraph
from agentruns.domain.identity import CapabilityIdentity, PrincipalIdentity
from agentruns.domain.request import AgentRequest
from agentruns.domain.scalars import TenantId
from agentruns.domain.schema import JsonSchemaRegistryBuilder
from agentruns.domain.submission import AgentRunIds, DurableAgentAdmissionRequest, GraphState
from agentruns.errors import ExecutableGraphUnavailableError
from agentruns.runtime.arguments import check_argument
from agentruns.runtime.deployment_grant import agent_of, authority_of
from agentruns.runtime.graph_builder import GraphBuilder
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.registry import ExecutableGraphRegistry, ExecutableGraphRegistryBuilder
from agentruns.runtime.schema_sources import GraphSchema
from agentruns.runtime.standard_schemas import register_standard_schemas

#: What a deployment takes as a graph: one that is being defined, or one that has been built.
DeployableGraph: TypeAlias = GraphBuilder | GraphBundle


@frozen(kw_only=True, eq=False)
class DeploymentGraphs:
    """Hold what a deployment can run, checked whole.

    Attributes:
        owner: who publishes the graphs that name no owner, and admits runs where nobody else is named.
        budget_layers: what every run is limited by, besides the limits of its own request.
        executables: graphs, code and schemas, the library's own among them.
    """

    owner: PrincipalIdentity
    budget_layers: tuple[AgentAdmissionBudgetLayer, ...]
    executables: ExecutableGraphRegistry
    _graphs: Mapping[CapabilityIdentity, CompiledGraph] = field(repr=False)

    @classmethod
    def build(
        cls,
        graphs: Iterable[DeployableGraph],
        *,
        owner: PrincipalIdentity,
        budget_layers: tuple[AgentAdmissionBudgetLayer, ...],
        documents: Iterable[GraphSchema] = (),
    ) -> Self:
        """Build the graphs, and register them with their schemas and those of the library.

        Raises:
            DefinitionError: a graph, a schema or the registry cannot be used as it is defined.
        """
        bundles = [graph.build(owner=owner) if isinstance(graph, GraphBuilder) else graph for graph in graphs]
        return cls(
            owner=owner,
            budget_layers=budget_layers,
            executables=_registered(bundles, documents),
            graphs=MappingProxyType({bundle.graph.identity: bundle.graph for bundle in bundles}),
        )

    @property
    def definitions(self) -> tuple[CompiledGraph, ...]:
        """The definitions, in the order in which the graphs were added."""
        return tuple(self._graphs.values())

    def compiled(self, graph: DeployableGraph) -> CompiledGraph:
        """Give the definition of one of the graphs.

        Raises:
            ExecutableGraphUnavailableError: ``not_installed``; it was not added to the deployment.
            TypeError: it is no graph.
        """
        check_graph(graph)
        if isinstance(graph, GraphBundle):
            identity = graph.graph.identity
        else:
            identity = CapabilityIdentity(owner=graph.owner or self.owner, capability=graph.capability)
        found = self._graphs.get(identity)
        if found is None:
            raise ExecutableGraphUnavailableError(reason="not_installed", graph=identity.capability.name)
        return found

    def request(
        self,
        graph: DeployableGraph,
        *,
        tenant_id: TenantId,
        input: JsonTree,  # noqa: A002 - the member's name
        state: JsonTree = None,
        ids: AgentRunIds | None = None,
        principal: PrincipalIdentity | None = None,
        granted_scopes: Iterable[str] = (),
        budget_limits: BudgetLimits | None = None,
    ) -> DurableAgentAdmissionRequest:
        """Ask for a run: see :meth:`OpenDeployment.request`."""
        compiled = self.compiled(graph)
        if ids is None:
            ids = AgentRunIds.generate()
        check_argument("ids", ids, AgentRunIds)
        return DurableAgentAdmissionRequest.new(
            tenant_id=tenant_id,
            ids=ids,
            agent=agent_of(compiled),
            request=AgentRequest.of(input_schema=compiled.input_schema, input=input, budget_limits=budget_limits),
            budget_layers=self.budget_layers,
            graph=compiled.reference,
            authority=authority_of(
                compiled, tenant_id=tenant_id, principal=principal or self.owner, granted_scopes=granted_scopes
            ),
            initial_state=GraphState.of(compiled.state_schema, input if state is None else state),
        )


def check_graph(graph: object) -> None:
    """Insist on a graph.

    Raises:
        TypeError: it is none; it says what to pass.
    """
    if not isinstance(graph, DeployableGraph):
        raise TypeError(f"pass graph as a GraphBuilder or GraphBundle, not {type(graph).__name__}")


def _registered(bundles: Iterable[GraphBundle], more: Iterable[GraphSchema]) -> ExecutableGraphRegistry:
    documents = JsonSchemaRegistryBuilder()
    register_standard_schemas(documents)
    for bundle in bundles:
        bundle.register_schemas(documents)
    for each in more:
        each.register(documents)
    registry = ExecutableGraphRegistryBuilder(documents.build())
    for bundle in bundles:
        bundle.register(registry)
    return registry.build()
