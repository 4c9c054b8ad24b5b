"""Waits as a run holds them: registrations with absolute instants, and what settled them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, unique
from typing import ClassVar, Final, TypeAlias

from attrs import field, frozen

from agentruns.domain.digests import Digest, DigestPurpose
from agentruns.domain.identity import PrincipalIdentity
from agentruns.domain.ids import WaitId
from agentruns.domain.json_limits import MIB
from agentruns.domain.kept import KeptBytes
from agentruns.domain.members import check_members
from agentruns.domain.operator_authority import MAX_REASON_BYTES
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.texts import check_public_text
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.wire import decode, register_union
from agentruns.errors import InvalidValueError

#: Of a registration or a resolution.
MAXIMUM_WAIT_BYTES: Final = 4 * MIB


@unique
class WaitClass(Enum):
    """Say what ends a wait: somebody's resolution, or an instant."""

    INTERRUPT = "interrupt"
    TIMER = "timer"


@unique
class InterruptKind(Enum):
    """Say what is asked for."""

    APPROVAL = "approval"
    INPUT = "input"
    AUTHENTICATION = "authentication"
    EXTERNAL_SIGNAL = "external_signal"
    RECONCILIATION = "reconciliation"


@unique
class TimerKind(Enum):
    """Say why time has to pass."""

    SLEEP = "sleep"
    RETRY_BACKOFF = "retry_backoff"


@frozen(kw_only=True)
class InterruptRegistration(KeptBytes):
    """Hold a registered interrupt: a body of the barrier that made the run wait.

    Attributes:
        wait_id: unique in the run for ever.
        kind: what is asked for.
        request: what is asked.
        action_digest: of what would be permitted.
        principal: who alone may resolve it.
        scopes: what a resolver needs.
        expires_at: from this instant on it can no longer be resolved.
    """

    digest_purpose: ClassVar = DigestPurpose.WAIT
    max_wire_bytes: ClassVar = MAXIMUM_WAIT_BYTES
    wait_class: ClassVar = WaitClass.INTERRUPT

    wait_id: WaitId
    kind: InterruptKind
    request: JournalPayload = field(repr=False)
    action_digest: Digest
    principal: PrincipalIdentity | None = None
    scopes: ScopeSet
    expires_at: Timestamp | None = None

    def __attrs_post_init__(self) -> None:
        check_members(self)
        _check_storable(self, self.expires_at)


@frozen(kw_only=True)
class TimerRegistration(KeptBytes):
    """Hold a registered timer: a body of the barrier that made the run wait.

    Attributes:
        wait_id: unique in the run for ever.
        kind: why time has to pass.
        due_at: from this instant on it may fire.
    """

    digest_purpose: ClassVar = DigestPurpose.WAIT
    max_wire_bytes: ClassVar = MAXIMUM_WAIT_BYTES
    wait_class: ClassVar = WaitClass.TIMER

    wait_id: WaitId
    kind: TimerKind
    due_at: Timestamp

    def __attrs_post_init__(self) -> None:
        check_members(self)
        _check_storable(self, self.due_at)


WaitRegistration: TypeAlias = InterruptRegistration | TimerRegistration

register_union(WaitRegistration, tag="class", variants={"interrupt": InterruptRegistration, "timer": TimerRegistration})


def read_registration(body: bytes) -> WaitRegistration:
    """Read the stored body of a wait.

    Raises:
        InvalidValueError: the bytes are no canonical registration.
    """
    registration: WaitRegistration = decode(body, WaitRegistration)
    return registration


@frozen(kw_only=True)
class WaitResolver:
    """Say who resolved an interrupt. The embedding service has authenticated and authorised it.

    Attributes:
        principal: who.
        scopes: what the principal was granted.
        reason: why, where an operator answers by hand; 1..1 024 bytes of text on one line.
    """

    principal: PrincipalIdentity
    scopes: ScopeSet
    reason: str | None = field(default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if self.reason is not None:
            check_public_text("WaitResolver", self.reason, max_bytes=MAX_REASON_BYTES)

    @classmethod
    def of(cls, principal: PrincipalIdentity, scopes: ScopeSet | Iterable[str] = ()) -> WaitResolver:
        """Name who answers, and what the principal was granted, as texts in any order."""
        return cls(principal=principal, scopes=ScopeSet.taken(scopes))


@frozen(kw_only=True)
class WaitResolution(KeptBytes):
    """Hold the answer to an interrupt, as it is stored.

    Attributes:
        resolver: who answered.
        payload: the answer, which its own schema has accepted.
    """

    digest_purpose: ClassVar = DigestPurpose.WAIT_RESOLUTION
    max_wire_bytes: ClassVar = MAXIMUM_WAIT_BYTES

    resolver: WaitResolver
    payload: JournalPayload = field(repr=False)

    def __attrs_post_init__(self) -> None:
        check_members(self)


def _check_storable(record: object, instant: Timestamp | None) -> None:
    if instant is not None and not instant.is_storable:
        raise InvalidValueError(type_name=type(record).__name__, reason="out_of_range")
