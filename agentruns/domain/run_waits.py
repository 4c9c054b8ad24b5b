"""Believe a wait that was read by itself: its registration, and the event that settled it."""

from __future__ import annotations

from attrs import evolve, frozen

from agentruns.domain.digests import DigestPurpose, digest_body
from agentruns.domain.ids import WaitId
from agentruns.domain.ledger.bodies import RESOLUTION, BodyRow
from agentruns.domain.ledger.data import (
    CancellationRequested,
    EventData,
    InterruptResolved,
    RunFailed,
    TimerFired,
)
from agentruns.domain.ledger.records import WaitSettlement
from agentruns.domain.run_ends import RunEnds, StoredEvent
from agentruns.domain.run_ends_journal import EndsJournal, VerifiedEvent, corrupt, insist, well_formed
from agentruns.domain.waits import WaitRegistration, WaitResolution, read_registration


@frozen(kw_only=True)
class StoredWaitRow:
    """The whole row of a wait, as it was read, and the event at its ``settled_sequence``."""

    wait_id: str
    kind: str
    registration: bytes
    digest: bytes
    sequence: int
    status: str
    settled_sequence: int | None
    resolution: bytes | None
    resolution_digest: bytes | None
    event: StoredEvent | None


@frozen(kw_only=True)
class VerifiedWait:
    """A wait whose registration has the digest of its row, and whose settlement is proved by an event.

    Attributes:
        how: ``None`` while it is outstanding.
        event: that settled it.
        resolution: exactly when it was resolved.
    """

    registration: WaitRegistration
    how: WaitSettlement | None
    event: VerifiedEvent | None
    resolution: WaitResolution | None


def verify_wait(ends: RunEnds, row: StoredWaitRow) -> VerifiedWait:
    """Verify a wait of the run whose ends were verified before.

    Raises:
        CorruptDataError: the first thing that does not verify.
    """
    insist(ends, "run_waits.registration", holds=digest_body(DigestPurpose.WAIT, row.registration).raw == row.digest)
    with well_formed(ends, "run_waits.registration"):
        registration = read_registration(row.registration)
    insist(ends, "run_waits.wait_id", holds=registration.wait_id.text == row.wait_id)
    insist(ends, "run_waits.kind", holds=registration.kind.value == row.kind)
    if row.status == "outstanding":
        insist(ends, "run_waits.settled_sequence", holds=row.settled_sequence is None)
        return VerifiedWait(registration=registration, how=None, event=None, resolution=None)
    with well_formed(ends, "run_waits.status"):
        how = WaitSettlement(row.status)
    event = _settling(ends, row)
    insist(ends, "run_waits.status", holds=_settles(event.data, registration.wait_id, how))
    return VerifiedWait(registration=registration, how=how, event=event, resolution=_resolution(ends, row, event.data))


def _settling(ends: RunEnds, row: StoredWaitRow) -> VerifiedEvent:
    if row.event is None:
        raise corrupt(ends, "run_waits.settled_sequence")
    return EndsJournal(evolve(ends, events={row.event.sequence: row.event})).at(row.event.sequence)


def _settles(data: EventData, wait_id: WaitId, how: WaitSettlement) -> bool:
    if how is WaitSettlement.RESOLVED:
        return isinstance(data, InterruptResolved) and data.wait_id == wait_id
    if how is WaitSettlement.FIRED:
        return isinstance(data, TimerFired) and data.wait_id == wait_id
    return isinstance(data, CancellationRequested | RunFailed) and wait_id in data.abandoned


def _resolution(ends: RunEnds, row: StoredWaitRow, data: EventData) -> WaitResolution | None:
    """Read the answer, whose bytes hash to the digest that the event names and the row states."""
    if not isinstance(data, InterruptResolved):
        insist(ends, "run_waits.resolution", holds=row.resolution is None)
        return None
    body = BodyRow(data=row.resolution or b"")
    insist(ends, "run_waits.resolution_digest", holds=row.resolution_digest == data.resolution_digest.raw)
    insist(ends, "run_waits.resolution", holds=RESOLUTION.verifies(data.resolution_digest, body))
    with well_formed(ends, "run_waits.resolution"):
        return RESOLUTION.read(body)
