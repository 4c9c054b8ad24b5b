"""The store of an asyncio process: one engine, one clock, one lane for each kind of statement."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

from sqlalchemy import URL, func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from agentruns.domain.digests import Digest
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.lease import LeaseObservation, RunFence
from agentruns.domain.ledger.event import JournalHead
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import RunNotFoundError, UnitOfWorkError
from agentruns.runtime.clock import DatabaseClock
from agentruns.runtime.driven_fences import DrivenFences
from agentruns.runtime.engine import create_engine
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.lane import HELD, MAXIMUM_BYTES, Answer_co, Held, Item_contra, Lane, Parcel
from agentruns.runtime.retry import Retry
from agentruns.store.lease_refusals import lease_refusal, observation
from agentruns.store.leases import Deferral, LeaseAnswer, Release, Renewal
from agentruns.store.mapping import instant
from agentruns.store.options import StoreOptions
from agentruns.store.settings import check_settings
from agentruns.store.unit_of_work import UnitOfWork
from agentruns.store.verification import verify_schema

T = TypeVar("T")
Item = TypeVar("Item")
Answer = TypeVar("Answer")

#: Words of an answer that leave nothing to do.
_CLAIMED_ALREADY: Final = "mine"
_GIVEN_BACK: Final = "no_lease"


class SetStatement(Protocol[Item_contra, Answer_co]):
    """Send a set in one statement and answer each item."""

    def __call__(
        self, work: UnitOfWork, items: Sequence[Item_contra], /, *, skip_locked: bool
    ) -> Sequence[Answer_co | Held]:
        """Send; with ``skip_locked`` items whose row somebody else holds are passed over."""
        ...


class AgentRunStore:
    """Hold runs in one schema of one PostgreSQL database, for one event loop.

    Use it as ``async with AgentRunStore(url) as store``: entering verifies the schema, leaving returns all connections.
    """

    def __init__(self, url: str | URL, options: StoreOptions | None = None) -> None:
        self.options = options or StoreOptions()
        self.clock = DatabaseClock()
        self.driven = DrivenFences()
        self.retry = Retry(
            attempts=self.options.attempts, initial_delay=self.options.initial_delay, schema=self.options.schema
        )
        self._engine: AsyncEngine = create_engine(url, self.options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._renewals = self.lane(self._renew)
        self._releases = self.lane(self._release)
        self._deferrals = self.lane(self._defer)
        self._observations = self.lane(self._observe)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Verify that the schema is what this release needs.

        Raises:
            SchemaVerificationError: it is not; its sentence names the command that repairs it.
            InvalidOptionError: the connection's timeouts or its durability are weaker than the options say.
            StoreUnavailableError: the database cannot be reached.
        """
        try:
            await self.run(self._verify)
        except BaseException:
            await self.close()
            raise

    def _verify(self, work: UnitOfWork) -> None:
        verify_schema(work.connection, schema=self.options.schema)
        check_settings(work.connection, self.options)
        self._observe_clock(work)

    async def close(self) -> None:
        """Return all connections."""
        await self._engine.dispose()

    async def run(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run one unit of work of our own, again while the database's trouble passes.

        ``work`` is called once for each try and must send the same ids each time.
        """
        return await self.retry.run(lambda: self.run_once(work))

    async def run_once(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run one unit of work of our own on a connection in autocommit; each statement is a transaction."""
        self._check_loop()
        async with self._engine.connect() as connection:
            return await connection.run_sync(
                lambda synchronous: work(UnitOfWork(synchronous, schema=self.options.schema))
            )

    def lane(
        self,
        statement: SetStatement[Item, Answer],
        *,
        maximum_bytes: int = MAXIMUM_BYTES,
    ) -> Lane[Item, Answer]:
        """Make the lane of one kind of statement: what waits for a connection shares the next one.

        In a set of more than one, items whose row is held by others are passed over and go again alone.
        """

        async def send(items: Sequence[Item], *, is_alone: bool) -> Sequence[Answer | Held]:
            await self.ensure_clock()
            return await self.run_once(lambda work: statement(work, items, skip_locked=not is_alone))

        return Lane(send, self.retry, self.options.lane_connections, maximum_bytes)

    async def ensure_clock(self) -> None:
        """Ask for the database's time when no statement has brought it yet."""
        if not self.clock.has_observation:
            await self.run_once(self._observe_clock)

    def _observe_clock(self, work: UnitOfWork) -> None:
        self.clock.observe(instant(work.execute(select(func.clock_timestamp())).scalar_one()))

    def _check_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise UnitOfWorkError(reason="wrong_event_loop")

    # --- leases ------------------------------------------------------------------------------------------------------

    async def claim(self, tenant_id: TenantId, run_id: RunId, attempt_id: AttemptId) -> HeldLease:
        """Take a run that is ready and that nobody holds.

        The same attempt id while its lease lives answers with that lease, nothing extended; afterwards it is a new
        claim with a new epoch.

        Raises:
            RunNotFoundError: the tenant has no such run.
            NotYetAvailableError: it is leased or deferred; ``not_before`` says until when.
            RunNotRunnableError: its status does not permit it.
            RunQuarantinedError: it is isolated.
        """
        duration = self.options.lease_duration
        claims = [(tenant_id, run_id, attempt_id)]
        sent_at = time.monotonic()
        (answer,) = await self.run(lambda work: work.leases.claim(claims, duration=duration))
        known = self._known(tenant_id, run_id, answer)
        lease = known.lease if known.word == "done" else known.run.lease if known.word == _CLAIMED_ALREADY else None
        if lease is None:
            raise lease_refusal(tenant_id, run_id, known)
        return HeldLease(lease=lease, observed_at=known.now, sent_at=sent_at)

    async def claim_ready(
        self, tenant_id: TenantId, limit: int, *, attempt_ids: Sequence[AttemptId], graph_digests: Sequence[Digest]
    ) -> tuple[HeldLease, ...]:
        """Take up to ``limit`` of the oldest ready runs of a tenant whose graph this process has.

        Sent once: an answer in doubt is not looked for, and what it may have claimed is claimable again when its lease
        expires.
        """
        duration = self.options.lease_duration
        sent_at = time.monotonic()
        claims = await self.run_once(
            lambda work: work.leases.claim_ready(
                tenant_id, limit=limit, attempt_ids=attempt_ids, graph_digests=graph_digests, duration=duration
            )
        )
        self.clock.observe(claims.observed_at)
        return tuple(HeldLease(lease=lease, observed_at=claims.observed_at, sent_at=sent_at) for lease in claims.leases)

    async def renew(self, fence: RunFence, *, desired: Timestamp) -> HeldLease:
        """Extend a live lease to ``desired``, which must stay the same over retries; all that wait share a statement.

        Raises:
            LeaseLostError: stop, the run is somebody else's or nobody's.
            RunQuarantinedError: it was isolated meanwhile.
            RefusedError: ``desired`` is not later, or beyond the horizon.
        """
        renewal = Renewal(fence=fence, desired=desired)
        sent_at = time.monotonic()
        answer = self._known(fence.tenant_id, fence.run_id, await self._renewals.ask(_parcel(fence, renewal)))
        if answer.word == "done" and answer.lease:
            return HeldLease(lease=answer.lease, observed_at=answer.now, sent_at=sent_at)
        if answer.word == "same":
            # A late identical renewal proves bytes, not liveness.
            seen = await self.observe(fence)
            return HeldLease(lease=seen.lease, observed_at=seen.observed_at, sent_at=sent_at)
        raise lease_refusal(fence.tenant_id, fence.run_id, answer)

    async def release(self, fence: RunFence, *, delay: timedelta | None = None) -> None:
        """Give a lease back, an expired one too. Somebody else's is left alone.

        Raises:
            LeaseLostError: another fence owns the run.
        """
        release = Release(fence=fence, delay=delay)
        answer = self._known(fence.tenant_id, fence.run_id, await self._releases.ask(_parcel(fence, release)))
        if answer.word not in ("done", _GIVEN_BACK):
            raise lease_refusal(fence.tenant_id, fence.run_id, answer)

    async def defer(self, fence: RunFence, *, head: JournalHead, not_before: Timestamp) -> bool:
        """Give a lease back and keep the run from being claimed before an instant.

        Returns:
            Whether the gate is set; ``False`` when the instant has passed, and then nothing was changed.
        """
        deferral = Deferral(fence=fence, head=head, not_before=not_before)
        answer = self._known(fence.tenant_id, fence.run_id, await self._deferrals.ask(_parcel(fence, deferral)))
        if answer.word == _GIVEN_BACK and answer.run.not_before == not_before:
            return True
        if answer.word not in ("done", "due"):
            raise lease_refusal(fence.tenant_id, fence.run_id, answer)
        return answer.word == "done"

    async def observe(self, fence: RunFence) -> LeaseObservation:
        """Read the run under a live fence.

        Raises:
            LeaseLostError: the fence is not the live one.
            RunQuarantinedError: the run is isolated.
        """
        answer = self._known(fence.tenant_id, fence.run_id, await self._observations.ask(_parcel(fence, fence)))
        return observation(fence, answer)

    def _known(self, tenant_id: TenantId, run_id: RunId, answer: LeaseAnswer | None) -> LeaseAnswer:
        if answer is None:
            raise RunNotFoundError(tenant_id=tenant_id, id=run_id)
        self.clock.observe(answer.now)
        return answer

    def _renew(
        self, work: UnitOfWork, items: Sequence[Renewal], *, skip_locked: bool
    ) -> Sequence[LeaseAnswer | Held | None]:
        horizon = self.options.maximum_lease_horizon
        return answered_or_held(
            work.leases.renew(items, horizon=horizon, skip_locked=skip_locked), skip_locked=skip_locked
        )

    def _release(
        self, work: UnitOfWork, items: Sequence[Release], *, skip_locked: bool
    ) -> Sequence[LeaseAnswer | Held | None]:
        return answered_or_held(work.leases.release(items, skip_locked=skip_locked), skip_locked=skip_locked)

    def _defer(
        self, work: UnitOfWork, items: Sequence[Deferral], *, skip_locked: bool
    ) -> Sequence[LeaseAnswer | Held | None]:
        return answered_or_held(work.leases.defer(items, skip_locked=skip_locked), skip_locked=skip_locked)

    def _observe(
        self, work: UnitOfWork, items: Sequence[RunFence], *, skip_locked: bool
    ) -> Sequence[LeaseAnswer | Held | None]:
        del skip_locked  # no row is locked
        return work.leases.observe(items)


def _parcel(fence: RunFence, item: Item) -> Parcel[Item]:
    return Parcel(item=item, keys=frozenset({(fence.tenant_id, fence.run_id)}))


def answered_or_held(answers: Sequence[Answer | None], *, skip_locked: bool) -> Sequence[Answer | Held | None]:
    """In a statement that passes held rows over, an item without an answer goes again alone."""
    return [HELD if answer is None and skip_locked else answer for answer in answers]
