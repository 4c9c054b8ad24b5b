"""The store of an asyncio process: a database, and who may write for its runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Final, TypeVar

from sqlalchemy import URL

from agentruns.domain.digests import Digest
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.lease import MAXIMUM_LIVE_LEASES, LeaseObservation, RunFence
from agentruns.domain.ledger.event import JournalHead
from agentruns.domain.numbers import FencingEpoch
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import RunNotFoundError
from agentruns.runtime.arguments import check_argument
from agentruns.runtime.database import Database
from agentruns.runtime.driven_fences import DrivenFences
from agentruns.runtime.ended_runs import EndedRuns
from agentruns.runtime.engine import check_url
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.lease_arguments import check_batch, check_claim, check_delay
from agentruns.runtime.lease_lanes import LeaseLanes
from agentruns.runtime.lease_renewals import LeaseRenewals
from agentruns.runtime.notifier import Notifier
from agentruns.runtime.telemetry.drives import observed_claim
from agentruns.store.lease_refusals import check_live, lease_refusal, observation
from agentruns.store.leases import Deferral, LeaseAnswer, Release, Renewal
from agentruns.store.options import StoreOptions, check_count
from agentruns.store.run_view import HeadVersion
from agentruns.store.unit_of_work import UnitOfWork

T = TypeVar("T")

#: Words of an answer that leave nothing to do.
_CLAIMED_ALREADY: Final = "mine"
_GIVEN_BACK: Final = "no_lease"


class AgentRunStore(Database):
    """Hold runs in one schema of one PostgreSQL database, for one event loop.

    Use it as ``async with AgentRunStore(url) as store``: entering verifies the schema, leaving returns all connections.
    """

    def __init__(self, url: str | URL, options: StoreOptions | None = None) -> None:
        super().__init__(url, options)
        self.driven = DrivenFences()
        self.lease_renewals = LeaseRenewals()
        if self.options.listen_url is not None:
            check_url("listen_url", self.options.listen_url)
        self.notifier = Notifier(self._notify, is_on=self.options.notifies)
        self.ends = EndedRuns(self, self.options.listen_url, listens=self.options.notifies)
        self._leases = LeaseLanes(self, self.notifier)

    async def close(self) -> None:
        """Tell of what became ready, and return all connections; what is asked for afterwards is refused."""
        await self.ends.close()
        await self.notifier.close()
        await super().close()

    def notify(self, tenant_id: TenantId) -> None:
        """Tell listening workers that a tenant may have a run for them; it returns at once.

        Raises:
            UnitOfWorkError: the store is not open, or belongs to another event loop.
        """
        check_argument("tenant_id", tenant_id, TenantId)
        self._check_usable()
        self.notifier.ready(tenant_id.text)

    async def claim(self, tenant_id: TenantId, run_id: RunId, attempt_id: AttemptId) -> HeldLease:
        """Take a run that is ready and that nobody holds.

        The same attempt id while its lease lives answers with that lease, nothing extended; afterwards it is a new
        claim with a new epoch.

        Raises:
            RunNotFoundError: the tenant has no such run.
            NotYetAvailableError: it is leased or deferred; ``not_before`` says until when. Or ``tenant_at_capacity``.
            RunNotRunnableError: its status does not permit it.
            RunQuarantinedError: it is isolated.
        """
        check_claim(tenant_id, run_id, attempt_id)
        duration = self.options.lease_duration
        return await self._taken(
            tenant_id, run_id, lambda work: work.leases.claim(tenant_id, run_id, attempt_id, duration=duration)
        )

    async def supersede(
        self,
        tenant_id: TenantId,
        run_id: RunId,
        attempt_id: AttemptId,
        *,
        expected_epoch: FencingEpoch | None = None,
    ) -> HeldLease:
        """Take a run from whoever holds it: for operators, and for workers that know their predecessor to be dead.

        Whatever the old owner sends from now on is refused. Else as :meth:`claim`.

        With ``expected_epoch`` it is taken only from that epoch.

        Raises:
            StaleHeadError: ``epoch``; the run is under another epoch than expected.
            RunNotFoundError: the tenant has no such run.
            NotYetAvailableError: ``deferred``.
            RunNotRunnableError: its status does not permit it.
            RunQuarantinedError: it is isolated.
        """
        check_claim(tenant_id, run_id, attempt_id)
        if expected_epoch is not None:
            check_argument("expected_epoch", expected_epoch, FencingEpoch)
        duration = self.options.lease_duration
        return await self._taken(
            tenant_id,
            run_id,
            lambda work: work.leases.supersede(
                tenant_id, run_id, attempt_id, expected_epoch=expected_epoch, duration=duration
            ),
        )

    async def _taken(
        self, tenant_id: TenantId, run_id: RunId, take: Callable[[UnitOfWork], LeaseAnswer | None]
    ) -> HeldLease:
        """Send a claim again with the same id until it is answered: a lease of that id that lives is its own."""
        sent_at = time.monotonic()
        known = self._known(tenant_id, run_id, await self.run(take))
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

        Args:
            tenant_id: whose runs.
            limit: 1..64.
            attempt_ids: as many, fresh and different.
            graph_digests: of the graphs that this process has.

        Raises:
            InvalidOptionError: ``limit`` is out of its bound, or ``attempt_ids`` are not as many different ones.
        """
        check_batch(tenant_id, limit, attempt_ids, graph_digests)
        duration = self.options.lease_duration
        with observed_claim(tenant_id) as observed:
            sent_at = time.monotonic()
            claims = await self.run_once(
                lambda work: work.leases.claim_ready(
                    tenant_id, limit=limit, attempt_ids=attempt_ids, graph_digests=graph_digests, duration=duration
                )
            )
            observed.ended_with(claims)
        self.clock.observe(claims.observed_at)
        return tuple(
            HeldLease(lease=lease, observed_at=claims.observed_at, sent_at=sent_at, history=history)
            for lease, history in claims.leases
        )

    async def set_tenant_limit(self, tenant_id: TenantId, maximum_live: int | None) -> None:
        """Say how many leases of a tenant may live at once, over all processes, from the next claim on.

        Nothing that runs is interrupted. Leases that were claimed while the tenant had no limit run out uncounted, and
        so do those above a limit that was lowered.

        Args:
            tenant_id: whose runs.
            maximum_live: 1..1 024, or ``None`` for no limit.
        """
        if maximum_live is not None:
            check_count("maximum_live", maximum_live, low=1, high=MAXIMUM_LIVE_LEASES)
        await self.run(lambda work: work.tenant_limits.set(tenant_id, maximum_live))

    async def tenant_limit(self, tenant_id: TenantId) -> int | None:
        """Read how many leases of a tenant may live at once; ``None`` for no limit."""
        return await self.run(lambda work: work.tenant_limits.of(tenant_id))

    async def renew(self, fence: RunFence, *, desired: Timestamp) -> HeldLease:
        """Extend a live lease to ``desired``, which must stay the same over retries; all that wait share a statement.

        Raises:
            LeaseLostError: stop, the run is somebody else's or nobody's.
            RunQuarantinedError: it was isolated meanwhile.
            RefusedError: ``desired`` is not later, or beyond the horizon.
        """
        check_argument("fence", fence, RunFence)
        check_argument("desired", desired, Timestamp)
        renewal = Renewal(fence=fence, desired=desired)
        sent_at = time.monotonic()
        answer = self._known(fence.tenant_id, fence.run_id, await self._leases.renew(renewal))
        if answer.word == "done" and answer.lease:
            return HeldLease(lease=answer.lease, observed_at=answer.now, sent_at=sent_at)
        if answer.word == "same":
            # A late identical renewal proves bytes, not liveness.
            seen = await self.observe(fence)
            return HeldLease(lease=seen.lease, observed_at=seen.observed_at, sent_at=sent_at)
        raise lease_refusal(fence.tenant_id, fence.run_id, answer)

    async def release(self, fence: RunFence, *, delay: timedelta | None = None) -> None:
        """Give a lease back, an expired one too. Somebody else's is left alone.

        Args:
            fence: of the lease.
            delay: how long nobody shall claim the run, at most 5 minutes; at once when there is none.

        Raises:
            InvalidOptionError: ``delay`` is not above zero, or too long.
            LeaseLostError: another fence owns the run.
        """
        check_argument("fence", fence, RunFence)
        check_delay(delay)
        release = Release(fence=fence, delay=delay)
        answer = self._known(fence.tenant_id, fence.run_id, await self._leases.release(release))
        if answer.word not in ("done", _GIVEN_BACK):
            raise lease_refusal(fence.tenant_id, fence.run_id, answer)

    async def defer(self, fence: RunFence, *, head: JournalHead, not_before: Timestamp) -> bool:
        """Give a lease back and keep the run from being claimed before an instant.

        Returns:
            Whether the gate is set; ``False`` when the instant has passed, and then nothing was changed.
        """
        check_argument("fence", fence, RunFence)
        check_argument("head", head, JournalHead)
        check_argument("not_before", not_before, Timestamp)
        deferral = Deferral(fence=fence, head=head, not_before=not_before)
        answer = self._known(fence.tenant_id, fence.run_id, await self._leases.defer(deferral))
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
        return observation(fence, await self._seen(fence))

    async def observe_version(self, fence: RunFence) -> HeadVersion:
        """Read at which head a run stands under a live fence, for a quarantine: the rest of the row may be damaged.

        Raises:
            LeaseLostError: the fence is not the live one.
            RunQuarantinedError: the run is isolated.
        """
        answer = await self._seen(fence)
        check_live(fence, answer)
        return answer.run.version

    async def _seen(self, fence: RunFence) -> LeaseAnswer:
        check_argument("fence", fence, RunFence)
        return self._known(fence.tenant_id, fence.run_id, await self._leases.observe(fence))

    def _known(self, tenant_id: TenantId, run_id: RunId, answer: LeaseAnswer | None) -> LeaseAnswer:
        if answer is None:
            raise RunNotFoundError(tenant_id=tenant_id, id=run_id)
        self.clock.observe(answer.now)
        return answer

    def tell_of_end(self, run_id: RunId) -> None:
        """Wake who waits for a run that has ended by what has been committed, here and in other processes."""
        self.ends.told(run_id.text)
        self.notifier.ended(run_id.text)

    async def _notify(self, tenants: Collection[str], ended: Collection[str]) -> int:
        return await self.run_once(lambda work: work.wake_ups.send(self.options.schema, tenants, ended))
