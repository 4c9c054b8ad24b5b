"""Declare which exceptions of a node are worth another attempt, and when."""

from __future__ import annotations

from math import isfinite

from attrs import frozen

from agentruns.domain.failure import Failure, FailureCategory, NeverRetry, RetryAdvice, SafeAfter
from agentruns.domain.failure_details import exception_details
from agentruns.domain.ids import FailureId
from agentruns.domain.numbers import DurationMillis
from agentruns.domain.scalars import FailureCode, FailureOrigin
from agentruns.errors import InvalidOptionError

NODE_EXCEPTION = FailureCode("runtime.node.exception")
ORIGIN_NODE = FailureOrigin("agentruns.runtime.node")

MAXIMUM_ATTEMPTS = 64
MAXIMUM_SECONDS = 30 * 24 * 60 * 60
MAXIMUM_FACTOR = 100


@frozen(kw_only=True)
class NodeRetry:
    """Turn exceptions of a node into failures that may be repeated. Part of the node's code, not of the graph.

    Attempt *n* fails with the advice to wait ``delay`` times ``factor`` to the power of *n* - 1 seconds, at most
    ``maximum_delay``; the last permitted attempt fails for good. What is not listed fails at once.

    Attributes:
        on: classes of exceptions.
        delay: seconds after the first attempt, 0..2592000.
        factor: by which each further delay grows, 1..100.
        maximum_delay: seconds, 0..2592000.
        attempts: how many there may be altogether, 1..64.
    """

    on: tuple[type[Exception], ...]
    delay: float = 1.0
    factor: float = 2.0
    maximum_delay: float = 3_600.0
    attempts: int = 3

    def __attrs_post_init__(self) -> None:
        if type(self.on) is not tuple or not self.on or not all(_is_exception(each) for each in self.on):
            raise _out_of_range("on", self.on, "a tuple of classes of exceptions")
        _check_number("delay", self.delay, least=0, most=MAXIMUM_SECONDS)
        _check_number("factor", self.factor, least=1, most=MAXIMUM_FACTOR)
        _check_number("maximum_delay", self.maximum_delay, least=0, most=MAXIMUM_SECONDS)
        if type(self.attempts) is not int or not 1 <= self.attempts <= MAXIMUM_ATTEMPTS:
            raise _out_of_range("attempts", self.attempts, f"an integer in 1..{MAXIMUM_ATTEMPTS}")

    def advice(self, attempt: int) -> RetryAdvice:
        """Say what follows the failure of that attempt, counted from 1."""
        if attempt >= self.attempts:
            return NeverRetry()
        seconds = min(self.delay * self.factor ** (attempt - 1), self.maximum_delay)
        return SafeAfter(delay=DurationMillis(round(seconds * 1_000)))

    def failure(self, error: Exception, *, attempt: int) -> Failure:
        """Declare a listed exception; only the name of its class is used."""
        return Failure.from_exception(
            error,
            id=FailureId.generate(),
            code=NODE_EXCEPTION,
            origin=ORIGIN_NODE,
            category=FailureCategory.INTERNAL,
            retry_advice=self.advice(attempt),
            details=exception_details(error),
        )


def _is_exception(candidate: object) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, Exception)


def _check_number(option: str, value: float, *, least: int, most: int) -> None:
    is_number = type(value) in (int, float) and isfinite(value)
    if not is_number or not least <= value <= most:
        raise _out_of_range(option, value, f"a number in {least}..{most}")


def _out_of_range(option: str, value: object, bound: str) -> InvalidOptionError:
    return InvalidOptionError(type_name="NodeRetry", option=option, value=str(value), bound=bound)
