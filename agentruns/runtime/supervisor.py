"""Do for a tenant's runs what time has decided: deadlines first, then expired interrupts, then timers.

Candidates are advisory; each is read and judged by itself, and its statement decides on the locked row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from attrs import field, frozen

from agentruns.domain.ids import EventId, FailureId, RunId, WaitId
from agentruns.domain.ledger.documents import CANCELLATION_EVENT, LIFECYCLE_EVENT
from agentruns.domain.scalars import TenantId
from agentruns.domain.status import RunStatus
from agentruns.domain.waits import MAXIMUM_WAITS
from agentruns.errors import AgentRunsError, ContentionError, StaleHeadError
from agentruns.runtime.control import MAXIMUM_REPETITIONS
from agentruns.runtime.evidence import LedgerEvidence, RunEvidenceProvider
from agentruns.runtime.overdue import deadline_steps, expiry_plan
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.replay import RunReader
from agentruns.runtime.run_lanes import RunLanes
from agentruns.runtime.settling import firing_steps
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.telemetry.counts import run_finished
from agentruns.runtime.telemetry.upkeep import observed_supervision
from agentruns.runtime.verification import RunVerifier
from agentruns.store.unit_of_work import UnitOfWork
from agentruns.store.waits import Due, WaitLookup

#: Candidates of one job in one tick: runs, so that one with many waits delays nobody.
PAGE: Final = 16
#: As many waits as belong to so many runs at least.
_WAITS: Final = PAGE * MAXIMUM_WAITS


@frozen(kw_only=True)
class SupervisionCursor:
    """Where each job's list goes on; in memory only, and from the beginning after its end."""

    deadlines: Due | None = None
    interrupts: Due | None = None
    timers: Due | None = None


@frozen(kw_only=True)
class SupervisionError:
    """A candidate that could not be settled; the next round meets it again."""

    run_id: RunId
    error: AgentRunsError


@frozen(kw_only=True)
class SupervisionTick:
    """What one tick did.

    Attributes:
        cancellations_requested: runs whose deadline had come.
        runs_failed: runs whose interrupt had expired.
        timers_fired: timers that were due.
        errors: candidates that could not be settled, each by itself.
        cursor: what the next tick is given.
    """

    cancellations_requested: int
    runs_failed: int
    timers_fired: int
    errors: tuple[SupervisionError, ...]
    cursor: SupervisionCursor


@frozen
class _Job:
    done: int
    errors: tuple[SupervisionError, ...]
    goes_on_after: Due | None = field(default=None)


