"""What a node asks a run to wait for, and how it becomes absolute when it is registered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeAlias, TypeVar

from attrs import field, frozen

from agentruns.domain.digests import Digest
from agentruns.domain.identity import PrincipalIdentity
from agentruns.domain.ids import WaitId
from agentruns.domain.members import check_members
from agentruns.domain.numbers import DurationMillis
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.wait_records import (
    InterruptKind,
    InterruptRegistration,
    TimerKind,
    TimerRegistration,
    WaitClass,
    WaitRegistration,
    WaitResolution,
    WaitResolver,
    read_registration,
)
from agentruns.domain.wire import register_union
from agentruns.errors import InvalidValueError

__all__ = [
    "MAXIMUM_WAITS",
    "AnyNodeWait",
    "InterruptKind",
    "InterruptRegistration",
    "InterruptWait",
    "NodeWait",
    "TimerKind",
    "TimerRegistration",
    "TimerWait",
    "WaitClass",
    "WaitRegistration",
    "WaitResolution",
    "WaitResolver",
    "check_batch",
    "read_registration",
]

MAXIMUM_WAITS: Final = 64

_KindT = TypeVar("_KindT", InterruptKind, TimerKind)


class NodeWait:
    """Ask a run to wait, for somebody or for an instant.

    Instants are absolute, or relative to the commit that registers the wait, so "sleep 30 s" counts from then on.
    """

    __slots__ = ()

    @staticmethod
    def interrupt(
        kind: InterruptKind | str,
        *,
        request: JournalPayload,
        action_digest: Digest | None = None,
        principal: PrincipalIdentity | None = None,
        scopes: ScopeSet | Iterable[str] = (),
        expires_at: Timestamp | datetime | None = None,
        expires_in: timedelta | None = None,
        id: WaitId | None = None,  # noqa: A002  # the member's name
    ) -> InterruptWait:
        """Ask for a resolution; without an expiry it may take for ever.

        Args:
            kind: approval, input, authentication, external_signal or reconciliation.
            request: what is asked.
            action_digest: of what would be permitted; by default the request's.
            principal: who alone may resolve it.
            scopes: what a resolver needs.
            expires_at: from this instant on it can no longer be resolved, and the run fails.
            expires_in: the same, counted from the wait's registration; whole milliseconds.
            id: unique in the run for ever; by default a fresh one.

        Raises:
            InvalidValueError: ``unknown_kind``, ``conflicting_instants``, ``naive``, or what a member refuses.
        """
        if not isinstance(request, JournalPayload):
            raise TypeError(f"pass request as JournalPayload, not {type(request).__name__}")
        return InterruptWait(
            wait_id=WaitId.generate() if id is None else id,
            kind=_kind(InterruptKind, kind),
            request=request,
            action_digest=request.digest if action_digest is None else action_digest,
            principal=principal,
            scopes=ScopeSet.taken(scopes),
            expires_at=_instant(expires_at),
            expires_in=_duration(expires_in),
        )

    @staticmethod
    def timer(
        *,
        due_at: Timestamp | datetime | None = None,
        due_in: timedelta | None = None,
        kind: TimerKind | str = TimerKind.SLEEP,
        id: WaitId | None = None,  # noqa: A002  # the member's name
    ) -> TimerWait:
        """Let time pass: until an instant, or for whole milliseconds from the wait's registration.

        Raises:
            InvalidValueError: ``unknown_kind``, ``conflicting_instants``, ``missing_instant``, ``naive``, or what a
                member refuses.
        """
        return TimerWait(
            wait_id=WaitId.generate() if id is None else id,
            kind=_kind(TimerKind, kind),
            due_at=_instant(due_at),
            due_in=_duration(due_in),
        )


@frozen(kw_only=True)
class InterruptWait(NodeWait):
    """Hold an interrupt as a node's result states it. Made by :meth:`NodeWait.interrupt`."""

    wait_id: WaitId
    kind: InterruptKind
    request: JournalPayload = field(repr=False)
    action_digest: Digest
    principal: PrincipalIdentity | None = None
    scopes: ScopeSet
    expires_at: Timestamp | None = None
    expires_in: DurationMillis | None = None

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if self.expires_at is not None and self.expires_in is not None:
            raise InvalidValueError(type_name="InterruptWait", reason="conflicting_instants")

    def registered_at(self, recorded_at: Timestamp) -> InterruptRegistration:
        """Give the registration by a commit of that instant, with an absolute expiry."""
        return InterruptRegistration(
            wait_id=self.wait_id,
            kind=self.kind,
            request=self.request,
            action_digest=self.action_digest,
            principal=self.principal,
            scopes=self.scopes,
            expires_at=None if self.never_expires else _absolute(recorded_at, self.expires_at, self.expires_in),
        )

    @property
    def never_expires(self) -> bool:
        """It states no expiry of either form."""
        return self.expires_at is None and self.expires_in is None


@frozen(kw_only=True)
class TimerWait(NodeWait):
    """Hold a timer as a node's result states it. Made by :meth:`NodeWait.timer`."""

    wait_id: WaitId
    kind: TimerKind
    due_at: Timestamp | None = None
    due_in: DurationMillis | None = None

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if self.due_at is not None and self.due_in is not None:
            raise InvalidValueError(type_name="TimerWait", reason="conflicting_instants")
        if self.due_at is None and self.due_in is None:
            raise InvalidValueError(type_name="TimerWait", reason="missing_instant")

    def registered_at(self, recorded_at: Timestamp) -> TimerRegistration:
        """Give the registration by a commit of that instant, with an absolute instant."""
        due_at = _absolute(recorded_at, self.due_at, self.due_in)
        return TimerRegistration(wait_id=self.wait_id, kind=self.kind, due_at=due_at)


AnyNodeWait: TypeAlias = InterruptWait | TimerWait

register_union(AnyNodeWait, tag="class", variants={"interrupt": InterruptWait, "timer": TimerWait})


def check_batch(waits: Sequence[AnyNodeWait]) -> None:
    """Refuse anything but 1..64 waits with distinct ids.

    Raises:
        InvalidValueError: ``wait_batch_invalid``.
    """
    if not 1 <= len(waits) <= MAXIMUM_WAITS or len({wait.wait_id for wait in waits}) != len(waits):
        raise InvalidValueError(type_name="NodeResult", reason="wait_batch_invalid")


def _absolute(recorded_at: Timestamp, stated: Timestamp | None, after: DurationMillis | None) -> Timestamp:
    """Count from the stated instant or else from the commit, within what a column holds: no wait is refused for it."""
    micros = (stated or recorded_at).micros + (0 if after is None else after.value * 1000)
    return Timestamp(min(max(micros, Timestamp.STORED_MIN.micros), Timestamp.STORED_MAX.micros))


def _kind(cls: type[_KindT], kind: _KindT | str) -> _KindT:
    try:
        return cls(kind)
    except ValueError:
        raise InvalidValueError(type_name=cls.__name__, reason="unknown_kind") from None


def _instant(stated: Timestamp | datetime | None) -> Timestamp | None:
    return Timestamp.from_datetime(stated) if isinstance(stated, datetime) else stated


def _duration(stated: timedelta | None) -> DurationMillis | None:
    return None if stated is None else DurationMillis.from_timedelta(stated)
