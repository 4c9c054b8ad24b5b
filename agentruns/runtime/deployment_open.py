"""A deployment at work on one database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.canonical import JsonTree
from agentruns.domain.identity import PrincipalIdentity
from agentruns.domain.scalars import TenantId
from agentruns.domain.submission import AgentRunIds, DurableAgentAdmissionRequest
from agentruns.errors import InvalidOptionError
from agentruns.runtime.agent_loop import DurableAgentLoop
from agentruns.runtime.deployment_graphs import DeployableGraph, DeploymentGraphs
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.runtime.replay import RunReader
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.worker import AgentWorker, AgentWorkerOptions


class OpenDeployment:
    """Submit, read and drive runs of a deployment's graphs. Made by :meth:`Deployment.open`.

    Attributes:
        store: the open store.
        graphs: what can be run.
        tenants: whose runs; each has the graphs.
        runs: admits runs and reads them.
        reader: folds and verifies whole records.
    """

    def __init__(self, store: AgentRunStore, graphs: DeploymentGraphs, *, tenants: Sequence[TenantId]) -> None:
        self.store = store
        self.graphs = graphs
        self.tenants = tuple(tenants)
        self.runs = DurableAgentRuns(store, graphs.executables)
        self.reader = RunReader(store, graphs.executables)

    @property
    def tenant(self) -> TenantId:
        """The only tenant.

        Raises:
            InvalidOptionError: there are several, so name the one that is meant.
        """
        if len(self.tenants) != 1:
            bound = "the tenant that is meant, where there are several"
            raise InvalidOptionError(option="tenant", reason="ambiguous", value="none", bound=bound)
        return self.tenants[0]

    def request(
        self,
        graph: DeployableGraph,
        *,
        input: JsonTree,  # noqa: A002 - the member's name
        state: JsonTree = None,
        tenant: TenantId | str | None = None,
        ids: AgentRunIds | None = None,
        principal: PrincipalIdentity | None = None,
        granted_scopes: Iterable[str] = (),
        budget_limits: BudgetLimits | None = None,
    ) -> DurableAgentAdmissionRequest:
        """Ask for a run of a graph. Pure: equal arguments make equal content, with fresh ids, so a retry may call it.

        Args:
            graph: one that was added to the deployment.
            input: what the run is asked to do, under the graph's input schema.
            state: what the run begins with, under its state schema; by default the input.
            tenant: whose run it is; by default the only tenant.
            ids: candidates; fresh ones by default.
            principal: on whose behalf the run is admitted; by default the deployment's owner.
            granted_scopes: what the principal may use.
            budget_limits: what this run may use at most, besides the deployment's limits.

        Raises:
            ExecutableGraphUnavailableError: ``not_installed``; add the graph to the deployment.
            InvalidValueError: the first rule that the request breaks.
        """
        return self.graphs.request(
            graph,
            tenant_id=self.tenant if tenant is None else tenant_id_of(tenant),
            input=input,
            state=state,
            ids=ids,
            principal=principal,
            granted_scopes=granted_scopes,
            budget_limits=budget_limits,
        )

    def make_worker(
        self,
        options: AgentWorkerOptions | None = None,
        *,
        driver_options: DurableGraphDriverOptions | None = None,
    ) -> AgentWorker:
        """Make a worker for the runs of all tenants; the caller runs it."""
        loop = DurableAgentLoop(self.store, self.graphs.executables, driver_options=driver_options)
        return AgentWorker(self.store, self.graphs.executables, tenants=self.tenants, loop=loop, options=options)

    @asynccontextmanager
    async def worker(
        self,
        options: AgentWorkerOptions | None = None,
        *,
        driver_options: DurableGraphDriverOptions | None = None,
    ) -> AsyncIterator[ShutdownSignal]:
        """Drive runs in the background inside the block; leaving it drains, and an error in it stops at once."""
        shutdown = ShutdownSignal()
        working = asyncio.create_task(self.make_worker(options, driver_options=driver_options).run(shutdown))
        try:
            yield shutdown
        except BaseException:
            shutdown.stop()
            raise
        finally:
            shutdown.drain()
            await working


def tenant_id_of(tenant: TenantId | str) -> TenantId:
    """Take a tenant as its id or as text."""
    return tenant if isinstance(tenant, TenantId) else TenantId(tenant)
