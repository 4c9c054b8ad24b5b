"""Counters: integers of a class each, canonical decimal on the wire, with arithmetic that cannot leave its range."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import ClassVar, Final, Self

from attrs import frozen

from agentruns.domain.scalars import Scalar, refuse

INT64_MAX = 2**63 - 1
UINT64_MAX = 2**64 - 1

_DECIMAL = re.compile(r"0|[1-9][0-9]*")
_FOREIGN = re.compile(r"[^0-9]")
_MILLISECOND = timedelta(milliseconds=1)


def parse_decimal(owner: type, text: str, *, highest: int) -> int:
    """Read a canonical decimal; its length is tested before it is converted.

    Raises:
        TypeError: it is no ``str``.
        InvalidValueError: ``too_short``, ``too_long``, ``invalid_byte`` or ``not_canonical``.
    """
    if type(text) is not str:
        raise TypeError(f"{owner.__name__} is read from str")
    if not text:
        raise refuse(owner, "too_short")
    if len(text.encode("utf-8", "surrogatepass")) > len(str(highest)):
        raise refuse(owner, "too_long")
    if _DECIMAL.fullmatch(text):
        return int(text)
    if found := _FOREIGN.search(text):
        raise refuse(owner, "invalid_byte", offset=found.start())
    raise refuse(owner, "not_canonical")


@frozen(eq=False, repr=False, weakref_slot=False)
class Counter(Scalar):
    """Hold an integer within the range of its class. There are no operators: ``int(counter)`` reads it.

    Attributes:
        value: the integer.
    """

    value: int

    lowest: ClassVar[int] = 0
    highest: ClassVar[int] = INT64_MAX

    def __attrs_post_init__(self) -> None:
        if type(self.value) is not int:
            raise TypeError(f"{type(self).__name__} takes int")
        if not self.lowest <= self.value <= self.highest:
            raise refuse(self, "out_of_range")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a canonical decimal."""
        return cls(parse_decimal(cls, text, highest=cls.highest))

    def plus(self, other: Self) -> Self:
        """Add one of the same class.

        Raises:
            InvalidValueError: ``overflow``.
        """
        return self._checked(self.value + self._same(other))

    def minus(self, other: Self) -> Self:
        """Subtract one of the same class.

        Raises:
            InvalidValueError: ``underflow``.
        """
        return self._checked(self.value - self._same(other))

    def times(self, factor: int) -> Self:
        """Multiply by a plain integer.

        Raises:
            InvalidValueError: ``overflow`` or ``underflow``.
        """
        if type(factor) is not int:
            raise TypeError("a counter is multiplied by int")
        return self._checked(self.value * factor)

    def raised(self, count: int) -> Self:
        """Add a plain integer.

        Raises:
            InvalidValueError: ``overflow`` or ``underflow``.
        """
        if type(count) is not int:
            raise TypeError("a counter is raised by int")
        return self._checked(self.value + count)

    def next(self) -> Self:
        """Count one further.

        Raises:
            InvalidValueError: ``overflow``.
        """
        return self._checked(self.value + 1)

    def _same(self, other: Self) -> int:
        if other.__class__ is not self.__class__:
            raise TypeError(f"{type(self).__name__} does not mix with {type(other).__name__}")
        return other.value

    def _checked(self, value: int) -> Self:
        """Make another value of the class past its constructor, which would check the range once more."""
        if not self.lowest <= value <= self.highest:
            raise refuse(self, "overflow" if value > self.highest else "underflow")
        made = object.__new__(type(self))
        _set_value(made, value)
        return made

    def __int__(self) -> int:
        return self.value

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value})"

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __lt__(self, other: Self) -> bool:
        return self.value < other.value if other.__class__ is self.__class__ else NotImplemented

    def __le__(self, other: Self) -> bool:
        return self.value <= other.value if other.__class__ is self.__class__ else NotImplemented

    def __gt__(self, other: Self) -> bool:
        return self.value > other.value if other.__class__ is self.__class__ else NotImplemented

    def __ge__(self, other: Self) -> bool:
        return self.value >= other.value if other.__class__ is self.__class__ else NotImplemented

    def __reduce__(self) -> tuple[type[Self], tuple[int]]:
        return type(self), (self.value,)


#: Sets the value of a new counter past the guard of frozen records.
_set_value: Final[Callable[[Counter, int], None]] = Counter.__dict__["value"].__set__


class DurationMillis(Counter):
    """Hold a duration in whole milliseconds."""

    __slots__ = ()

    @classmethod
    def from_timedelta(cls, delta: timedelta) -> Self:
        """Take a duration that is whole milliseconds.

        Raises:
            InvalidValueError: ``invalid_format``, it has microseconds; ``out_of_range``, it is negative.
        """
        millis, rest = divmod(delta, _MILLISECOND)
        if rest:
            raise refuse(cls, "invalid_format")
        return cls(millis)

    def to_timedelta(self) -> timedelta:
        """Give the standard library's value.

        Raises:
            InvalidValueError: ``out_of_range``, beyond what a ``timedelta`` holds.
        """
        if self.value > timedelta.max // _MILLISECOND:
            raise refuse(self, "out_of_range")
        return timedelta(milliseconds=self.value)


class TokenCount(Counter):
    """Count tokens of a model."""

    __slots__ = ()
    highest = UINT64_MAX


class ByteCount(Counter):
    """Count bytes."""

    __slots__ = ()
    highest = UINT64_MAX


class ExecutionCount(Counter):
    """Count executions, steps or calls."""

    __slots__ = ()
    highest = UINT64_MAX


class MicroUnits(Counter):
    """Count millionths of a currency's unit."""

    __slots__ = ()
    highest = UINT64_MAX


class RunRevision(Counter):
    """Number the lifecycle transitions of a run; 0 is the state before the first."""

    __slots__ = ()


class JournalSequence(Counter):
    """Number the events of a run's journal; the first has 1."""

    __slots__ = ()
    lowest = 1


class Superstep(Counter):
    """Number the supersteps of a run, from 0."""

    __slots__ = ()


class InvocationNumber(Counter):
    """Number the invocations of a run, from 0."""

    __slots__ = ()


class FencingEpoch(Counter):
    """Number the leases of a run, from 1. A column's 0 means that none was issued and is no value of this class."""

    __slots__ = ()
    lowest = 1
