"""Verify the events at the ends of a journal: each by itself, chained to the digest before it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from attrs import define, field, frozen

from agentruns.domain.digests import Digest
from agentruns.domain.ids import EventId, RunId
from agentruns.domain.ledger.data import EventData, parse_data
from agentruns.domain.ledger.event import Event, JournalHead
from agentruns.domain.ledger.findings import MISSING, UNSUPPORTED
from agentruns.domain.ledger.kinds import EventKind, find_kind
from agentruns.domain.numbers import JournalSequence
from agentruns.domain.run_ends import RunEnds, StoredEvent
from agentruns.domain.scalars import JournalEventKind
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import AgentRunsError, CorruptDataError, InvalidValueError

FIRST: Final = 1


@frozen(kw_only=True)
class VerifiedEvent:
    """An event whose digest is that of its envelope after its predecessor's digest.

    Attributes:
        data: its bytes, read as the members of its kind.
    """

    event: Event
    kind: EventKind
    data: EventData


def corrupt(ends: RunEnds, component: str, *, reason: str = "") -> CorruptDataError:
    """Make the error of a run whose evidence does not verify."""
    return CorruptDataError(tenant_id=ends.tenant_id, run_id=named_run(ends), component=component, reason=reason)


def named_run(ends: RunEnds) -> RunId | str:
    """Give the id of the run for an error; what stands in a row may be no id at all."""
    stored = ends.run_id or ""
    try:
        return RunId.parse(stored)
    except InvalidValueError:
        return stored


@contextmanager
def well_formed(ends: RunEnds, component: str) -> Iterator[None]:
    """Take a value that its own class refuses for what it is here: corrupt.

    The refusal may quote what was stored, so it is not chained.
    """
    try:
        yield
    except CorruptDataError:
        raise
    except (AgentRunsError, TypeError, ValueError, OverflowError):
        is_refused = True
    else:
        is_refused = False
    if is_refused:
        raise corrupt(ends, component)


def insist(ends: RunEnds, component: str, *, holds: bool) -> None:
    """Find the evidence corrupt unless a rule holds."""
    if not holds:
        raise corrupt(ends, component)


def instant(ends: RunEnds, component: str, value: datetime) -> Timestamp:
    """Read an instant of a column; what a driver makes of the infinities is naive, and corrupt."""
    try:
        return Timestamp.from_datetime(value)
    except (InvalidValueError, TypeError):
        pass
    raise corrupt(ends, component)


@define
class EndsJournal:
    """Verify the events that the ends of a run hold, each once."""

    ends: RunEnds
    _verified: dict[int, VerifiedEvent] = field(factory=dict, init=False)

    def at(self, sequence: int) -> VerifiedEvent:
        """Give the verified event at a place.

        Raises:
            CorruptDataError: it is missing, of a kind that this release does not know, not chained to its
                predecessor, or its data is not the canonical form of its kind.
        """
        verified = self._verified.get(sequence)
        if verified is None:
            verified = self._verified[sequence] = self._verify(sequence)
        return verified

    def verify_all(self) -> None:
        """Verify every event that was read, whoever names it: corruption is found before anything else is said."""
        for sequence in self.ends.events:
            self.at(sequence)

    @property
    def highest_epoch(self) -> int:
        """The highest epoch among the events that were read."""
        return max(stored.epoch for stored in self.ends.events.values())

    def _verify(self, sequence: int) -> VerifiedEvent:
        stored = self.ends.events.get(sequence)
        if stored is None:
            raise corrupt(self.ends, "run_events", reason=MISSING)
        event = self._event(stored)
        insist(self.ends, "chain", holds=event.follows(self._predecessor(event, stored)))
        kind = find_kind(event.kind, event.schema_digest)
        if kind is None:
            raise corrupt(self.ends, "kind", reason=UNSUPPORTED)
        insist(self.ends, "source", holds=kind.source.allows(event.epoch))
        with well_formed(self.ends, "kind"):
            data = parse_data(kind, event.data)
        return VerifiedEvent(event=event, kind=kind, data=data)

    def _event(self, stored: StoredEvent) -> Event:
        with well_formed(self.ends, "run_events"):
            return Event(
                tenant_id=self.ends.tenant_id,
                run_id=RunId(self.ends.run_id or ""),
                sequence=JournalSequence(stored.sequence),
                event_id=EventId(stored.event_id),
                recorded_at=Timestamp.from_datetime(stored.recorded_at),
                epoch=stored.epoch,
                kind=JournalEventKind(stored.kind),
                schema_digest=Digest(stored.schema_digest),
                data=stored.data,
                digest=Digest(stored.digest),
            )

    def _predecessor(self, event: Event, stored: StoredEvent) -> JournalHead | None:
        """Give what the event is chained to: nothing for the first, else the digest that the row before it states."""
        if stored.sequence == FIRST:
            return None
        if stored.previous is None:
            raise corrupt(self.ends, "run_events")
        before = JournalSequence(stored.sequence - 1)
        with well_formed(self.ends, "chain"):
            return JournalHead(sequence=before, digest=Digest(stored.previous), recorded_at=event.recorded_at)
