"""Remove whole runs by policy, and keep a receipt of each batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from attrs import evolve, frozen

from agentruns.domain.digests import Digest
from agentruns.domain.ids import ReceiptId
from agentruns.domain.scalars import TenantId
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp
from agentruns.store.mapping import instant
from agentruns.store.sender import Sender
from agentruns.store.statements import retention as statements
from agentruns.store.statements import retention_reads as reads
from agentruns.store.statements.reservations import prune
from agentruns.store.statements.retention_reads import Cause

_MICROSECOND: Final = timedelta(microseconds=1)
_NO_ID: Final = "00000000-0000-0000-0000-000000000000"


@frozen(order=True)
class Place:
    """Say where a run stands in the order of removal: since when it is over, and its id."""

    since: datetime
    run_id: str


FIRST: Final = Place(datetime(1970, 1, 1, tzinfo=UTC), _NO_ID)
LAST: Final = Place(datetime(9999, 12, 31, tzinfo=UTC), _NO_ID)


@frozen(kw_only=True)
class Terms:
    """Say how long the runs of a tenant are kept.

    Attributes:
        tenant_id: the tenant.
        keeps: by status, for how long after its end a run stays.
        keep_isolated: for how long after its isolation a run stays.
        policy: canonical bytes of the policy, for the receipt.
    """

    tenant_id: TenantId
    keeps: Mapping[RunStatus, timedelta]
    keep_isolated: timedelta
    policy: bytes

    def values(self, cause: Cause) -> dict[str, object]:
        """Bind what the conditions of a cause ask for, durations as microseconds."""
        if cause == "isolated":
            return {"tenant_id": self.tenant_id.text, "keep": _micros(self.keep_isolated)}
        each = {f"keep_{status}": _micros(keep) for status, keep in self.keeps.items()}
        return {"tenant_id": self.tenant_id.text, "keep": _micros(min(self.keeps.values())), **each}

    def as_of(self, earlier: timedelta) -> Terms:
        """Give the terms under which exactly those runs may go now that might go so long ago."""
        keeps = {status: keep + earlier for status, keep in self.keeps.items()}
        return evolve(self, keeps=keeps, keep_isolated=self.keep_isolated + earlier)


@frozen(kw_only=True)
class RemovedBatch:
    """Count what one statement removed, and say where it came to."""

    run_count: int
    row_count: int
    byte_count: int
    last: Place


@frozen(kw_only=True)
class RemovableRun:
    """Hold what is known of a run that may go."""

    place: Place
    status: RunStatus
    event_count: int


@frozen(kw_only=True)
class RetentionReceipt:
    """Prove that a batch of runs was removed by policy, and not lost.

    Attributes:
        removed_at: instant of the removal by the database's clock.
        cutoff_at: instant before which the removed runs were over.
        byte_count: bytes of bodies; what rows and indexes took beside them is not counted.
        runs_digest: of the sorted list of runs and admission digests.
        policy: canonical JSON of the policy.
    """

    tenant_id: TenantId
    receipt_id: ReceiptId
    removed_at: Timestamp
    cutoff_at: Timestamp
    run_count: int
    row_count: int
    byte_count: int
    runs_digest: Digest
    policy: bytes


class Retention:
    """Find what may go, and remove it. Removals belong to a transaction that :meth:`permit` has begun."""

    def __init__(self, work: Sender) -> None:
        self._work = work

    def permit(self, schema: str) -> None:
        """Open the append-only tables to deletes until the transaction ends."""
        self._work.execute(statements.permit(), {"schema": schema})

    def remove(self, terms: Terms, cause: Cause, *, after: Place, until: Place) -> RemovedBatch | None:
        """Remove one batch of the runs between two places, the second included; ``None`` where none may go."""
        values = {
            **terms.values(cause),
            **_window(after, until),
            "receipt_id": ReceiptId.generate().text,
            "policy": terms.policy,
        }
        row = self._work.execute(statements.remove(cause), values).one()
        if not row.run_count:
            return None
        last = Place(row.since, row.run_id)
        return RemovedBatch(run_count=row.run_count, row_count=row.row_count, byte_count=row.byte_count, last=last)

    def prune_reservations(self, window: timedelta, *, limit: int) -> int:
        """Remove the oldest reservations that are older than a window, and count them."""
        found: int = self._work.execute(prune(), {"window": _micros(window), "limit": limit}).scalar_one()
        return found

    def removable(self, terms: Terms, cause: Cause, *, after: Place, until: Place) -> Sequence[RemovableRun]:
        """Read a page of the runs between two places that may go, in the order of removal."""
        values = {**terms.values(cause), **_window(after, until)}
        return [
            RemovableRun(
                place=Place(row.since, row.run_id), status=RunStatus(row.status), event_count=row.head_sequence
            )
            for row in self._work.execute(reads.places(cause), values)
        ]

    def now(self) -> datetime:
        """Read the database's clock."""
        found: datetime = self._work.execute(reads.read_clock()).scalar_one()
        return found

    def next_tenant(self, after: TenantId | None) -> TenantId | None:
        """Find the tenant that follows another one, or the first, among those that have runs."""
        values = {"tenant_id": "" if after is None else after.text}
        found = self._work.execute(reads.next_tenant(), values).scalar()
        return None if found is None else TenantId(found)

    def tables_of_runs(self, schema: str) -> frozenset[str]:
        """Name the tables that carry a run's key, as the catalogue has them."""
        return frozenset(self._work.execute(reads.tables_of_runs(), {"schema": schema}).scalars())

    def receipts(self, tenant_id: TenantId, *, after: ReceiptId | None) -> Sequence[RetentionReceipt]:
        """Read a page of a tenant's receipts, oldest first."""
        values = {"tenant_id": tenant_id.text, "after": _NO_ID if after is None else after.text}
        return [_receipt(row) for row in self._work.execute(reads.receipts_after(), values)]


def _window(after: Place, until: Place) -> dict[str, object]:
    return {
        "after_since": after.since,
        "after_run_id": after.run_id,
        "until_since": until.since,
        "until_run_id": until.run_id,
    }


def _micros(duration: timedelta) -> int:
    return duration // _MICROSECOND


def _receipt(row: Any) -> RetentionReceipt:
    values = row._asdict() | {
        "tenant_id": TenantId(row.tenant_id),
        "receipt_id": ReceiptId(row.receipt_id),
        "removed_at": instant(row.removed_at),
        "cutoff_at": instant(row.cutoff_at),
        "runs_digest": Digest(row.runs_digest),
    }
    return RetentionReceipt(**values)
