"""Whether something that failed may be repeated."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar, Self, TypeAlias

from attrs import frozen

from agentruns.domain.members import check_members
from agentruns.domain.numbers import DurationMillis
from agentruns.domain.wire import register_union
from agentruns.errors import InvalidValueError

MAX_DELAY = DurationMillis(30 * 24 * 60 * 60 * 1_000)


@frozen(kw_only=True)
class NeverRetry:
    """Do not repeat it."""

    kind: ClassVar[str] = "never"


@frozen(kw_only=True)
class SafeAfter:
    """Repeating is safe once ``delay`` has passed; at most 30 days. :meth:`of` takes a ``timedelta``."""

    kind: ClassVar[str] = "safe_after"

    delay: DurationMillis

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if self.delay > MAX_DELAY:
            raise InvalidValueError(type_name="SafeAfter", reason="delay_too_long")

    @classmethod
    def of(cls, delay: timedelta) -> Self:
        """Take the standard library's duration, in whole milliseconds.

        Raises:
            InvalidValueError: it has microseconds, is negative or longer than 30 days.
        """
        return cls(delay=DurationMillis.from_timedelta(delay))


@frozen(kw_only=True)
class ReconcileFirst:
    """Nobody knows what happened: find out before anything is repeated."""

    kind: ClassVar[str] = "reconcile_first"


RetryAdvice: TypeAlias = NeverRetry | SafeAfter | ReconcileFirst

register_union(RetryAdvice, tag="kind", variants={each.kind: each for each in (NeverRetry, SafeAfter, ReconcileFirst)})
