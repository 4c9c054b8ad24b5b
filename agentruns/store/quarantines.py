"""Isolate runs whose evidence contradicts itself."""

from __future__ import annotations

from attrs import frozen

from agentruns.domain.ids import QuarantineId, RunId
from agentruns.domain.lease import RunFence
from agentruns.domain.ledger.event import JournalHead
from agentruns.domain.quarantine import Quarantine
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.store.mapping import instant
from agentruns.store.sender import Sender
from agentruns.store.statements import quarantines as statements


@frozen(kw_only=True)
class QuarantineAnswer:
    """What the statement says: ``done``, or the first reason why nothing was changed."""

    word: str
    now: Timestamp


class Quarantines:
    """Insert records of isolation, each with the run row that it isolates."""

    def __init__(self, work: Sender) -> None:
        self._work = work

    def add_claimed(self, fence: RunFence, *, head: JournalHead, quarantine: Quarantine) -> QuarantineAnswer | None:
        """Isolate a run under its live fence, at the head where the finding was made; ``None`` without a run."""
        values = {
            **statements.ITEMS.parameters(
                [
                    (
                        fence.tenant_id.text,
                        fence.run_id.text,
                        fence.epoch.value,
                        fence.attempt_id.text,
                        head.sequence.value,
                        head.digest.raw,
                        quarantine.quarantine_id.text,
                        quarantine.cause.value,
                        quarantine.component,
                        quarantine.canonical,
                        quarantine.digest.raw,
                    )
                ]
            )
        }
        row = self._work.execute(statements.quarantine_claimed(), values).one_or_none()
        return None if row is None else QuarantineAnswer(word=row.answer, now=instant(row.now))

    def find_unreleased(self, tenant_id: TenantId, run_id: RunId) -> QuarantineId | None:
        """Name the record that isolates a run now."""
        values = {"tenant_id": tenant_id.text, "run_id": run_id.text}
        row = self._work.execute(statements.find_unreleased(), values).one_or_none()
        return None if row is None else QuarantineId(str(row.quarantine_id))
