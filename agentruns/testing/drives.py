"""Drive runs in a test: graphs of plain functions, a store with its leases, and a look at what was written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

from attrs import Factory, define, field
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.admission import AgentAdmissionBudgetLayer
from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.canonical import JsonTree
from agentruns.domain.graph.executable import GraphNodeScheduling
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.schema import JsonSchemaRegistryBuilder
from agentruns.domain.snapshot import AgentRunSnapshot
from agentruns.domain.submission import AgentRunIds, DurableAgentAdmissionRequest
from agentruns.orm import Base
from agentruns.runtime.agent_loop import AgentLoopResult, DurableAgentLoop
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.runtime.graph_builder import GraphBuilder
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.registry import ExecutableGraphRegistry, ExecutableGraphRegistryBuilder
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.standard_schemas import register_standard_schemas
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import StoreOptions
from agentruns.testing import samples

TENANT: Final = samples.TENANT

_PATIENCE: Final = 30.0
_ANY: Final[dict[str, JsonTree]] = {"type": "object"}
_Function = Callable[[Any], Any]


def builder(*, maximum_supersteps: int = 1024) -> GraphBuilder:
    """Begin a graph whose documents are any objects."""
    return GraphBuilder(
        "sample-graph",
        "1.0.0",
        input=_ANY,
        state=_ANY,
        output=_ANY,
        maximum_supersteps=maximum_supersteps,
        owner=samples.principal(),
    )


def chain(**functions: _Function) -> GraphBundle:
    """Build nodes that follow one another in the order given; the last one may finish."""
    graph = builder()
    names = list(functions)
    for place, name in enumerate(names):
        is_last = place == len(names) - 1
        then = None if is_last else names[place + 1]
        graph.node(name=name, entry=place == 0, then=then, terminal=is_last)(functions[name])
    return graph.build()


def fan(*, first: Mapping[str, _Function], last: _Function) -> GraphBundle:
    """Build isolated siblings that are joined by one last node, ``z_last``."""
    graph = builder()
    for name, function in first.items():
        graph.node(name=name, entry=True, then="z_last", scheduling=GraphNodeScheduling.JOURNAL_ISOLATED)(function)
    graph.node(name="z_last", terminal=True)(last)
    return graph.build()


def executables_of(bundle: GraphBundle) -> ExecutableGraphRegistry:
    """Register one graph with everything that it needs."""
    documents = JsonSchemaRegistryBuilder()
    register_standard_schemas(documents)
    documents.add(samples.schema_document("evidence"), "1.0.0")
    bundle.register_schemas(documents)
    registry = ExecutableGraphRegistryBuilder(documents.build())
    bundle.register(registry)
    return registry.build()


async def sleep_for_ever(_context: Any) -> None:
    """Execute a node that ends only when it is aborted."""
    await asyncio.Event().wait()


@define
class DriveWorld:
    """Hold one database, one graph, and a worker's parts.

    Attributes:
        url: of a migrated database that belongs to the test, for a superuser.
        shutdown: what every drive of the world listens to.
        store_url: of the same database, for the role that the store works as.
    """

    url: str
    bundle: GraphBundle
    store: AgentRunStore
    runs: DurableAgentRuns
    loop: DurableAgentLoop
    executables: ExecutableGraphRegistry
    shutdown: ShutdownSignal = field(factory=ShutdownSignal)
    store_url: str = field(default=Factory(lambda self: self.url, takes_self=True))
    _engine: AsyncEngine = field(init=False, repr=False, eq=False)

    @_engine.default
    def _connecting_each_time(self) -> AsyncEngine:
        return create_async_engine(self.url, poolclass=NullPool)

    def request(self, given: JsonTree = None, *, limits: BudgetLimits | None = None) -> DurableAgentAdmissionRequest:
        """Make a request for a run of the graph, with fresh ids and an empty state; by default its input is empty."""
        graph = self.bundle.graph
        return samples.admission_request(
            ids=AgentRunIds.generate(),
            descriptor=samples.agent(input_schema=graph.input_schema, output_schema=graph.output_schema),
            request=samples.agent_request(input=given or {}, input_schema=graph.input_schema, budget_limits=limits),
            budget_layers=(AgentAdmissionBudgetLayer.system_default(),),
            graph=graph.reference,
            initial_state=samples.graph_state({}, schema=graph.state_schema),
        )

    async def submitted(self, *, limits: BudgetLimits | None = None) -> RunId:
        """Admit a run of the graph with empty input and state."""
        request = self.request(limits=limits)
        await self.runs.admit(request)
        return request.run_id

    async def claimed(self, run_id: RunId) -> HeldLease:
        """Take the run's lease under a fresh attempt id."""
        return await self.store.claim(TENANT, run_id, AttemptId.generate())

    async def driven(self, run_id: RunId) -> AgentLoopResult:
        """Claim the run and drive it until it ends, sleeps or is given back."""
        return await self.loop.run(await self.claimed(run_id), self.shutdown)

    async def loaded(self, run_id: RunId) -> AgentRunSnapshot:
        """Read the run, verified."""
        return await self.runs.load(TENANT, run_id)

    async def rows(self, statement: str, **values: Any) -> list[Any]:
        """Read, or damage, rows behind the library's back: as a superuser, without triggers."""
        async with self._engine.begin() as connection:
            await connection.execute(text("SET LOCAL session_replication_role = replica"))
            result = await connection.execute(text(statement), values)
            return list(result.all()) if result.returns_rows else []

    async def everything(self) -> list[tuple[str, str]]:
        """Read every row of every table as text: equal before and after what changes nothing."""
        each = "SELECT '{0}' AS name, t::text AS row FROM agentruns.{0} AS t"
        selects = [each.format(table.name) for table in Base.metadata.sorted_tables]
        return [(found.name, found.row) for found in await self.rows(" UNION ALL ".join(selects) + " ORDER BY 1, 2")]

    async def kinds(self) -> list[str]:
        """List the kinds of all events, in the order of the journal."""
        return [row.kind for row in await self.rows("SELECT kind FROM agentruns.run_events ORDER BY sequence")]

    async def commits(self) -> list[int]:
        """Count the events of each transaction, in the order of the journal."""
        found = await self.rows(
            "SELECT count(*) AS events FROM agentruns.run_events GROUP BY xmin::text ORDER BY min(sequence)"
        )
        return [row.events for row in found]

    async def until(self, kind: str, *, count: int = 1) -> None:
        """Return once that many events of a kind are durable.

        Raises:
            TimeoutError: they do not come.
        """
        async with asyncio.timeout(_PATIENCE):
            while (await self.kinds()).count(kind) < count:  # noqa: ASYNC110  # it happens in the server
                await asyncio.sleep(0.01)

    async def attempts(self) -> list[tuple[str, int, int]]:
        """List node, attempt and epoch of every start, in the order of the journal."""
        found = await self.rows(
            "SELECT node_id, attempt, epoch FROM agentruns.node_attempts JOIN agentruns.run_events"
            " USING (tenant_id, run_id, sequence) ORDER BY sequence"
        )
        return [(row.node_id, row.attempt, row.epoch) for row in found]

    async def expire_leases(self) -> None:
        """Move all leases into the past by the database's clock, as if their owners had been silent."""
        await self.rows(
            "UPDATE agentruns.runs SET lease_acquired_at = lease_acquired_at - interval '1 h',"
            " lease_renewed_at = lease_renewed_at - interval '1 h', lease_expires_at = clock_timestamp()"
            " WHERE lease_attempt_id IS NOT NULL"
        )


@asynccontextmanager
async def open_world(
    url: str,
    bundle: GraphBundle,
    *,
    store_url: str | None = None,
    lease: timedelta = timedelta(seconds=12),
    delay: timedelta = timedelta(0),
    **options: Any,
) -> AsyncIterator[DriveWorld]:
    """Open a store on ``url``, publish the graph to the sample tenant, and give what drives its runs.

    Args:
        url: of a migrated database, for a superuser where the test looks at it or damages it.
        bundle: the graph.
        store_url: of the same database for a role with less, which the store then works as.
        lease: how long a claim lasts; long enough for a machine that stands still for a while.
        delay: how long a run that could not be driven is left alone.
        options: of the driver.
    """
    executables = executables_of(bundle)
    store_url = store_url or url
    async with AgentRunStore(store_url, StoreOptions(lease_duration=lease)) as store:
        runs = DurableAgentRuns(store, executables)
        await runs.publish(TENANT, bundle.graph)
        driver_options = DurableGraphDriverOptions(lease_renewal_interval=lease / 4, **options)
        loop = DurableAgentLoop(store, executables, driver_options=driver_options, error_release_delay=delay)
        yield DriveWorld(url, bundle, store, runs, loop, executables, store_url=store_url)
