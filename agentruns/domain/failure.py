"""Declared failures: public values, told apart by stable codes."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum, unique
from typing import Self

from attrs import field, frozen

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import JsonTree, encode_bounded
from agentruns.domain.exception_name import exception_name
from agentruns.domain.failure_codes import NODE_TASK_PANICKED, ORIGIN_RUNTIME
from agentruns.domain.identity import SchemaReference
from agentruns.domain.ids import EventId, FailureId
from agentruns.domain.json_bounds import check_json
from agentruns.domain.json_limits import KIB, JsonLimits
from agentruns.domain.members import check_members
from agentruns.domain.retry_advice import NeverRetry, ReconcileFirst, RetryAdvice, SafeAfter
from agentruns.domain.scalars import FailureCode, FailureOrigin
from agentruns.domain.texts import check_public_text
from agentruns.errors import InvalidValueError

__all__ = [
    "DETAILS_LIMITS",
    "Failure",
    "FailureCategory",
    "FailureDetails",
    "NeverRetry",
    "ReconcileFirst",
    "RetryAdvice",
    "SafeAfter",
]

MAX_MESSAGE_BYTES = 1_024

DETAILS_LIMITS = JsonLimits(
    max_bytes=16 * KIB,
    max_depth=8,
    max_entries=64,
    max_nodes=512,
    max_string_bytes=4 * KIB,
    max_key_bytes=128,
)


@unique
class FailureCategory(Enum):
    """Say what sort of failure it is. Whether it may be repeated is said by the advice alone."""

    INVALID_INPUT = "invalid_input"
    UNAUTHENTICATED = "unauthenticated"
    PERMISSION_DENIED = "permission_denied"
    POLICY_DENIED = "policy_denied"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    UNSUPPORTED = "unsupported"
    RATE_LIMITED = "rate_limited"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CANCELLED = "cancelled"
    DEPENDENCY_UNAVAILABLE = "dependency_unavailable"
    DATA_CORRUPTION = "data_corruption"
    AMBIGUOUS_EXTERNAL_OUTCOME = "ambiguous_external_outcome"
    INTERNAL = "internal"


@frozen(kw_only=True)
class FailureDetails:
    """Say more about a failure, for programs.

    Attributes:
        schema: of the value.
        value: JSON of at most 16 KiB, depth 8, 64 entries, 512 values, strings of 4 KiB and names of 128 bytes.
    """

    schema: SchemaReference
    value: BoundedJson = field(repr=False, metadata={"limits": DETAILS_LIMITS})

    def __attrs_post_init__(self) -> None:
        check_members(self)
        check_json(self, self.value, DETAILS_LIMITS)
        encode_bounded(self.value.value, DETAILS_LIMITS)

    @classmethod
    def of(cls, schema: SchemaReference, tree: JsonTree) -> Self:
        """Take details from a tree of plain JSON."""
        return cls(schema=schema, value=BoundedJson.of(tree, DETAILS_LIMITS))


@frozen(kw_only=True)
class Failure:
    """Declare that something failed. Everything in it is public; that it holds no secret is its author's duty.

    Attributes:
        id: of this failure.
        category: what sort it is; ambiguous exactly when the advice is to reconcile first.
        code: what went wrong, stable, for programs.
        origin: which component says so.
        message: for people; 1..1 024 bytes of public text on one line.
        retry_advice: whether it may be repeated.
        details: more of it, for programs.
        caused_by_event_id: the event of the same journal that led to it.
    """

    id: FailureId
    category: FailureCategory
    code: FailureCode
    origin: FailureOrigin
    message: str = field(repr=False)
    retry_advice: RetryAdvice
    details: FailureDetails | None = field(default=None, repr=False)
    caused_by_event_id: EventId | None = None

    def __attrs_post_init__(self) -> None:
        check_members(self)
        check_public_text("Failure", self.message, max_bytes=MAX_MESSAGE_BYTES)
        is_ambiguous = self.category is FailureCategory.AMBIGUOUS_EXTERNAL_OUTCOME
        if is_ambiguous is not isinstance(self.retry_advice, ReconcileFirst):
            raise InvalidValueError(type_name="Failure", reason="ambiguity_mismatch")

    @classmethod
    def from_exception(
        cls,
        error: BaseException,
        *,
        id: FailureId,  # noqa: A002  # the member's name
        code: FailureCode = NODE_TASK_PANICKED,
        origin: FailureOrigin = ORIGIN_RUNTIME,
        category: FailureCategory = FailureCategory.INTERNAL,
        retry_advice: RetryAdvice | None = None,
        details: FailureDetails | None = None,
    ) -> Self:
        """Declare an exception as a failure. Only the name of its class is used, never what it says or holds."""
        return cls(
            id=id,
            category=category,
            code=code,
            origin=origin,
            message=f"unexpected exception of class {exception_name(error)}",
            retry_advice=NeverRetry() if retry_advice is None else retry_advice,
            details=details,
        )

    @classmethod
    def cancellation(
        cls,
        message: str,
        *,
        id: FailureId,  # noqa: A002  # the member's name
        code: str = "application.cancelled",
        origin: str = "application",
    ) -> Self:
        """Say why a run is to end. Everything in it is public, and ``id`` is kept for every retry.

        Raises:
            InvalidValueError: a member breaks its grammar.
        """
        return cls(
            id=id,
            category=FailureCategory.CANCELLED,
            code=FailureCode(code),
            origin=FailureOrigin(origin),
            message=message,
            retry_advice=NeverRetry(),
        )

    @classmethod
    def retry_after(
        cls, delay: timedelta, message: str, *, code: str = "application.retry", origin: str = "application"
    ) -> Self:
        """Say why an attempt failed that is worth repeating once ``delay`` has passed. Everything in it is public.

        Raises:
            InvalidValueError: a member breaks its grammar, or the delay is not of whole milliseconds up to 30 days.
        """
        return cls(
            id=FailureId.generate(),
            category=FailureCategory.DEPENDENCY_UNAVAILABLE,
            code=FailureCode(code),
            origin=FailureOrigin(origin),
            message=message,
            retry_advice=SafeAfter.of(delay),
        )

    @property
    def is_cancellation(self) -> bool:
        """It can be the failure of a cancelled run: category ``cancelled``, never to be repeated."""
        return self.category is FailureCategory.CANCELLED and isinstance(self.retry_advice, NeverRetry)
