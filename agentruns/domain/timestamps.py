"""Instants in microseconds, with a parser of their own: the standard library's accepts too much and has no year 0."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import ClassVar, Self

from attrs import frozen

from agentruns.domain.numbers import DurationMillis
from agentruns.domain.scalars import Scalar, refuse, refuse_text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: For what is written: an aware one would print its offset.
_BARE_EPOCH = _EPOCH.replace(tzinfo=None)
_EPOCH_DAY = _EPOCH.toordinal()
_MICROSECOND = timedelta(microseconds=1)
_DAY = 86_400_000_000
_LENGTH = 27
#: The Gregorian calendar repeats after 400 years, so year 0 is read and written as year 400.
_CYCLE_YEARS = 400
_CYCLE_DAYS = 146_097
_YEAR_1 = -62_135_596_800_000_000

_SHAPE = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})\.([0-9]{6})Z",
)
_FOREIGN = re.compile(r"[^0-9:.TZ-]")


@frozen(eq=False, repr=False, weakref_slot=False)
class Timestamp(Scalar):
    """Hold an instant, years 0000..9999, in UTC. Its text is ``YYYY-MM-DDTHH:MM:SS.ffffffZ``.

    Attributes:
        micros: microseconds since 1970-01-01T00:00:00Z.
    """

    micros: int

    MIN: ClassVar[Timestamp]
    MAX: ClassVar[Timestamp]
    #: What a column may hold lies between these two, both included.
    STORED_MIN: ClassVar[Timestamp]
    STORED_MAX: ClassVar[Timestamp]

    lowest: ClassVar[int] = -62_167_219_200_000_000
    highest: ClassVar[int] = 253_402_300_799_999_999

    def __attrs_post_init__(self) -> None:
        if type(self.micros) is not int:
            raise TypeError("Timestamp takes int")
        if not self.lowest <= self.micros <= self.highest:
            raise refuse(self, "out_of_range")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the 27 characters; no other precision and no other offset."""
        if type(text) is not str:
            raise TypeError("Timestamp is read from str")
        found = _SHAPE.fullmatch(text)
        if not found:
            raise refuse_text(cls, text, shortest=_LENGTH, longest=_LENGTH, foreign=_FOREIGN)
        year, month, day, hour, minute, second, micro = map(int, found.groups())
        if hour > 23 or minute > 59 or second > 59:  # noqa: PLR2004  # a clock's bounds
            raise refuse(cls, "out_of_range", offset=11)
        days = cls._days(year, month, day)
        return cls(days * _DAY + (hour * 3600 + minute * 60 + second) * 1_000_000 + micro)

    @classmethod
    def _days(cls, year: int, month: int, day: int) -> int:
        """Count days since 1970-01-01."""
        shift = 0 if year else _CYCLE_YEARS
        try:
            ordinal = date(year + shift, month, day).toordinal()
        except ValueError:
            ordinal = 0
        if not ordinal:
            raise refuse(cls, "out_of_range", offset=0)
        return ordinal - _EPOCH_DAY - (_CYCLE_DAYS if shift else 0)

    @classmethod
    def from_datetime(cls, moment: datetime) -> Self:
        """Take an aware ``datetime`` of any offset.

        Raises:
            InvalidValueError: ``naive``; ``out_of_range`` where the offset leads out of the years 0000..9999.
        """
        if not isinstance(moment, datetime):
            raise TypeError("Timestamp is taken from datetime")
        if moment.utcoffset() is None:
            raise refuse(cls, "naive")
        since = moment - _EPOCH
        return cls((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)

    def to_datetime(self) -> datetime:
        """Give an aware ``datetime`` in UTC.

        Raises:
            InvalidValueError: ``out_of_range`` for year 0000, which ``datetime`` does not have.
        """
        if self.micros < _YEAR_1:
            raise refuse(self, "out_of_range")
        return _EPOCH + timedelta(microseconds=self.micros)

    @property
    def is_storable(self) -> bool:
        """Whether a column may hold it."""
        return Timestamp.STORED_MIN.micros <= self.micros <= Timestamp.STORED_MAX.micros

    def plus(self, delta: timedelta) -> Self:
        """Move by a duration of either sign.

        Raises:
            InvalidValueError: ``overflow`` or ``underflow``.
        """
        return self.plus_micros(delta // _MICROSECOND)

    def plus_millis(self, duration: DurationMillis) -> Self:
        """Move forward.

        Raises:
            InvalidValueError: ``overflow``.
        """
        return self.plus_micros(duration.value * 1000)

    def plus_micros(self, micros: int) -> Self:
        """Move by microseconds of either sign.

        Raises:
            InvalidValueError: ``overflow`` or ``underflow``.
        """
        moved = self.micros + micros
        if moved > self.highest:
            raise refuse(self, "overflow")
        if moved < self.lowest:
            raise refuse(self, "underflow")
        return type(self)(moved)

    def minus(self, earlier: Timestamp) -> timedelta:
        """Measure the time since another instant, negative when that is later."""
        return timedelta(microseconds=self.micros - earlier.micros)

    def __str__(self) -> str:
        return _text(self.micros)

    def __repr__(self) -> str:
        return f"Timestamp({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return self.micros == other.micros if isinstance(other, Timestamp) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.micros)

    def __lt__(self, other: Timestamp) -> bool:
        return self.micros < other.micros if isinstance(other, Timestamp) else NotImplemented

    def __le__(self, other: Timestamp) -> bool:
        return self.micros <= other.micros if isinstance(other, Timestamp) else NotImplemented

    def __gt__(self, other: Timestamp) -> bool:
        return self.micros > other.micros if isinstance(other, Timestamp) else NotImplemented

    def __ge__(self, other: Timestamp) -> bool:
        return self.micros >= other.micros if isinstance(other, Timestamp) else NotImplemented

    def __reduce__(self) -> tuple[type[Self], tuple[int]]:
        return type(self), (self.micros,)


@lru_cache(maxsize=64)
def _text(micros: int) -> str:
    """Write an instant; the events of a commit, and of those that are sent with it, have the same one."""
    if micros < _YEAR_1:
        moment = _BARE_EPOCH + timedelta(days=_CYCLE_DAYS, microseconds=micros)
        return "0000" + moment.isoformat(timespec="microseconds")[4:] + "Z"
    return (_BARE_EPOCH + timedelta(microseconds=micros)).isoformat(timespec="microseconds") + "Z"


Timestamp.MIN = Timestamp(Timestamp.lowest)
Timestamp.MAX = Timestamp(Timestamp.highest)
Timestamp.STORED_MIN = Timestamp(0)
Timestamp.STORED_MAX = Timestamp.parse("9999-12-31T00:00:00.000000Z")
