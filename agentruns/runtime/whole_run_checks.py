"""Hold rows that the fold does not read against the events that it has verified."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import TypeVar

from attrs import define, field, frozen

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import Digest
from agentruns.domain.ids import EventId, RunId, WaitId
from agentruns.domain.ledger.data import (
    MAX_DATA_BYTES,
    CancellationRequested,
    EventData,
    InterruptResolved,
    RunFailed,
    TimerFired,
    parse_data,
)
from agentruns.domain.ledger.event import Event, JournalHead
from agentruns.domain.ledger.kinds import EventKind, find_kind
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import JournalSequence
from agentruns.domain.quarantine import Quarantine, QuarantineRelease
from agentruns.domain.scalars import JournalEventKind, TenantId
from agentruns.domain.schema import JsonSchemaRegistry, JsonSchemaRegistryBuilder
from agentruns.domain.wire import decode
from agentruns.errors import CorruptDataError, InvalidJsonError, InvalidValueError, SchemaRejectedError
from agentruns.runtime.standard_schemas import register_standard_schemas
from agentruns.store.mapping import instant
from agentruns.store.whole_history import EventRow, IsolationRow, WaitRow

_RecordT = TypeVar("_RecordT")


@cache
def event_documents() -> JsonSchemaRegistry:
    """Give the documents that cover events; they are the library's, so no application has to register them."""
    builder = JsonSchemaRegistryBuilder()
    register_standard_schemas(builder)
    return builder.build()


@frozen
class RunChecks:
    """Check rows of one run.

    Every method raises :class:`CorruptDataError` for what does not verify, with the rule or the column as component.
    """

    tenant_id: TenantId
    run_id: RunId

    def corrupt(self, component: str, reason: str = "") -> CorruptDataError:
        """Make the finding."""
        return CorruptDataError(tenant_id=self.tenant_id, run_id=self.run_id, component=component, reason=reason)

    def insist(self, component: str, *, holds: bool) -> None:
        """Raise the finding unless something holds."""
        if not holds:
            raise self.corrupt(component)

    def event(self, row: EventRow) -> Event:
        """Read an event; nothing of it is verified yet."""
        try:
            return Event(
                tenant_id=self.tenant_id,
                run_id=self.run_id,
                sequence=JournalSequence(row.sequence),
                event_id=EventId(row.event_id),
                recorded_at=instant(row.recorded_at),
                epoch=row.epoch,
                kind=JournalEventKind(row.kind),
                schema_digest=Digest(row.schema_digest),
                data=row.data,
                digest=Digest(row.digest),
            )
        except (InvalidValueError, TypeError) as error:
            raise self.corrupt("run_events") from error

    def document(self, event: Event) -> EventKind:
        """Hold the data of an event against the document that its row names; give its kind."""
        kind = find_kind(event.kind, event.schema_digest)
        if kind is None:
            raise self.corrupt("kind", reason="unsupported_schema")
        try:
            event_documents().validate(kind.document, BoundedJson.read(event.data, MAX_DATA_BYTES), "event")
        except (SchemaRejectedError, InvalidJsonError) as error:
            raise self.corrupt("kind", reason="document") from error
        return kind

    def wait(self, row: WaitRow, *, state: RunState, until: int) -> None:
        """Hold how a wait was settled against the event that settled it; after the fold's head it is outstanding."""
        if row.sequence > until:
            return
        is_outstanding = row.settled_sequence is None or row.settled_sequence > until
        folded = row.wait_id in _texts(wait.wait_id for wait in state.waits)
        self.insist("run_waits.settled_sequence", holds=is_outstanding == folded)
        if row.settled_sequence is None:
            self.insist("run_waits.status", holds=row.status == "outstanding")
            return
        status, resolution = self._settlement(row)
        self.insist("run_waits.status", holds=row.status == status)
        self.insist("run_waits.resolution_digest", holds=row.resolution_digest == resolution)

    def _settlement(self, row: WaitRow) -> tuple[str, bytes | None]:
        """Say what the event made of the wait, if it is about this one."""
        match self._data(row):
            case InterruptResolved(wait_id=wait_id) as data if wait_id.text == row.wait_id:
                return "resolved", data.resolution_digest.raw
            case TimerFired(wait_id=wait_id) if wait_id.text == row.wait_id:
                return "fired", None
            case CancellationRequested(abandoned=ids) | RunFailed(abandoned=ids) if row.wait_id in _texts(ids):
                return "abandoned", None
        raise self.corrupt("run_waits.settled_sequence")

    def _data(self, row: WaitRow) -> EventData | None:
        if row.kind is None or row.schema_digest is None or row.data is None:
            return None
        kind = find_kind(JournalEventKind(row.kind), Digest(row.schema_digest))
        return None if kind is None else parse_data(kind, row.data)

    def isolation(self, row: IsolationRow) -> None:
        """Hold the columns of a quarantine, and of its release, against their bodies."""
        if row.body is None:
            raise self.corrupt("row", reason="run_quarantines")
        record = self._read(row.body, Quarantine, "run_quarantines.body")
        epoch = None if record.epoch is None else record.epoch.value
        self.insist("run_quarantines.digest", holds=row.digest == record.digest.raw)
        self.insist("run_quarantines.quarantine_id", holds=row.quarantine_id == record.quarantine_id.text)
        self.insist("run_quarantines.cause_kind", holds=row.cause_kind == record.cause.value)
        self.insist("run_quarantines.component", holds=row.component == record.component)
        self.insist("run_quarantines.epoch", holds=row.epoch == epoch)
        if row.release_body is None or row.release_released_at is None or row.quarantined_at is None:
            return
        release = self._read(row.release_body, QuarantineRelease, "run_quarantine_releases.body")
        is_own = release.quarantine_id == record.quarantine_id
        self.insist("run_quarantine_releases.digest", holds=row.release_digest == release.digest.raw)
        self.insist("run_quarantine_releases.quarantine_id", holds=is_own)
        self.insist("run_quarantine_releases.released_at", holds=row.release_released_at >= row.quarantined_at)

    def _read(self, body: bytes, shape: type[_RecordT], component: str) -> _RecordT:
        """Decode a body. The refusal may quote what was stored, so it is not chained."""
        try:
            return decode(body, shape)
        except InvalidValueError:
            pass
        raise self.corrupt(component)


def _texts(ids: Iterable[WaitId]) -> set[str]:
    return {each.text for each in ids}


@define
class JournalPass:
    """Carry the chain through pages of a journal.

    Attributes:
        head: the last event that was checked.
        kinds: how many events of each kind there are.
    """

    checks: RunChecks
    head: JournalHead | None = None
    kinds: Counter[EventKind] = field(factory=Counter)

    @property
    def sequence(self) -> int:
        """The last event that was checked."""
        return 0 if self.head is None else self.head.sequence.value

    def add(self, rows: tuple[EventRow, ...]) -> None:
        """Check the events that follow; each document, and the chain, which makes them those of the fold."""
        for row in rows:
            event = self.checks.event(row)
            if row.sequence != self.sequence + 1 or not event.follows(self.head):
                raise self.checks.corrupt("chain")
            self.kinds[self.checks.document(event)] += 1
            self.head = event.head
