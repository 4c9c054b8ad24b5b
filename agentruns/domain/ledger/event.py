"""One event of a run's journal, and the head that names the version of a run."""

from __future__ import annotations

from typing import Any, Final, Self

from attrs import frozen

from agentruns.domain.digests import Digest, DigestPurpose, digest_body
from agentruns.domain.ids import EventId, RunId
from agentruns.domain.ledger.data import EventData
from agentruns.domain.numbers import JournalSequence
from agentruns.domain.scalars import JournalEventKind, TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import InvalidValueError

_NO_EVENT = bytes(32)
_FIRST = JournalSequence(1)
#: An event that was read; one that was made begins a journal or follows a head.
_UNCHAINED: Final = object()


@frozen(kw_only=True)
class JournalHead:
    """Name the last event of a run. A plan made from a verified head is true until the head moves.

    Attributes:
        sequence: of the event.
        digest: of the event, and so of everything before it.
        recorded_at: of the event.
    """

    sequence: JournalSequence
    digest: Digest
    recorded_at: Timestamp


class _KeptOrigin:
    """Keep what an event was made from, outside equality: its data, and the head that it was chained to."""

    __slots__ = ("_chained_to", "_made_from")
    _made_from: EventData
    _chained_to: JournalHead | None


@frozen(kw_only=True, weakref_slot=False)
class Event(_KeptOrigin):
    """Hold one row of the journal. Made as it was read, nothing is verified: the fold does that.

    Attributes:
        sequence: from 1, without gap.
        event_id: chosen by the caller before the first try.
        recorded_at: the stamp of the commit.
        epoch: 0 for the control plane, else that of the worker's fence.
        kind: one of the closed set.
        schema_digest: of the document that covers the data.
        data: canonical bytes of a closed object, at most 16 KiB.
        digest: over the previous event's digest and the envelope.
    """

    tenant_id: TenantId
    run_id: RunId
    sequence: JournalSequence
    event_id: EventId
    recorded_at: Timestamp
    epoch: int
    kind: JournalEventKind
    schema_digest: Digest
    data: bytes
    digest: Digest

    @classmethod
    def following(
        cls,
        head: JournalHead | None,
        *,
        tenant_id: TenantId,
        run_id: RunId,
        event_id: EventId,
        recorded_at: Timestamp,
        epoch: int,
        data: EventData,
    ) -> Self:
        """Chain a new event to a head, or begin a journal.

        Raises:
            InvalidValueError: ``wrong_source``, the kind may not be written under this epoch.
        """
        kind = data.kind
        if not kind.source.allows(epoch):
            raise InvalidValueError(type_name="Event", reason="wrong_source")
        members: dict[str, Any] = {
            "tenant_id": tenant_id,
            "run_id": run_id,
            "sequence": _FIRST if head is None else head.sequence.next(),
            "event_id": event_id,
            "recorded_at": recorded_at,
            "epoch": epoch,
            "kind": kind.text,
            "schema_digest": kind.document.digest,
            "data": data.encode(),
        }
        event = cls(**members, digest=_chained(head, _envelope(**members)))
        object.__setattr__(event, "_made_from", data)
        object.__setattr__(event, "_chained_to", head)
        return event

    @property
    def made_from(self) -> EventData | None:
        """The data that the bytes were made from; ``None`` for an event that was read."""
        return getattr(self, "_made_from", None)

    @property
    def envelope(self) -> bytes:
        """Canonical bytes of everything but the digests; not stored."""
        return _envelope(
            tenant_id=self.tenant_id,
            run_id=self.run_id,
            sequence=self.sequence,
            event_id=self.event_id,
            recorded_at=self.recorded_at,
            epoch=self.epoch,
            kind=self.kind,
            schema_digest=self.schema_digest,
            data=self.data,
        )

    @property
    def head(self) -> JournalHead:
        """This event as the head of its run."""
        return JournalHead(sequence=self.sequence, digest=self.digest, recorded_at=self.recorded_at)

    def follows(self, head: JournalHead | None) -> bool:
        """Tell whether the digest is that of this envelope after the head's digest."""
        if getattr(self, "_chained_to", _UNCHAINED) is head:
            return True
        return self.digest == _chained(head, self.envelope)


def _envelope(
    *,
    tenant_id: TenantId,
    run_id: RunId,
    sequence: JournalSequence,
    event_id: EventId,
    recorded_at: Timestamp,
    epoch: int,
    kind: JournalEventKind,
    schema_digest: Digest,
    data: bytes,
) -> bytes:
    """Join the members in the order of their names around the data; none of the other texts needs an escape."""
    rest = (
        f',"epoch":"{epoch}","event_id":"{event_id.text}","kind":"{kind.text}","recorded_at":"{recorded_at}"'
        f',"run_id":"{run_id.text}","schema_digest":"{schema_digest}","sequence":"{sequence.value}"'
        f',"tenant_id":"{tenant_id.text}"}}'
    )
    return b'{"data":' + data + rest.encode("ascii")


def _chained(head: JournalHead | None, envelope: bytes) -> Digest:
    return digest_body(DigestPurpose.EVENT, _NO_EVENT if head is None else head.digest.raw, envelope)
