"""Instants: 27 characters, microseconds, years 0000 to 9999, never naive."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta, timezone, tzinfo

import pytest

from agentruns.domain.numbers import DurationMillis
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import InvalidValueError


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01T00:00:00.000000Z", 0),
        ("0000-01-01T00:00:00.000000Z", -62_167_219_200_000_000),
        ("0000-02-29T00:00:00.000000Z", -62_162_121_600_000_000),
        ("0000-12-31T23:59:59.999999Z", -62_135_596_800_000_001),
        ("0001-01-01T00:00:00.000000Z", -62_135_596_800_000_000),
        ("2026-01-02T03:04:05.000006Z", 1_767_323_045_000_006),
        ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999),
    ],
)
def test_text_and_microseconds_are_two_spellings_of_one_instant(text: str, micros: int) -> None:
    assert Timestamp.parse(text) == Timestamp(micros)
    assert str(Timestamp(micros)) == text
    assert repr(Timestamp(micros)) == f"Timestamp('{text}')"


@pytest.mark.parametrize(
    ("text", "reason", "offset"),
    [
        ("2026-01-02T03:04:05.00000Z", "too_short", None),
        ("2026-01-02T03:04:05.0000060Z", "too_long", None),
        ("2026-01-02T03:04:05.000006z", "invalid_byte", 26),
        ("2026-01-02t03:04:05.000006Z", "invalid_byte", 10),
        ("2026-01-02T03:04:05,000006Z", "invalid_byte", 19),
        ("٢026-01-02T03:04:05.00006Z", "invalid_byte", 0),
        ("2026-01-02T03:04:05.00006ZZ", "invalid_format", None),
        ("2026-01-02T03:04:05Z.000006", "invalid_format", None),
        ("2026-13-02T03:04:05.000006Z", "out_of_range", 0),
        ("2026-00-02T03:04:05.000006Z", "out_of_range", 0),
        ("2025-02-29T03:04:05.000006Z", "out_of_range", 0),
        ("1900-02-29T03:04:05.000006Z", "out_of_range", 0),
        ("2026-01-02T24:00:00.000000Z", "out_of_range", 11),
        ("2026-01-02T23:60:00.000000Z", "out_of_range", 11),
        ("2016-12-31T23:59:60.000000Z", "out_of_range", 11),
    ],
)
def test_every_other_spelling_is_refused(text: str, reason: str, offset: int | None) -> None:
    with pytest.raises(InvalidValueError) as refused:
        Timestamp.parse(text)
    assert (refused.value.reason, refused.value.offset) == (reason, offset)
    assert refused.value.__context__ is None


@pytest.mark.parametrize("micros", [Timestamp.lowest - 1, Timestamp.highest + 1])
def test_the_range_ends_with_the_years(micros: int) -> None:
    with pytest.raises(InvalidValueError, match="out_of_range"):
        Timestamp(micros)


def test_only_exact_types_are_taken() -> None:
    for value in (True, 1.0, "0"):
        with pytest.raises(TypeError):
            Timestamp(value)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(TypeError):
        Timestamp.parse(0)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(TypeError):
        Timestamp.from_datetime("2026")  # type: ignore[arg-type]  # on purpose


def test_an_aware_datetime_is_converted_and_a_naive_one_refused() -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    moment = datetime(2026, 1, 2, 8, 34, 5, 6, tzinfo=east)
    assert Timestamp.from_datetime(moment) == Timestamp.parse("2026-01-02T03:04:05.000006Z")
    with pytest.raises(InvalidValueError, match="naive"):
        Timestamp.from_datetime(datetime(2026, 1, 2))  # noqa: DTZ001  # naive on purpose
    with pytest.raises(InvalidValueError, match="naive"):
        Timestamp.from_datetime(datetime.max)  # noqa: DTZ901  # what a driver gives for infinity


def test_an_offset_that_is_none_is_naive() -> None:
    class Nowhere(tzinfo):
        def utcoffset(self, _moment: datetime | None) -> timedelta | None:
            return None

        def dst(self, _moment: datetime | None) -> timedelta | None:
            return None

        def tzname(self, _moment: datetime | None) -> str | None:
            return None

    with pytest.raises(InvalidValueError, match="naive"):
        Timestamp.from_datetime(datetime(2026, 1, 2, tzinfo=Nowhere()))


def test_an_offset_may_lead_into_year_0_but_not_beyond_9999() -> None:
    east, west = timezone(timedelta(hours=1)), timezone(timedelta(hours=-1))
    early = Timestamp.from_datetime(datetime(1, 1, 1, tzinfo=east))
    assert str(early) == "0000-12-31T23:00:00.000000Z"
    with pytest.raises(InvalidValueError, match="out_of_range"):
        early.to_datetime()
    with pytest.raises(InvalidValueError, match="out_of_range"):
        Timestamp.from_datetime(datetime(9999, 12, 31, 23, 30, tzinfo=west))


def test_to_datetime_is_exact_in_utc() -> None:
    assert Timestamp(1_767_323_045_000_006).to_datetime() == datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert Timestamp.MAX.to_datetime() == datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert Timestamp(-62_135_596_800_000_000).to_datetime() == datetime(1, 1, 1, tzinfo=UTC)


def test_what_a_column_may_hold() -> None:
    assert str(Timestamp.STORED_MIN) == "1970-01-01T00:00:00.000000Z"
    assert str(Timestamp.STORED_MAX) == "9999-12-31T00:00:00.000000Z"
    assert Timestamp.STORED_MIN.is_storable
    assert Timestamp.STORED_MAX.is_storable
    assert not Timestamp(-1).is_storable
    assert not Timestamp(Timestamp.STORED_MAX.micros + 1).is_storable


def test_instants_move_within_their_range() -> None:
    epoch = Timestamp(0)
    assert epoch.plus_millis(DurationMillis(5)) == Timestamp(5000)
    assert epoch.plus_micros(-5) == Timestamp(-5)
    assert epoch.plus(timedelta(days=1)) == Timestamp(86_400_000_000)
    assert Timestamp(7).minus(Timestamp(9)) == timedelta(microseconds=-2)
    assert Timestamp.MAX.minus(Timestamp.MIN) == timedelta(days=3_652_425) - timedelta(microseconds=1)
    with pytest.raises(InvalidValueError, match="overflow"):
        Timestamp.MAX.plus_micros(1)
    with pytest.raises(InvalidValueError, match="underflow"):
        Timestamp.MIN.plus_micros(-1)


def test_instants_are_ordered_hashable_and_travel() -> None:
    early, late = Timestamp(1), Timestamp(2)
    assert early < late
    assert early <= late
    assert late > early
    assert late >= early
    assert early != 1
    assert hash(early) == hash(Timestamp(1))
    for compare in ("__lt__", "__le__", "__gt__", "__ge__"):
        assert getattr(early, compare)(2) is NotImplemented
    assert copy.deepcopy(early) is early
    assert pickle.loads(pickle.dumps(early)) == early  # noqa: S301  # our own bytes
