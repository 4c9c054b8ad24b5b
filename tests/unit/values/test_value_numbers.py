"""Counters, durations and money: their ranges, their texts and arithmetic that cannot leave them."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta

import pytest

from agentruns.domain.money import Money
from agentruns.domain.numbers import (
    ByteCount,
    Counter,
    DurationMillis,
    ExecutionCount,
    FencingEpoch,
    InvocationNumber,
    JournalSequence,
    MicroUnits,
    RunRevision,
    Superstep,
    TokenCount,
)
from agentruns.domain.scalars import CurrencyCode
from agentruns.errors import InvalidValueError

SIGNED, UNSIGNED = 2**63 - 1, 2**64 - 1

RANGES: list[tuple[type[Counter], int, int]] = [
    (DurationMillis, 0, SIGNED),
    (TokenCount, 0, UNSIGNED),
    (ByteCount, 0, UNSIGNED),
    (ExecutionCount, 0, UNSIGNED),
    (MicroUnits, 0, UNSIGNED),
    (RunRevision, 0, SIGNED),
    (JournalSequence, 1, SIGNED),
    (Superstep, 0, SIGNED),
    (InvocationNumber, 0, SIGNED),
    (FencingEpoch, 1, SIGNED),
]


def reason_of(call: object, *arguments: object) -> str:
    with pytest.raises(InvalidValueError) as refused:
        call(*arguments)  # type: ignore[operator]  # a constructor or a method
    return refused.value.reason


@pytest.mark.parametrize(("cls", "lowest", "highest"), RANGES)
def test_a_counter_holds_exactly_its_range(cls: type[Counter], lowest: int, highest: int) -> None:
    for value in (lowest, highest):
        assert cls.parse(str(value)) == cls(value)
        assert (int(cls(value)), str(cls(value))) == (value, str(value))
    assert reason_of(cls, lowest - 1) == "out_of_range"
    assert reason_of(cls, highest + 1) == "out_of_range"
    assert reason_of(cls.parse, str(highest + 1)) == "out_of_range"
    if lowest:
        assert reason_of(cls.parse, "0") == "out_of_range"


@pytest.mark.parametrize(
    ("text", "reason", "offset"),
    [
        ("", "too_short", None),
        ("1" * 21, "too_long", None),
        ("9" * 5000, "too_long", None),
        ("٣" * 11, "too_long", None),
        ("-1", "invalid_byte", 0),
        ("+1", "invalid_byte", 0),
        ("1.0", "invalid_byte", 1),
        ("1\n", "invalid_byte", 1),
        ("1_0", "invalid_byte", 1),
        ("٣", "invalid_byte", 0),
        ("01", "not_canonical", None),
        ("00", "not_canonical", None),
    ],
)
def test_a_decimal_has_one_spelling(text: str, reason: str, offset: int | None) -> None:
    with pytest.raises(InvalidValueError) as refused:
        TokenCount.parse(text)
    assert (refused.value.reason, refused.value.offset) == (reason, offset)


@pytest.mark.parametrize("value", [True, 1.0, "1", None])
def test_a_counter_takes_int_and_nothing_like_it(value: object) -> None:
    with pytest.raises(TypeError):
        TokenCount(value)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(TypeError):
        TokenCount.parse(1)  # type: ignore[arg-type]  # on purpose


def test_arithmetic_is_checked() -> None:
    assert TokenCount(2).plus(TokenCount(3)) == TokenCount(5)
    assert TokenCount(5).minus(TokenCount(3)) == TokenCount(2)
    assert TokenCount(5).times(3) == TokenCount(15)
    assert TokenCount(5).raised(3) == TokenCount(8)
    assert JournalSequence(1).next() == JournalSequence(2)
    assert reason_of(TokenCount(UNSIGNED).plus, TokenCount(1)) == "overflow"
    assert reason_of(TokenCount(1).minus, TokenCount(2)) == "underflow"
    assert reason_of(TokenCount(1).times, -1) == "underflow"
    assert reason_of(TokenCount(UNSIGNED).times, 2) == "overflow"
    assert reason_of(TokenCount(UNSIGNED).raised, 1) == "overflow"
    assert reason_of(TokenCount(1).raised, -2) == "underflow"
    assert reason_of(RunRevision(SIGNED).next) == "overflow"
    assert reason_of(FencingEpoch(1).minus, FencingEpoch(1)) == "underflow"


def test_counters_of_two_classes_do_not_mix() -> None:
    assert TokenCount(1) != ByteCount(1)
    with pytest.raises(TypeError):
        TokenCount(1).plus(ByteCount(1))  # type: ignore[arg-type]  # on purpose
    with pytest.raises(TypeError):
        TokenCount(1).minus(ByteCount(1))  # type: ignore[arg-type]  # on purpose
    with pytest.raises(TypeError):
        TokenCount(1).times(1.5)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(TypeError):
        TokenCount(1).raised(1.5)  # type: ignore[arg-type]  # on purpose
    for compare in ("__lt__", "__le__", "__gt__", "__ge__"):
        assert getattr(TokenCount(1), compare)(ByteCount(2)) is NotImplemented


def test_counters_are_ordered_hashable_and_travel() -> None:
    small, large = TokenCount(9), TokenCount(10)
    assert small < large
    assert small <= large
    assert large > small
    assert large >= large  # noqa: PLR0124  # an order is reflexive
    assert hash(small) == hash(TokenCount(9))
    assert repr(small) == "TokenCount(9)"
    assert copy.copy(small) is small
    assert pickle.loads(pickle.dumps(small)) == small  # noqa: S301  # our own bytes


def test_a_duration_is_whole_milliseconds() -> None:
    assert DurationMillis.from_timedelta(timedelta(seconds=1, milliseconds=5)) == DurationMillis(1005)
    assert DurationMillis(1005).to_timedelta() == timedelta(seconds=1, milliseconds=5)
    assert reason_of(DurationMillis.from_timedelta, timedelta(microseconds=1500)) == "invalid_format"
    assert reason_of(DurationMillis.from_timedelta, timedelta(milliseconds=-1)) == "out_of_range"
    assert reason_of(DurationMillis(SIGNED).to_timedelta) == "out_of_range"


def test_money_stays_within_its_currency_and_range() -> None:
    euro = Money.of("EUR", 5)
    assert euro == Money(currency=CurrencyCode("EUR"), micro_units=MicroUnits(5))
    assert euro.plus(Money.of("EUR", 2)) == Money.of("EUR", 7)
    assert euro.minus(Money.of("EUR", 5)) == Money.of("EUR", 0)
    assert reason_of(euro.plus, Money.of("USD", 1)) == "currency_mismatch"
    assert reason_of(euro.minus, Money.of("USD", 1)) == "currency_mismatch"
    assert reason_of(euro.minus, Money.of("EUR", 6)) == "underflow"
    assert reason_of(euro.plus, Money.of("EUR", UNSIGNED)) == "overflow"
    assert reason_of(lambda: Money(currency="EUR", micro_units=MicroUnits(1))) == "wrong_type"  # type: ignore[arg-type]  # on purpose
