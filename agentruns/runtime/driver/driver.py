"""The driver: one live fence in, committed supersteps, and one of six outcomes out."""

from __future__ import annotations

from attrs import frozen

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.ledger.documents import DRIVER_EVENT
from agentruns.runtime.committer import RunCommitter
from agentruns.runtime.driver.computing import computing_threads
from agentruns.runtime.driver.drive import Drive
from agentruns.runtime.driver.ending import SuccessAtOnce
from agentruns.runtime.driver.loop_watch import LoopWatch
from agentruns.runtime.driver.node_task import NodeTask
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.runtime.driver.outcomes import GraphDriveOutcome, is_last_of
from agentruns.runtime.driver.parts import DriveParts
from agentruns.runtime.driver.report import GraphDriveReport
from agentruns.runtime.driver.threads import NodeThreads
from agentruns.runtime.kept_runs import KeptRuns
from agentruns.runtime.lease_keeper import LeaseKeeper
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.replay import RunReader
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.store import AgentRunStore


@frozen(kw_only=True)
class GraphDriveResult:
    """How a drive ended.

    Attributes:
        intent: what was admitted; the lifecycle needs it for the result.
    """

    outcome: GraphDriveOutcome
    report: GraphDriveReport
    intent: AgentAdmissionIntent


class DurableGraphDriver:
    """Advance claimed runs on durable evidence.

    Args:
        committer: shared with the lifecycle, so that their commits share statements.
        success: what a lifecycle lets a run end with in the commit of its last completion; without it every end is
            handed on.

    Raises on construction:
        SchemaUnavailableError: the registry lacks the exact schema of the driver's events.
        InvalidOptionError: the options contradict the store's.
    """

    def __init__(
        self,
        store: AgentRunStore,
        executables: ExecutableGraphRegistry,
        options: DurableGraphDriverOptions | None = None,
        *,
        committer: RunCommitter | None = None,
        success: SuccessAtOnce | None = None,
    ) -> None:
        self.options = options or DurableGraphDriverOptions()
        self.options.check_against(store.options)
        executables.schemas.require(DRIVER_EVENT)
        kept = KeptRuns() if self.options.reuse_verified_prefix else None
        computing = computing_threads()
        self._reader = RunReader(store, executables, kept=kept, limits=self.options.replay, threads=computing)
        self._parts = DriveParts(
            store=store,
            reader=self._reader,
            committer=committer or RunCommitter(store),
            threads=NodeThreads(self.options.thread_count),
            computing=computing,
            watch=LoopWatch(store.options.lease_duration.total_seconds() / 3),
            options=self.options,
            success=success,
        )

    @property
    def are_threads_exhausted(self) -> bool:
        """Whether nodes that never ended hold every thread, so that no node that needs one is started any more."""
        return self._parts.threads.are_exhausted

    @property
    def executing_nodes(self) -> tuple[NodeTask, ...]:
        """The nodes that execute now, of all drives of this driver."""
        return self._parts.watch.executing

    async def drive(self, keeper: LeaseKeeper, shutdown: ShutdownSignal) -> GraphDriveResult:
        """Drive the run whose lease ``keeper`` keeps, until something must be decided elsewhere.

        The lease is kept with the outcomes that are handed on (``LifecycleBarrierReady`` unless its commit is done,
        ``Blocked``, ``CancellationRequested``) and given back with the others. After an exception it is the caller's to
        release.

        Raises:
            RunQuarantinedError: the record contradicts itself, and the run is isolated now.
            LeaseLostError: the fence is not the live one; nothing more was written.
            ExecutableGraphUnavailableError: this process lacks the run's graph, or cannot fold it now.
            StoreUnavailableError: the database is away.
        """
        report = GraphDriveReport()
        drive = Drive(self._parts, keeper, shutdown, report)
        try:
            outcome = await keeper.guard(drive.run())
        except BaseException:
            self._reader.forget(keeper.fence.tenant_id, keeper.fence.run_id)
            raise
        finally:
            report.lease_renewals = keeper.renewals
            report.finish()
        if is_last_of(outcome):
            self._reader.forget(keeper.fence.tenant_id, keeper.fence.run_id)
        else:
            self._reader.keep(drive.state, drive.graph, drive.intent)
        return GraphDriveResult(outcome=outcome, report=report, intent=drive.intent)
