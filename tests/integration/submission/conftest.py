"""What every test of submissions uses: a published graph, and requests for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

import pytest
from attrs import frozen
from sqlalchemy import event, func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.admission import AgentAdmissionBudgetLayer
from agentruns.domain.agent import AgentDescriptor
from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.canonical import JsonTree
from agentruns.domain.graph.definition import CompiledGraph, GraphNode
from agentruns.domain.graph.reducers import MergeReducer
from agentruns.domain.scalars import TenantId
from agentruns.domain.schema import JsonSchemaRegistryBuilder
from agentruns.domain.submission import AgentRunIds, DurableAgentAdmissionRequest
from agentruns.domain.timestamps import Timestamp
from agentruns.orm import Base
from agentruns.runtime.registry import ExecutableGraphRegistry, ExecutableGraphRegistryBuilder
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.standard_schemas import register_standard_schemas
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import StoreOptions
from agentruns.testing import graphs as sample_graphs
from agentruns.testing import samples
from agentruns.testing.stored_stories import Teller

TENANT = samples.TENANT
KEYWORDS: sample_graphs.Keywords = {"input": {"type": "object"}, "state": {"type": "object"}}
NODES = (
    GraphNode.of("a", continue_to=["b"], wait_to=["b"]),
    GraphNode.of("b", terminal=True),
)


def graph_of(
    name: str = "sample-graph", *, version: str = "1.0.0", nodes: tuple[GraphNode, ...] = NODES
) -> CompiledGraph:
    return sample_graphs.graph_of(nodes, name=name, version=version, keywords=KEYWORDS)


def executables_of(
    *graphs: CompiledGraph, evidence: Mapping[str, JsonTree] | None, more: Sequence[str] = ()
) -> ExecutableGraphRegistry:
    """Install graphs, their schemas, and that of evidence unless it is ``None``.

    ``more`` names documents that accept everything.
    """
    builder = JsonSchemaRegistryBuilder()
    sample_graphs.add_schemas(builder, keywords=KEYWORDS)
    if evidence is not None:
        builder.add(samples.schema_document("evidence", **evidence), "1.0.0")
    for name in more:
        builder.add(samples.schema_document(name), "1.0.0")
    register_standard_schemas(builder)
    registry = ExecutableGraphRegistryBuilder(builder.build())
    if graphs:
        registry.register_reducer(MergeReducer())
    for graph in graphs:
        registry.register_graph(graph)
        for node in graph.nodes:
            registry.register_node(
                sample_graphs.NodeFunction(graph=graph.reference, node_id=node.node_id, function=lambda _context: None)
            )
    return registry.build()


@frozen
class Kit:
    """Make submissions against one database, and look at what they left.

    Attributes:
        url: for the role that submits.
        owner_url: of the same database, for a superuser.
    """

    url: str
    owner_url: str
    graph: CompiledGraph
    executables: ExecutableGraphRegistry

    def request(
        self,
        *,
        tenant_id: TenantId = TENANT,
        ids: AgentRunIds | None = None,
        input: JsonTree = None,  # noqa: A002
        graph: CompiledGraph | None = None,
        deadline: Timestamp = Timestamp.STORED_MAX,
        state: JsonTree = None,
        evidence: JsonTree = None,
        evidence_type: str | None = None,
        limits: BudgetLimits | None = None,
        agent: str = "sample-agent",
    ) -> DurableAgentAdmissionRequest:
        """Ask for a run with fresh ids; equal arguments make equal content."""
        pinned = graph or self.graph
        input_schema = samples.schema_reference("input", **KEYWORDS["input"])
        return samples.admission_request(
            tenant_id=tenant_id,
            ids=ids or AgentRunIds.generate(),
            descriptor=self.agent_of(agent),
            request=samples.agent_request(
                input={"text": "hello"} if input is None else input, input_schema=input_schema, budget_limits=limits
            ),
            budget_layers=(AgentAdmissionBudgetLayer.system_default(deadline=deadline),),
            graph=pinned.reference,
            granted=samples.authority(
                evidence=evidence,
                evidence_schema=samples.schema_reference(
                    "evidence", **({"type": evidence_type} if evidence_type else {})
                ),
            ),
            initial_state=samples.graph_state({} if state is None else state, schema=pinned.state_schema),
        )

    @staticmethod
    def agent_of(name: str) -> AgentDescriptor:
        return samples.agent(
            name,
            input_schema=samples.schema_reference("input", **KEYWORDS["input"]),
            output_schema=samples.schema_reference("output"),
        )

    @asynccontextmanager
    async def runs(
        self, *, publish: bool = True, executables: ExecutableGraphRegistry | None = None, **options: Any
    ) -> AsyncIterator[DurableAgentRuns]:
        """Open a store, and publish the sample graph to the sample tenant."""
        async with AgentRunStore(self.url, StoreOptions(**options)) as store:
            facade = DurableAgentRuns(store, executables or self.executables)
            if publish:
                await facade.publish(TENANT, self.graph)
            yield facade

    @asynccontextmanager
    async def engine(self, *, as_owner: bool = False, **options: Any) -> AsyncIterator[AsyncEngine]:
        """Make an engine as an application has one, or for whoever may damage what is stored."""
        engine = create_async_engine(self.owner_url if as_owner else self.url, **(options or {"poolclass": NullPool}))
        try:
            yield engine
        finally:
            await engine.dispose()

    def executables_of(
        self,
        *,
        graphs: tuple[CompiledGraph, ...] | None = None,
        evidence: Mapping[str, JsonTree] | None = MappingProxyType({}),
        more: Sequence[str] = (),
    ) -> ExecutableGraphRegistry:
        """Make a registry of another deployment; by default it has the sample graph and everything it needs."""
        return executables_of(*((self.graph,) if graphs is None else graphs), evidence=evidence, more=more)

    def sent(self, engine: AsyncEngine) -> list[str]:
        """Collect the statements that an engine sends from now on; that others are told of it is none of a call's."""
        statements: list[str] = []

        def before(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if "pg_notify" not in statement:
                statements.append(statement)

        event.listen(engine.sync_engine, "before_cursor_execute", before)
        return statements

    async def count(self, connection: AsyncConnection) -> dict[str, int]:
        """Count the rows of every table that has any, graphs and applied revisions aside."""
        counted = {}
        for table in Base.metadata.sorted_tables:
            number = (await connection.execute(select(func.count()).select_from(table))).scalar_one()
            if number and table.name not in ("applied_revisions", "graph_definitions"):
                counted[table.name] = number
        return counted

    async def rows(self) -> dict[str, int]:
        """Count the committed rows."""
        async with self.engine() as engine, engine.connect() as connection:
            return await self.count(connection)


@pytest.fixture(name="graph_of", scope="session")
def give_graph_of() -> Callable[..., CompiledGraph]:
    """Make graphs like the sample one: ``graph_of(name, version=…)``."""
    return graph_of


@pytest.fixture(scope="session")
def kit_of(server: Any) -> Callable[[str], Kit]:
    """Make the kit of a migrated database: ``kit_of(url)``."""
    graph = graph_of()
    executables = executables_of(graph, evidence={})
    return lambda url: Kit(url, server.superuser_url(url), graph, executables)


@pytest.fixture
def kit(database_url: str, kit_of: Callable[[str], Kit]) -> Kit:
    return kit_of(database_url)


@pytest.fixture
def tell(kit: Kit) -> Teller:
    """Bring runs where stories lead: ``await tell(runs, name)``."""
    return Teller(kit)
