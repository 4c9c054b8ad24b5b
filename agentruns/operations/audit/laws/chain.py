"""The laws of a journal's bytes: each event is chained to the one before it, and satisfies its document."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from attrs import frozen

from agentruns.domain.ids import RunId
from agentruns.domain.ledger.event import JournalHead
from agentruns.domain.scalars import TenantId
from agentruns.errors import CorruptDataError
from agentruns.operations.audit.findings import Finding
from agentruns.operations.audit.law import Batch
from agentruns.operations.audit.laws.derived import derived, ids_of
from agentruns.operations.audit.scope import Key
from agentruns.operations.audit.snapshot import Snapshot
from agentruns.runtime.whole_run_checks import RunChecks
from agentruns.store.unit_of_work import UnitOfWork
from agentruns.store.whole_history import PAGE, EventRow, WholeHistory

_END: Final = 2**63 - 1


@frozen(kw_only=True)
class ChainLaw:
    """Recompute the digest of every event over the one before it; the first that differs is the finding of a run."""

    label: str = "LED-2"
    sentence: str = "the digest of each event covers the event and the digest before it"

    async def find(self, snapshot: Snapshot, batch: Batch) -> list[Finding]:
        """Read the journals of the batch in pages."""
        found = [await self._of_run(snapshot, key) for key, _ in batch.runs]
        return [each for each in found if each is not None]

    async def _of_run(self, snapshot: Snapshot, key: Key) -> Finding | None:
        head: JournalHead | None = None
        sequence = 1
        try:
            checks = RunChecks(*ids_of(key))
            async for row in events_of(snapshot, checks.tenant_id, checks.run_id):
                sequence = row.sequence
                event = checks.event(row)
                if not event.follows(head):
                    raise checks.corrupt("run_events.digest")
                head = event.head
        except CorruptDataError as error:
            return derived(error, key, label=self.label, law=self.sentence, at=f"sequence={sequence}")
        return None


@frozen(kw_only=True)
class DocumentLaw:
    """Hold the data of every event against the schema document that its row names; the first refused is the finding."""

    label: str = "LED-21"
    sentence: str = "the data of each event satisfy the document that its row names"

    async def find(self, snapshot: Snapshot, batch: Batch) -> list[Finding]:
        """Read the journals of the batch in pages."""
        found = [await self._of_run(snapshot, key) for key, _ in batch.runs]
        return [each for each in found if each is not None]

    async def _of_run(self, snapshot: Snapshot, key: Key) -> Finding | None:
        sequence = 1
        try:
            checks = RunChecks(*ids_of(key))
            async for row in events_of(snapshot, checks.tenant_id, checks.run_id):
                sequence = row.sequence
                checks.document(checks.event(row))
        except CorruptDataError as error:
            return derived(error, key, label=self.label, law=self.sentence, at=f"sequence={sequence}")
        return None


async def events_of(snapshot: Snapshot, tenant_id: TenantId, run_id: RunId) -> AsyncIterator[EventRow]:
    """Read the journal of a run, a page at a time."""
    after, size = 0, PAGE
    while size == PAGE:
        rows = await snapshot.read(partial(_page, tenant_id, run_id, after))
        for row in rows:
            yield row
            after = row.sequence
        size = len(rows)


def _page(tenant_id: TenantId, run_id: RunId, after: int, work: UnitOfWork) -> tuple[EventRow, ...]:
    return WholeHistory(work).events(tenant_id, run_id, after=after, until=_END)


EVENTS_ARE_CHAINED: Final = ChainLaw()
EVENTS_SATISFY_THEIR_DOCUMENTS: Final = DocumentLaw()
