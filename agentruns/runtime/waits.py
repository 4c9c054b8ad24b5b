"""Answer what runs wait for, on behalf of whoever the embedding service has authenticated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from agentruns.domain.ids import EventId, RunId, WaitId
from agentruns.domain.ledger.documents import LIFECYCLE_EVENT
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scalars import TenantId
from agentruns.domain.waits import WaitRegistration, WaitResolution, WaitResolver
from agentruns.runtime.arguments import check_argument
from agentruns.runtime.clock import DatabaseClock
from agentruns.runtime.control import AgentRunMutation
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.run_lanes import RunLanes
from agentruns.runtime.settled_waits import SettledRunWait
from agentruns.runtime.settling import AskedResolution, outstanding_steps, resolution_steps, wait_steps
from agentruns.runtime.steps import Steps
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.transactions import AsyncTransaction, check_transaction, follow_joined, join
from agentruns.runtime.verification import RunVerifier
from agentruns.store.waits import WaitLookup

T = TypeVar("T")


class DurableRunWaits:
    """Show what runs wait for, and settle interrupts. Timers fire by supervision.

    Ids are no credentials: the service has decided who may see and answer before it calls. A caller's transaction is
    passed as ``session`` as to :class:`DurableAgentRuns`.

    Args:
        store: where the runs are.
        executables: the schemas of this process; a resolution must satisfy its own. No graph is needed.

    Raises:
        SchemaUnavailableError: the registry lacks the library's document of lifecycle events.
    """

    def __init__(self, store: AgentRunStore, executables: ExecutableGraphRegistry) -> None:
        executables.schemas.require(LIFECYCLE_EVENT)
        self._store = store
        self._executables = executables
        self._verifier = RunVerifier(executables=executables)
        self._lanes = RunLanes(store)

    async def outstanding(
        self, tenant_id: TenantId, run_id: RunId, session: AsyncTransaction | None = None
    ) -> tuple[WaitRegistration, ...]:
        """List what a run waits for, with what is asked, in the order of its registration; empty when it does not.

        Raises:
            RunNotFoundError: the tenant has no such run.
            CorruptDataError: stored evidence does not verify.
        """
        check_argument("tenant_id", tenant_id, TenantId)
        check_argument("run_id", run_id, RunId)
        return await self._take(lambda _: outstanding_steps(tenant_id, run_id, verifier=self._verifier), session)

    async def resolve_interrupt(
        self,
        tenant_id: TenantId,
        run_id: RunId,
        wait_id: WaitId,
        *,
        event_id: EventId,
        resolution: JournalPayload,
        resolver: WaitResolver,
        session: AsyncTransaction | None = None,
    ) -> AgentRunMutation:
        """Answer an interrupt; with the last of its waits the run goes on. The first answer stands.

        Make ``event_id`` once and keep it with the answer for every retry.

        Raises:
            SchemaRejectedError: the answer does not satisfy its schema; nothing was sent.
            SchemaUnavailableError: the schema of the answer is not installed here.
            IdConflictError: this event has settled the wait with another answer.
            RunNotFoundError: the tenant has no such run.
            RunQuarantinedError: an operator decides.
            NotFoundError: kind ``wait``; the run has no such interrupt.
            WaitAlreadySettledError: ``resolved``, ``abandoned``, or ``expired`` by the database's clock.
            ResolverNotPermittedError: another principal is required, or scopes are missing.
            CorruptDataError: stored evidence does not verify.
            StoreError: the database; retryable where it says so, with the same ids.
        """
        check_transaction(session)
        check_argument("tenant_id", tenant_id, TenantId)
        check_argument("run_id", run_id, RunId)
        check_argument("wait_id", wait_id, WaitId)
        check_argument("event_id", event_id, EventId)
        check_argument("resolution", resolution, JournalPayload)
        check_argument("resolver", resolver, WaitResolver)
        self._executables.schemas.validate(resolution.schema, resolution.data, "resolution")
        asked = AskedResolution(
            tenant_id=tenant_id,
            run_id=run_id,
            wait_id=wait_id,
            event_id=event_id,
            resolution=WaitResolution(resolver=resolver, payload=resolution),
        )
        if session is None:
            return await self._lanes.decided(
                lambda: resolution_steps(asked, clock=self._store.clock, verifier=self._verifier)
            )
        return await self._take(lambda clock: resolution_steps(asked, clock=clock, verifier=self._verifier), session)

    async def settled(
        self, tenant_id: TenantId, run_id: RunId, wait_id: WaitId, session: AsyncTransaction | None = None
    ) -> SettledRunWait | None:
        """Say how a wait was settled, with its answer if it was resolved; ``None`` while it is outstanding.

        Raises:
            NotFoundError: the tenant has no such run, or the run no such wait.
            CorruptDataError: stored evidence does not verify.
        """
        lookup = WaitLookup(tenant_id=tenant_id, run_id=run_id, wait_ids=(wait_id,))
        wait = await self._take(lambda _: wait_steps(lookup, verifier=self._verifier), session)
        if wait.how is None:
            return None
        return SettledRunWait(wait_id=wait_id, how=wait.how, resolution=wait.resolution)

    async def _take(self, steps_of: Callable[[DatabaseClock], Steps[T]], session: AsyncTransaction | None) -> T:
        if session is None:
            return await self._lanes.follow(steps_of(self._store.clock))
        schema = self._store.options.schema
        return await join(session, lambda transaction: follow_joined(steps_of, transaction, schema=schema))
