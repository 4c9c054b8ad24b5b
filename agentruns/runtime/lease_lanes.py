"""The statements that change leases of a store, each kind in a lane: what waits together is one statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from agentruns.domain.lease import RunFence
from agentruns.runtime.database import Database
from agentruns.runtime.lane import Held, Lane, Parcel, answered_or_held
from agentruns.runtime.notifier import Notifier
from agentruns.store.leases import Deferral, LeaseAnswer, Release, Renewal
from agentruns.store.unit_of_work import UnitOfWork

Item = TypeVar("Item")


class LeaseLanes:
    """Send what leases need; an answer of ``None`` says that there is no such run."""

    def __init__(self, database: Database, notifier: Notifier) -> None:
        self._horizon: Final = database.options.maximum_lease_horizon
        self._notifier = notifier
        self._renewals: Lane[Renewal, LeaseAnswer | None] = database.lane(self._renew, name="renewals", takes_all=True)
        self._releases: Lane[Release, LeaseAnswer | None] = database.lane(self._release, name="releases")
        self._deferrals: Lane[Deferral, LeaseAnswer | None] = database.lane(self._defer, name="deferrals")
        self._observations: Lane[RunFence, LeaseAnswer | None] = database.lane(
            self._observe, name="observations", commits=False
        )

    async def renew(self, renewal: Renewal) -> LeaseAnswer | None:
        """Extend a lease."""
        return await self._renewals.ask(_parcel(renewal.fence, renewal))

    async def release(self, release: Release) -> LeaseAnswer | None:
        """Give a lease back."""
        return await self._releases.ask(_parcel(release.fence, release))

    async def defer(self, deferral: Deferral) -> LeaseAnswer | None:
        """Give a lease back, and gate its run."""
        return await self._deferrals.ask(_parcel(deferral.fence, deferral))

    async def observe(self, fence: RunFence) -> LeaseAnswer | None:
        """Read a run under its fence."""
        return await self._observations.ask(_parcel(fence, fence))

    def _renew(
        self, work: UnitOfWork, items: Sequence[Renewal], *, skip_locked: bool
    ) -> Sequence[LeaseAnswer | Held | None]:
        answers = work.leases.renew(items, horizon=self._horizon, skip_locked=skip_locked)
        return answered_or_held(answers, skip_locked=skip_locked)

    def _release(
        self, work: UnitOfWork, items: Sequence[Release], *, skip_locked: bool
    ) -> Sequence[LeaseAnswer | Held | None]:
        answers = work.leases.release(items, skip_locked=skip_locked)
        self._tell_of_given_back(answers)
        return answered_or_held(answers, skip_locked=skip_locked)

    def _defer(
        self, work: UnitOfWork, items: Sequence[Deferral], *, skip_locked: bool
    ) -> Sequence[LeaseAnswer | Held | None]:
        answers = work.leases.defer(items, skip_locked=skip_locked)
        self._tell_of_given_back(answers)
        return answered_or_held(answers, skip_locked=skip_locked)

    def _observe(
        self, work: UnitOfWork, items: Sequence[RunFence], *, skip_locked: bool
    ) -> Sequence[LeaseAnswer | Held | None]:
        del skip_locked  # no row is locked
        return work.leases.observe(items)

    def _tell_of_given_back(self, answers: Sequence[LeaseAnswer | None]) -> None:
        """Tell of gated runs too: a worker that sleeps until the next gate has to know of an earlier one."""
        for answer in answers:
            if answer is not None and answer.word == "done":
                self._notifier.ready(answer.run.tenant_id.text)


def _parcel(fence: RunFence, item: Item) -> Parcel[Item]:
    return Parcel(item=item, keys=frozenset({(fence.tenant_id, fence.run_id)}))
