"""Remove the runs of a tenant batch by batch, each in a transaction of its own, around what holds some of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from attrs import frozen
from sqlalchemy.exc import DBAPIError

from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.operations.retention_transactions import RetentionTransactions
from agentruns.runtime.telemetry.upkeep import observed_retention_batch
from agentruns.store.retention import FIRST, LAST, Place, RemovedBatch, Terms
from agentruns.store.statements.retention import MOST_RUNS
from agentruns.store.statements.retention_reads import Cause
from agentruns.store.transient import constraint_of, sqlstate_of

HeldReason: TypeAlias = Literal["referenced", "locked"]

#: What one run does to its whole batch: a row of another table refers to it, or somebody holds one of its rows.
_HELD: Final[dict[str, HeldReason]] = {"23503": "referenced", "55P03": "locked"}


@frozen(kw_only=True)
class RetentionBatch:
    """Count what one transaction removed for good.

    Attributes:
        tenant_id: the tenant of all its runs.
        run_count: runs, at most a hundred.
        row_count: rows that went with them, in all tables.
        byte_count: bytes of bodies in these rows.
    """

    tenant_id: TenantId
    run_count: int
    row_count: int
    byte_count: int


@frozen(kw_only=True)
class HeldRun:
    """Name a run that may go by the policy, and stays.

    Attributes:
        reason: ``referenced`` by a row of another table, which is also how a legal hold is made; or ``locked`` by
            another transaction, which may be another removal: call again.
        constraint: the foreign key that refers to it, where that is the reason.
    """

    tenant_id: TenantId
    run_id: RunId
    reason: HeldReason
    constraint: str = ""


@frozen(kw_only=True)
class _Refusal:
    """Say what the database held against a batch."""

    reason: HeldReason
    constraint: str


@frozen(kw_only=True)
class Removal:
    """Remove runs of one tenant for one cause."""

    transactions: RetentionTransactions
    terms: Terms
    cause: Cause

    def steps(self) -> Iterator[RetentionBatch | HeldRun]:
        """Remove what may go, and then name the runs that somebody else holds: a batch passes their rows over."""
        began_at = self.transactions.now()
        named = set[RunId]()
        for step in self._between(FIRST, LAST):
            if isinstance(step, HeldRun):
                named.add(step.run_id)
            yield step
        # What became removable meanwhile was not passed over, however busy the tenant is.
        terms = self.terms.as_of(self.transactions.now() - began_at)
        for run in self.transactions.removable(terms, self.cause):
            if RunId(run.place.run_id) not in named:
                yield self._held(run.place, _Refusal(reason="locked", constraint=""))

    def _between(self, after: Place, until: Place) -> Iterator[RetentionBatch | HeldRun]:
        """Remove what may go between two places, the second included, in order.

        A place is passed once, so a run that is held, by whomever, keeps nobody from the others. A batch that holds one
        is repeated in halves until that run stands alone.
        """
        while (answer := self._remove(after, until)) is not None:
            if isinstance(answer, RemovedBatch):
                yield self._counted(answer)
                after = answer.last
                continue
            places = self._places(after, until)
            if len(places) == 1:
                yield self._held(places[0], answer)
            elif places:
                middle = places[len(places) // 2 - 1]
                yield from self._between(after, middle)
                yield from self._between(middle, places[-1])
            after = places[-1] if places else after

    def _remove(self, after: Place, until: Place) -> RemovedBatch | _Refusal | None:
        """Try one batch; ``None`` where nothing more may go."""
        try:
            with observed_retention_batch(self.terms.tenant_id) as observed:
                with self.transactions.begun() as retention:
                    retention.permit(self.transactions.schema)
                    removed = retention.remove(self.terms, self.cause, after=after, until=until)
                return observed.ended_with(removed)
        except DBAPIError as error:
            reason = _HELD.get(sqlstate_of(error))
            if reason is None:
                raise
            return _Refusal(reason=reason, constraint=constraint_of(error))

    def _places(self, after: Place, until: Place) -> list[Place]:
        """Read where the runs stand that a batch would have had."""
        with self.transactions.begun() as retention:
            found = retention.removable(self.terms, self.cause, after=after, until=until)
        return [run.place for run in found[:MOST_RUNS]]

    def _counted(self, removed: RemovedBatch) -> RetentionBatch:
        return RetentionBatch(
            tenant_id=self.terms.tenant_id,
            run_count=removed.run_count,
            row_count=removed.row_count,
            byte_count=removed.byte_count,
        )

    def _held(self, place: Place, refusal: _Refusal) -> HeldRun:
        return HeldRun(
            tenant_id=self.terms.tenant_id,
            run_id=RunId(place.run_id),
            reason=refusal.reason,
            constraint=refusal.constraint,
        )
