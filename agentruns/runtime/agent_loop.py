"""Bind every outcome of a drive to its commit, and give the lease back on every way out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from datetime import timedelta
from enum import Enum, unique
from typing import Any, Final

from attrs import frozen

from agentruns.domain.lease import RunFence
from agentruns.errors import (
    AgentRunsError,
    LeaseLostError,
    RunNotRunnableError,
    RunQuarantinedError,
    StaleHeadError,
)
from agentruns.runtime.committer import RunCommitter
from agentruns.runtime.driver.driver import DurableGraphDriver, GraphDriveResult
from agentruns.runtime.driver.node_task import NodeTask
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.runtime.driver.outcomes import Blocked, CancellationRequested, Deferred, LifecycleBarrierReady, Yielded
from agentruns.runtime.driver.report import GraphDriveReport
from agentruns.runtime.evidence import RunEvidenceProvider
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.lease_keeper import LeaseKeeper
from agentruns.runtime.lifecycle import DurableGraphLifecycle, LifecycleEnd, LifecycleResult
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.telemetry.drives import observed_drive
from agentruns.store.options import check_duration

_log: Final = logging.getLogger("agentruns.runtime.agent_loop")

#: How long a release on the way out may take.
_RELEASE_BOUND: Final = 5.0
_NOT_OURS: Final = (LeaseLostError, RunNotRunnableError, RunQuarantinedError)


@unique
class AgentLoopOutcome(Enum):
    """Say what one turn of a run came to."""

    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RECOVERY_RELEASED = "recovery_released"
    CANCELLATION_CONFIRMED = "cancellation_confirmed"
    DEFERRED = "deferred"
    YIELDED = "yielded"
    CANCELLED = "cancelled"


_BY_END: Final = {
    LifecycleEnd.WAITING: AgentLoopOutcome.WAITING,
    LifecycleEnd.SUCCEEDED: AgentLoopOutcome.SUCCEEDED,
    LifecycleEnd.FAILED: AgentLoopOutcome.FAILED,
    LifecycleEnd.CANCELLED: AgentLoopOutcome.CANCELLATION_CONFIRMED,
    LifecycleEnd.RELEASED: AgentLoopOutcome.RECOVERY_RELEASED,
}


@frozen(kw_only=True)
class AgentLoopResult:
    """How a turn ended, and what it did."""

    outcome: AgentLoopOutcome
    report: GraphDriveReport


class DurableAgentLoop:
    """Drive a claimed run and commit what the drive hands on; one store, one registry, driver and lifecycle together.

    Args:
        error_release_delay: how long a run that could not be driven is left alone; it is durable, so such a run takes
            a worker at most once in that time and never starves its neighbours.
    """

    def __init__(
        self,
        store: AgentRunStore,
        executables: ExecutableGraphRegistry,
        *,
        driver_options: DurableGraphDriverOptions | None = None,
        evidence: RunEvidenceProvider | None = None,
        error_release_delay: timedelta = timedelta(seconds=5),
    ) -> None:
        check_duration("error_release_delay", error_release_delay, low=timedelta(0), high=timedelta(minutes=5))
        committer = RunCommitter(store)
        self._store = store
        self._lifecycle = DurableGraphLifecycle(store, executables, evidence=evidence, committer=committer)
        self._driver = DurableGraphDriver(
            store, executables, driver_options, committer=committer, success=self._lifecycle.success_at_once
        )
        self._error_release_delay = error_release_delay or None
        #: Held strongly: a release goes on although whoever asked for it is gone.
        self._releasing: set[asyncio.Future[None]] = set()

    @property
    def are_threads_exhausted(self) -> bool:
        """Whether nodes that never ended hold every thread, so that no node that needs one is started any more."""
        return self._driver.are_threads_exhausted

    @property
    def executing_nodes(self) -> tuple[NodeTask, ...]:
        """The nodes that execute now, of all runs that are driven here."""
        return self._driver.executing_nodes

    async def run(self, held: HeldLease, shutdown: ShutdownSignal) -> AgentLoopResult:
        """Drive one run under its lease until it ends, sleeps, or is given back.

        Raises:
            NotYetAvailableError: ``driven_here``; this process drives that lease already, and it is left alone.
            AgentRunsError: as the driver or the lifecycle raised it; the lease has been given back, with a delay, or
                it is somebody else's.
        """
        with self._store.driven.driving(held.fence), observed_drive(held) as observed:
            return observed.ended_with(await self._run(held, shutdown))

    async def _run(self, held: HeldLease, shutdown: ShutdownSignal) -> AgentLoopResult:
        try:
            async with LeaseKeeper(self._store, held, interval=self._driver.options.lease_renewal_interval) as keeper:
                driven = await self._driver.drive(keeper, shutdown)
                return AgentLoopResult(outcome=await self._conclude(keeper, driven), report=driven.report)
        except BaseException as error:
            is_nobodys_fault = isinstance(error, StaleHeadError | asyncio.CancelledError)
            delay = None if is_nobodys_fault else self._error_release_delay
            await self._release(held.fence, error, delay=delay)
            raise

    async def _conclude(self, keeper: LeaseKeeper, driven: GraphDriveResult) -> AgentLoopOutcome:
        outcome, fence = driven.outcome, keeper.fence
        if isinstance(outcome, LifecycleBarrierReady):
            return await self._committed(keeper, self._lifecycle.commit_barrier(fence, outcome, driven.intent))
        if isinstance(outcome, Blocked):
            return await self._committed(keeper, self._lifecycle.resolve_blocked(fence, outcome))
        if isinstance(outcome, CancellationRequested):
            return await self._committed(keeper, self._lifecycle.confirm_cancellation(fence, outcome))
        if isinstance(outcome, Deferred):
            return AgentLoopOutcome.DEFERRED
        return AgentLoopOutcome.YIELDED if isinstance(outcome, Yielded) else AgentLoopOutcome.CANCELLED

    async def _committed(self, keeper: LeaseKeeper, commit: Coroutine[Any, Any, LifecycleResult]) -> AgentLoopOutcome:
        keeper.let_go()
        return _BY_END[(await keeper.guard(commit)).end]

    async def _release(self, fence: RunFence, error: BaseException, *, delay: timedelta | None) -> None:
        """Give the exact fence back, whatever else happens to this task; another owner's lease is left alone."""
        release = asyncio.ensure_future(self._store.release(fence, delay=delay))
        self._releasing.add(release)
        release.add_done_callback(self._releasing.discard)
        try:
            async with asyncio.timeout(_RELEASE_BOUND):
                await asyncio.shield(release)
        except _NOT_OURS:
            return
        except (AgentRunsError, TimeoutError) as failure:
            error.add_note(f"the lease of run {fence.run_id} was not given back: {type(failure).__name__}")
            _log.warning(
                "a lease was not given back", extra={"run_id": str(fence.run_id), "error": type(failure).__name__}
            )
