"""Identifiers that the library or its host mints: UUIDs of version 7 in their canonical text."""

from __future__ import annotations

import re
from typing import Self
from uuid import UUID

from uuid_utils import uuid7

from agentruns.domain.scalars import TextScalar, refuse, set_text
from agentruns.errors import InvalidValueError

_LENGTH = 36
_SHAPE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class UuidScalar(TextScalar):
    """Hold a UUID of version 7. Nothing may depend on the order of two that are made in the same millisecond."""

    __slots__ = ()
    grammar = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
    foreign = re.compile(r"[^0-9a-f-]")
    shortest = _LENGTH
    longest = _LENGTH

    @classmethod
    def generate(cls) -> Self:
        """Make a fresh one, unique under threads and after ``fork``."""
        made = object.__new__(cls)
        # What the generator gives is canonical, so the constructor would have nothing to check.
        set_text(made, str(uuid7()))
        return made

    @classmethod
    def from_uuid(cls, value: UUID) -> Self:
        """Take the standard library's value, as a driver returns it."""
        return cls(str(value))

    @classmethod
    def refusal(cls, text: str) -> InvalidValueError:
        """Tell uppercase and another version or variant apart from a wrong shape."""
        error = super().refusal(text)
        if error.reason == "invalid_byte" and text.isascii() and _SHAPE.fullmatch(text.lower()):
            return refuse(cls, "not_canonical", offset=error.offset)
        if error.reason == "invalid_format" and _SHAPE.fullmatch(text):
            return refuse(cls, "unsupported_version")
        return error


class RunId(UuidScalar):
    """Identify a run within its tenant."""

    __slots__ = ()


class ThreadId(UuidScalar):
    """Identify the conversation that a run belongs to."""

    __slots__ = ()


class InvocationId(UuidScalar):
    """Identify one call of a model or a tool."""

    __slots__ = ()


class EventId(UuidScalar):
    """Identify an event of a journal; a mutation carries the id of the event that it appends."""

    __slots__ = ()


class CheckpointId(UuidScalar):
    """Identify a checkpoint of a run."""

    __slots__ = ()


class AttemptId(UuidScalar):
    """Identify one attempt: to claim a run, to execute a node, or to exchange with a provider."""

    __slots__ = ()


class FailureId(UuidScalar):
    """Identify a declared failure."""

    __slots__ = ()


class InterruptId(UuidScalar):
    """Identify an interrupt that a node asks for."""

    __slots__ = ()


class TimerId(UuidScalar):
    """Identify a timer that a node asks for."""

    __slots__ = ()


class WaitId(UuidScalar):
    """Identify a wait, whichever its class: an interrupt's or a timer's id read from a place that holds both."""

    __slots__ = ()


class QuarantineId(UuidScalar):
    """Identify a quarantine of a run."""

    __slots__ = ()


class ArtifactId(UuidScalar):
    """Identify bytes that are kept elsewhere."""

    __slots__ = ()


class DeliveryId(UuidScalar):
    """Identify a delivery of the outbox."""

    __slots__ = ()


class DestinationId(UuidScalar):
    """Identify a destination of the outbox."""

    __slots__ = ()


class ReservationId(UuidScalar):
    """Identify a reservation: of budget, or of a turn in a cycle of fair scheduling."""

    __slots__ = ()


class ReceiptId(UuidScalar):
    """Identify a receipt of retention."""

    __slots__ = ()