class DurableRunSupervisor:
    """Settle what is due. Any number of supervisors may work on one tenant: of two, one commits and one does nothing.

    Timers and interrupts of graphs that this process does not have are left to one that has them.

    Raises:
        SchemaUnavailableError: the registry lacks the library's documents of lifecycle or cancellation events.
    """

    def __init__(
        self,
        store: AgentRunStore,
        executables: ExecutableGraphRegistry,
        *,
        evidence: RunEvidenceProvider | None = None,
    ) -> None:
        for document in (LIFECYCLE_EVENT, CANCELLATION_EVENT):
            executables.schemas.require(document)
        self._store = store
        self._executables = executables
        self._evidence = evidence or LedgerEvidence()
        self._verifier = RunVerifier(executables=executables)
        self._reader = RunReader(store, executables)
        self._lanes = RunLanes(store)

    async def tick(self, tenant_id: TenantId, cursor: SupervisionCursor | None = None) -> SupervisionTick:
        """Settle at most sixteen runs of each job, and of each run all that is due.

        Raises:
            StoreError: candidates cannot be listed; errors of single candidates are in the answer.
        """
        with observed_supervision(tenant_id) as observed:
            return observed.ended_with(await self._settle_due(tenant_id, cursor or SupervisionCursor()))

    async def _settle_due(self, tenant_id: TenantId, given: SupervisionCursor) -> SupervisionTick:
        digests = self._executables.graph_digests
        deadlines = await self._job(
            lambda work: work.waits.deadlines(tenant_id, after=given.deadlines, limit=PAGE),
            lambda dues: self.request_overdue(tenant_id, dues[0].run_id),
            limit=PAGE,
        )
        interrupts = await self._job(
            lambda work: work.waits.interrupts(tenant_id, graph_digests=digests, after=given.interrupts, limit=_WAITS),
            lambda dues: self.fail_expired(tenant_id, dues[0].run_id),
            limit=_WAITS,
        )
        timers = await self._job(
            lambda work: work.waits.timers(tenant_id, graph_digests=digests, after=given.timers, limit=_WAITS),
            partial(self._fire_due, tenant_id),
            limit=_WAITS,
        )
        return SupervisionTick(
            cancellations_requested=deadlines.done,
            runs_failed=interrupts.done,
            timers_fired=timers.done,
            errors=(*deadlines.errors, *interrupts.errors, *timers.errors),
            cursor=SupervisionCursor(
                deadlines=deadlines.goes_on_after,
                interrupts=interrupts.goes_on_after,
                timers=timers.goes_on_after,
            ),
        )

    async def request_overdue(self, tenant_id: TenantId, run_id: RunId) -> bool:
        """Ask for the end of a run whose deadline has come, unless its end is decided already."""
        event_id, clock = EventId.generate(), self._store.clock
        return await self._lanes.decided(
            lambda: deadline_steps(tenant_id, run_id, event_id=event_id, clock=clock, verifier=self._verifier)
        )

    async def fail_expired(self, tenant_id: TenantId, run_id: RunId) -> bool:
        """End a run whose interrupt nobody answered in time; somebody else who was faster has it his way.

        Raises:
            ContentionError: something else happened to the run each time.
        """
        event_id, failure_id = EventId.generate(), FailureId.generate()
        for _ in range(1 + MAXIMUM_REPETITIONS):
            run, now = await self._reader.read(tenant_id, run_id), self._store.clock.stamp()
            plan = expiry_plan(run, event_id=event_id, failure_id=failure_id, evidence=self._evidence, now=now)
            if plan is None:
                return False
            if (await self._lanes.decide(plan)).is_committed:
                run_finished(RunStatus.FAILED)
                return True
        raise ContentionError(run_id=run_id, attempts=MAXIMUM_REPETITIONS)

    async def fire(self, tenant_id: TenantId, run_id: RunId, wait_ids: Sequence[WaitId]) -> int:
        """Fire timers of a run that are due, and say how many; those that somebody else was faster with are his."""
        lookup = WaitLookup(tenant_id=tenant_id, run_id=run_id, wait_ids=tuple(wait_ids))
        event_ids, clock = {wait_id: EventId.generate() for wait_id in wait_ids}, self._store.clock
        return await self._lanes.decided(
            lambda: firing_steps(lookup, event_ids=event_ids, clock=clock, verifier=self._verifier)
        )

    async def _fire_due(self, tenant_id: TenantId, dues: Sequence[Due]) -> int:
        return await self.fire(tenant_id, dues[0].run_id, [due.wait_id for due in dues if due.wait_id is not None])

    async def _job(
        self,
        find: Callable[[UnitOfWork], Sequence[Due]],
        settle: Callable[[Sequence[Due]], Awaitable[int]],
        *,
        limit: int,
    ) -> _Job:
        """Settle a page of runs together, so that their commits share a set; what is due of one run is one candidate.

        Its events follow one another: side by side they would overtake each other at the head of the run.
        """
        found = await self._store.read(find)
        for due in found[:1]:
            self._store.clock.observe(due.now)
        of_run: dict[RunId, list[Due]] = {}
        for due in found:
            of_run.setdefault(due.run_id, []).append(due)
        page = list(of_run.values())[:PAGE]
        results = await asyncio.gather(*(self._settled(dues, settle) for dues in page))
        errors = tuple(result for result in results if isinstance(result, SupervisionError))
        is_full = len(found) == limit or len(of_run) > PAGE
        done = sum(result for result in results if not isinstance(result, SupervisionError))
        # The place of the last run's first: what comes after it belongs to runs that were not looked at.
        return _Job(done, errors, page[-1][0] if is_full else None)

    async def _settled(
        self, dues: Sequence[Due], settle: Callable[[Sequence[Due]], Awaitable[int]]
    ) -> int | SupervisionError:
        try:
            return await settle(dues)
        except StaleHeadError:
            return 0
        except AgentRunsError as error:
            return SupervisionError(run_id=dues[0].run_id, error=error)
