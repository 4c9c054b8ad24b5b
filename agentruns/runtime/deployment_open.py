"""A deployment at work on one database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.canonical import JsonTree
from agentruns.domain.identity import PrincipalIdentity
from agentruns.domain.scalars import TenantId
from agentruns.domain.submission import AgentRunIds, DurableAgentAdmissionRequest
from agentruns.errors import InvalidOptionError
from agentruns.runtime.agent_loop import DurableAgentLoop
from agentruns.runtime.deployment_graphs import DeployableGraph, DeploymentGraphs
from agentruns.runtime.discovery import DurableRunDiscovery
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.runtime.fair_shard import FairShard
from agentruns.runtime.replay import RunReader
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.waits import DurableRunWaits
from agentruns.runtime.work_report import WorkReport
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_events import OnWorkerEvent
from agentruns.runtime.worker_options import AgentWorkerOptions

_log: Final = logging.getLogger("agentruns.runtime.worker")


class OpenDeployment:
    """Submit, read and drive runs of a deployment's graphs. Made by :meth:`Deployment.open`.

    Attributes:
        store: the open store.
        graphs: what can be run.
        tenants: whose runs, each of which has the graphs; ``None`` for those of all tenants, of later ones too.
        worker_options: of a worker that is made without any.
        runs: admits runs and reads them.
        waits: shows what runs wait for and answers it.
        reader: folds and verifies whole records.
        discovery: shows which runs are ready to be claimed, and who has some.
    """

    def __init__(
        self,
        store: AgentRunStore,
        graphs: DeploymentGraphs,
        *,
        tenants: Sequence[TenantId] | None,
        worker_options: AgentWorkerOptions | None = None,
    ) -> None:
        self.store = store
        self.worker_options = worker_options
        self.graphs = graphs
        self.tenants = None if tenants is None else tuple(tenants)
        self.runs = DurableAgentRuns(store, graphs.executables)
        self.waits = DurableRunWaits(store, graphs.executables)
        self.reader = RunReader(store, graphs.executables)
        self.discovery = DurableRunDiscovery(store, graphs.executables)

    @property
    def tenant(self) -> TenantId:
        """The only tenant.

        Raises:
            InvalidOptionError: there are several, so name the one that is meant.
        """
        if self.tenants is None or len(self.tenants) != 1:
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
        fairness: FairShard | None = None,
        on_event: OnWorkerEvent | None = None,
    ) -> AgentWorker:
        """Make a worker for the runs of the deployment's tenants; the caller runs it.

        Args:
            options: of the worker.
            driver_options: of its drives.
            fairness: the shared cycle by which tenants take turns; without it each process rotates.
            on_event: called with each event of the worker's work, on the event loop; it must return at once.
        """
        executables = self.graphs.executables
        loop = DurableAgentLoop(self.store, executables, driver_options=driver_options)
        return AgentWorker(
            self.store,
            executables,
            tenants=self.tenants,
            loop=loop,
            options=options or self.worker_options,
            fairness=fairness,
            on_event=on_event,
        )

    async def run_until_idle(
        self,
        options: AgentWorkerOptions | None = None,
        *,
        driver_options: DurableGraphDriverOptions | None = None,
        fairness: FairShard | None = None,
    ) -> WorkReport:
        """Drive what is ready until nothing is, and say what was done; as :meth:`AgentWorker.run_until_idle`."""
        worker = self.make_worker(options, driver_options=driver_options, fairness=fairness)
        return await worker.run_until_idle()

    @asynccontextmanager
    async def worker(
        self,
        options: AgentWorkerOptions | None = None,
        *,
        driver_options: DurableGraphDriverOptions | None = None,
        fairness: FairShard | None = None,
        on_event: OnWorkerEvent | None = None,
    ) -> AsyncIterator[ShutdownSignal]:
        """Drive runs in the background inside the block; leaving it drains, and an error in it stops at once.

        A worker that fails does not interrupt the block: it is logged at once with the class of its error, which is
        raised when the block is left, unless the block has an error of its own.

        Raises:
            AgentRunsError: as :meth:`AgentWorker.run` raised it.
        """
        shutdown = ShutdownSignal()
        worker = self.make_worker(options, driver_options=driver_options, fairness=fairness, on_event=on_event)
        working = asyncio.create_task(_work(worker, shutdown))
        try:
            yield shutdown
        except BaseException:
            shutdown.stop()
            # What the worker failed of is in the log; the caller has to see what went wrong first.
            await asyncio.gather(working, return_exceptions=True)
            raise
        shutdown.drain()
        await working


async def _work(worker: AgentWorker, shutdown: ShutdownSignal) -> None:
    """Tell at once of a worker that fails: nobody waits for it before its block is left."""
    try:
        await worker.run(shutdown)
    except Exception as error:
        _log.error("the background worker ended", extra={"error": type(error).__name__})
        raise


def tenant_id_of(tenant: TenantId | str) -> TenantId:
    """Take a tenant as its id or as text."""
    return tenant if isinstance(tenant, TenantId) else TenantId(tenant)
