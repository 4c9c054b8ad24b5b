"""A worker: claim what is ready, drive it, and give everything back on the way out."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from agentruns.domain.ids import AttemptId
from agentruns.domain.scalars import TenantId
from agentruns.errors import InvalidOptionError, StoreError
from agentruns.runtime.agent_loop import DurableAgentLoop
from agentruns.runtime.backlog_watch import BacklogWatch
from agentruns.runtime.discovery import DurableRunDiscovery
from agentruns.runtime.driven_runs import DrivenRun
from agentruns.runtime.fair_shard import FairShard
from agentruns.runtime.health_watch import HealthWatch
from agentruns.runtime.idling import Idling
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.retry import as_store_error
from agentruns.runtime.schema_watch import SchemaWatch
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.supervision import Supervision
from agentruns.runtime.supervisor import DurableRunSupervisor
from agentruns.runtime.tenant_turns import FairTurns, TenantRotation, TenantTurns
from agentruns.runtime.work_report import WorkReport
from agentruns.runtime.worker_drives import WorkerDrives
from agentruns.runtime.worker_events import OnWorkerEvent, WorkerObserver, WorkerStarted, WorkerStopped
from agentruns.runtime.worker_health import NODE_THREADS_EXHAUSTED, HealthRecord, WorkerHealth
from agentruns.runtime.worker_options import AgentWorkerOptions

_log: Final = logging.getLogger("agentruns.runtime.worker")

_MAXIMUM_BATCH: Final = 64
#: Work is back within five seconds of a database that is, however long it was away.
_LONGEST_BACK_OFF: Final = 4.0
#: As often as this a pause is doubled at most; by then it has reached the longest.
_DOUBLED: Final = 6


class AgentWorker:
    """Drive the ready runs of some tenants, or of all, as many at once as it has slots.

    It only claims runs whose graph this process has. A run is never tied to a worker: whoever claims it next goes on
    from the record. Tenants take turns: by a shared cycle of weights with ``fairness``, and without it one after the
    other, so that no backlog of one keeps another waiting.

    Without ``tenants`` it serves whoever has work, those that come later too; with ``fairness`` whoever has a weight.

    Args:
        on_event: called with each event of its work, on the event loop; it must return at once. What it raises touches
            no run.
    """

    def __init__(
        self,
        store: AgentRunStore,
        executables: ExecutableGraphRegistry,
        *,
        tenants: Sequence[TenantId] | None = None,
        loop: DurableAgentLoop | None = None,
        options: AgentWorkerOptions | None = None,
        fairness: FairShard | None = None,
        on_event: OnWorkerEvent | None = None,
    ) -> None:
        if tenants is not None and not tenants:
            bound = "at least one tenant, or None for all that have work"
            raise InvalidOptionError(option="tenants", value="()", bound=bound)
        if tenants is None and fairness is not None:
            tenants = fairness.tenants
        self._tenants = None if tenants is None else tuple(tenants)
        self._store = store
        self._executables = executables
        self._loop = loop or DurableAgentLoop(store, executables)
        self._options = options or AgentWorkerOptions()
        discovery = DurableRunDiscovery(store, executables)
        self._turns: TenantTurns = (
            TenantRotation(discovery, tenants) if fairness is None else FairTurns(discovery, tenants, shard=fairness)
        )
        self._observer = None if on_event is None else WorkerObserver(on_event)
        self._supervision = Supervision(
            DurableRunSupervisor(store, executables),
            discovery,
            tenants=tenants,
            interval=self._options.supervision_interval,
            observer=self._observer,
        )
        self._backlog = BacklogWatch(store, executables, self._tenants)
        self._idling = Idling(store, executables, tenants, self._options)
        self._drives = WorkerDrives(self._loop, self._observer, ended=self._idling.wake)
        self._record = HealthRecord(self._trouble)

    @property
    def health(self) -> WorkerHealth:
        """Whether it can do its work. It asks nobody, so a probe may ask as often as it likes."""
        return self._record.health

    @property
    def drives(self) -> tuple[DrivenRun, ...]:
        """What it drives at this moment, the run that was claimed first before the others; to be asked on its loop."""
        return self._drives.runs

    @property
    def is_listening(self) -> bool:
        """Whether this worker is told at once when something is ready; if not, its next poll finds it."""
        return self._idling.is_listening

    async def run(self, shutdown: ShutdownSignal) -> None:
        """Work until ``shutdown`` drains; then let running nodes finish, and return when every lease is given back.

        Several workers may share a signal: each lets its own nodes finish, within its own drain time.
        A worker that is cancelled, or meets what time does not cure, gives everything back at once.

        Raises:
            SchemaVerificationError: the schema is no longer what this release needs; the worker has drained first.
            IdConflictError: ``fairness_policy``; the shard has other weights.
        """
        watch = SchemaWatch(self._store, shutdown, interval=self._options.schema_interval)
        # Others may work until the same signal, and how long their nodes may take is not for this worker to say.
        own = ShutdownSignal(follows=shutdown)
        with self._told(own):
            try:
                async with watch, self._supervision, self._idling, self._backlog:
                    async with HealthWatch(self._store, self._record, self._observer):
                        await self._work(own)
                    await self._drives.drain(own, timeout=self._options.drain_timeout)
            finally:
                await self._drives.abandon()

    @contextmanager
    def _told(self, shutdown: ShutdownSignal) -> Iterator[None]:
        """Tell of the beginning and the end of the work."""
        self._record.begin(shutdown)
        if self._observer is not None:
            graph_count = len(self._executables.graph_digests)
            self._observer.tell(
                WorkerStarted(tenants=self._tenants, graph_count=graph_count, slots=self._options.slots)
            )
        error: str | None = None
        try:
            yield
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            self._record.end()
            if self._observer is not None:
                self._observer.tell(WorkerStopped(error=error))

    async def run_until_idle(self, shutdown: ShutdownSignal | None = None) -> WorkReport:
        """Work until no run is ready and nothing is due, and say what was done: for tests and scripts.

        Runs are claimed, driven and committed as :meth:`run` does it. What waits for an answer, or behind a gate or a
        timer whose instant has not come, is left; so is what other workers hold. Not beside another run of this worker.

        Args:
            shutdown: ends the work early, as that of :meth:`run`.

        Raises:
            StoreError: the database cannot be reached; everything has been given back as far as that is possible.
            IdConflictError: ``fairness_policy``; the shard has other weights.
        """
        own = ShutdownSignal(follows=shutdown)
        self._drives.ends.clear()
        settled_count = 0
        try:
            while not own.is_draining:
                self._idling.look()
                may_be_more = not self._is_full and await self._claim(own)
                if len(self._drives) and (self._is_full or not may_be_more):
                    await self._idling.sleep(own, None)
                elif not may_be_more:
                    settled = await self._supervision.round()
                    settled_count += settled
                    if not settled:
                        break
            await self._drives.drain(own, timeout=self._options.drain_timeout)
        finally:
            await self._drives.abandon()
        return WorkReport.of(self._drives.ends, settled_count=settled_count)

    def _trouble(self) -> str | None:
        return NODE_THREADS_EXHAUSTED if self._loop.are_threads_exhausted else self._idling.trouble

    async def _work(self, shutdown: ShutdownSignal) -> None:
        while not shutdown.is_draining:
            self._idling.look()
            if self._is_full:
                await self._idling.sleep(shutdown, None)
                continue
            try:
                may_be_more = await self._claim(shutdown)
                rest = None if may_be_more or self._is_full else await self._idling.until_poll()
            except StoreError as error:
                self._record.failed()
                if self._record.failures == 1:
                    _log.warning("the database is away", extra={"error": type(error).__name__})
                # Jitter, not a secret.
                seconds = _back_off(self._record.failures) * random.uniform(0.5, 1.0)  # noqa: S311
                await self._idling.sleep(shutdown, timedelta(seconds=seconds))
                continue
            self._record.answered()
            if rest is not None:
                await self._idling.sleep(shutdown, rest)

    @property
    def _is_full(self) -> bool:
        return len(self._drives) >= self._options.slots

    async def _claim(self, shutdown: ShutdownSignal) -> bool:
        """Ask for a run for each idle slot, of the tenants whose turn it is, and drive what comes.

        Returns:
            Whether more may be ready now: some tenant gave as many as were asked for.
        """
        may_be_more = False
        idle = min(self._options.slots - len(self._drives), _MAXIMUM_BATCH)
        for tenant_id, count in (await self._turns.deal(idle)).items():
            if shutdown.is_draining:
                break
            ids = [AttemptId.generate() for _ in range(count)]
            digests = self._executables.graph_digests
            with as_store_error(self._store.options.schema):
                leases = await self._store.claim_ready(tenant_id, count, attempt_ids=ids, graph_digests=digests)
            for held in leases:
                self._drives.start(held, shutdown)
            may_be_more = may_be_more or len(leases) == count
        return may_be_more


def _back_off(failures: int) -> float:
    """Give the longest pause after that many failures in a row, in seconds."""
    return min(_LONGEST_BACK_OFF, 0.1 * 2.0 ** min(failures, _DOUBLED))
