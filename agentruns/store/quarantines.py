"""Isolate runs whose evidence contradicts itself, and let them go on."""

from __future__ import annotations

from typing import TypeVar

from attrs import frozen

from agentruns.domain.ids import QuarantineId, RunId
from agentruns.domain.lease import RunFence
from agentruns.domain.ledger.event import JournalHead
from agentruns.domain.quarantine import Quarantine, QuarantineRelease
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.wire import decode
from agentruns.errors import CorruptDataError, InvalidValueError, RunNotFoundError
from agentruns.store.mapping import instant, optional_instant
from agentruns.store.run_view import HeadVersion
from agentruns.store.sender import Sender
from agentruns.store.statements import quarantines as statements

_RecordT = TypeVar("_RecordT", Quarantine, QuarantineRelease)


@frozen(kw_only=True)
class QuarantineAnswer:
    """What the statement says: ``done``, or the first reason why nothing was changed."""

    word: str
    now: Timestamp


@frozen(kw_only=True)
class StoredIsolation:
    """A record of isolation and what answers it, each read from its own bytes.

    Attributes:
        release: ``None`` while nobody has let the run go on.
        released_at: likewise.
    """

    quarantine: Quarantine
    quarantined_at: Timestamp
    release: QuarantineRelease | None
    released_at: Timestamp | None


class Quarantines:
    """Insert records of isolation, each with the run row that it isolates, and the releases that answer them."""

    def __init__(self, work: Sender) -> None:
        self._work = work

    def add_claimed(
        self, fence: RunFence, *, head: JournalHead | HeadVersion, quarantine: Quarantine
    ) -> QuarantineAnswer | None:
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

    def release(
        self, tenant_id: TenantId, run_id: RunId, *, head: JournalHead, release: QuarantineRelease
    ) -> QuarantineAnswer | None:
        """Let a run go on from the head at which it was verified; ``None`` without a run."""
        item = (
            tenant_id.text,
            run_id.text,
            head.sequence.value,
            head.digest.raw,
            release.quarantine_id.text,
            release.canonical,
            release.digest.raw,
        )
        row = self._work.execute(statements.release(), statements.RELEASES.parameters([item])).one_or_none()
        return None if row is None else QuarantineAnswer(word=row.answer, now=instant(row.now))

    def find(self, tenant_id: TenantId, run_id: RunId, quarantine_id: QuarantineId) -> StoredIsolation | None:
        """Read a record of a run and its release; ``None`` when this run was never isolated under this id.

        Raises:
            RunNotFoundError: the tenant has no such run.
            CorruptDataError: one of the two is not what its digest says.
        """
        values = {"tenant_id": tenant_id.text, "run_id": run_id.text, "quarantine_id": quarantine_id.text}
        row = self._work.execute(statements.find(), values).one_or_none()
        if row is None:
            raise RunNotFoundError(tenant_id=tenant_id, id=run_id)
        if row.body is None:
            return None
        quarantine, release = _record(row.body, row.digest, Quarantine), None
        if row.release_body is not None:
            release = _record(row.release_body, row.release_digest, QuarantineRelease)
        if quarantine is None or (release is None) is not (row.release_body is None):
            table = "run_quarantines" if quarantine is None else "run_quarantine_releases"
            raise CorruptDataError(tenant_id=tenant_id, run_id=run_id, component=f"{table}.body")
        return StoredIsolation(
            quarantine=quarantine,
            quarantined_at=instant(row.quarantined_at),
            release=release,
            released_at=optional_instant(row.released_at),
        )

    def find_unreleased(self, tenant_id: TenantId, run_id: RunId) -> QuarantineId | None:
        """Name the record that isolates a run now."""
        values = {"tenant_id": tenant_id.text, "run_id": run_id.text}
        row = self._work.execute(statements.find_unreleased(), values).one_or_none()
        return None if row is None else QuarantineId(str(row.quarantine_id))


def _record(body: bytes, digest: bytes, shape: type[_RecordT]) -> _RecordT | None:
    """Read a record whose digest is that of its row; ``None`` for anything else, which the refusal may quote."""
    try:
        record = decode(body, shape)
    except InvalidValueError:
        return None
    return record if record.digest.raw == digest else None
