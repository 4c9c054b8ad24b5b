"""Every grammar agrees with an independent model, over texts that are nearly right."""

from __future__ import annotations

import string
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentruns.domain.digests import Digest
from agentruns.domain.ids import RunId
from agentruns.domain.numbers import Counter, FencingEpoch, RunRevision, TokenCount
from agentruns.domain.scalars import (
    CapabilityName,
    CurrencyCode,
    GraphNamespace,
    JournalEventKind,
    NodeId,
    Scope,
    SubjectId,
    TenantId,
    Version,
)
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.uris import SchemaId
from agentruns.errors import InvalidValueError

LOWER, DIGITS = string.ascii_lowercase, string.digits
ALNUM = string.ascii_letters + DIGITS

Model = Callable[[str], bool]


def within(text: str, alphabet: str) -> bool:
    return all(character in alphabet for character in text)


def is_decimal(text: str, highest: int) -> bool:
    return text != "" and within(text, DIGITS) and (text == "0" or text[0] != "0") and int(text) <= highest


def is_tenant(text: str) -> bool:
    return 1 <= len(text) <= 128 and within(text, ALNUM + "._:-") and text not in {".", ".."}


def is_kind(text: str) -> bool:
    words = text.split("-")
    return (
        len(text) <= 96
        and all(word and word[0] in ALNUM and within(word, LOWER + DIGITS) for word in words)
        and (text[0] in LOWER)
    )


def is_capability(text: str) -> bool:
    return len(text) <= 128 and all(
        part and part[0] in LOWER and within(part, LOWER + DIGITS + "_-") for part in text.split(".")
    )


def is_node(text: str) -> bool:
    return 1 <= len(text) <= 128 and text[0] in ALNUM and within(text, ALNUM + "_.-")


def is_namespace(text: str) -> bool:
    return text == "" or (len(text) <= 512 and all(map(is_node, text.split("/"))))


def is_scope(text: str) -> bool:
    return 1 <= len(text) <= 256 and all(0x20 < ord(each) < 0x7F and each not in '"\\' for each in text)


def is_subject(text: str) -> bool:
    return 1 <= len(text) <= 255 and all(0x20 <= ord(each) <= 0x7E for each in text)


def is_version(text: str) -> bool:
    parts = text.split(".")
    return len(parts) == 3 and all(is_decimal(part, 2**64 - 1) for part in parts)


def is_id(text: str) -> bool:
    try:
        found = uuid.UUID(text)
    except ValueError:
        return False
    return str(found) == text and found.version == 7 and found.variant == uuid.RFC_4122


def is_key(text: str) -> bool:
    return 16 <= len(text) <= 128 and within(text, ALNUM + "._~-")


def is_digest(text: str) -> bool:
    return len(text) == 71 and text.startswith("sha256:") and within(text[7:], DIGITS + "abcdef")


def is_currency(text: str) -> bool:
    return len(text) == 3 and within(text, string.ascii_uppercase)


#: Each class with its model and with texts that are right, from which mutations start.
MODELS = [
    (TenantId, is_tenant, ["tenant-a", ".", "..", "...", "x" * 128]),
    (JournalEventKind, is_kind, ["graph-barrier-continued", "a9-9a", "k" * 96]),
    (CapabilityName, is_capability, ["a.b-c.d_e", "x" * 128]),
    (NodeId, is_node, ["node.1", "9", "x" * 128]),
    (GraphNamespace, is_namespace, ["", "a/b/c", "x" * 128 + "/" + "y" * 128]),
    (Scope, is_scope, ["runs:read", "!~"]),
    (SubjectId, is_subject, ["some body", '"\\']),
    (Version, is_version, ["1.2.3", "0.0.18446744073709551615", "0.18446744073709551616.0"]),
    (RunId, is_id, ["0198c0de-0000-7000-8000-000000000001", "0198c0de-0000-7000-bfff-000000000001"]),
    (AgentSubmissionKey, is_key, ["0123456789abcdef", "~" * 128]),
    (Digest, is_digest, ["sha256:" + "0f" * 32]),
    (CurrencyCode, is_currency, ["EUR"]),
    (TokenCount, lambda text: is_decimal(text, 2**64 - 1), ["0", "18446744073709551615", "18446744073709551616"]),
    (RunRevision, lambda text: is_decimal(text, 2**63 - 1), ["0", "9223372036854775807", "9223372036854775808"]),
    (FencingEpoch, lambda text: is_decimal(text, 2**63 - 1) and text != "0", ["0", "1"]),
]

FOREIGN = st.sampled_from(
    ["\n", "\0", " ", "٣", "é", "\ud800", "A", "g", "0", "-", ".", "_", "/", '"', "\\", "~", "\x7f"]
)


@st.composite
def nearly(draw: st.DrawFn, good: list[str]) -> str:
    text = draw(st.sampled_from(good))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        cut = draw(st.integers(0, 1))
        text = text[:at] + draw(FOREIGN | st.just("")) + text[at + cut :]
    return text


@pytest.mark.parametrize(("cls", "model", "good"), MODELS, ids=lambda each: getattr(each, "__name__", None))
@given(data=st.data())
def test_a_grammar_agrees_with_its_model(cls: type, model: Model, good: list[str], data: st.DataObject) -> None:
    text = data.draw(nearly(good) | st.text(max_size=40))
    try:
        value = cls.parse(text)  # type: ignore[attr-defined]  # every scalar class has it
    except InvalidValueError:
        assert not model(text)
    else:
        assert model(text)
        assert str(value) == text
        assert cls.parse(str(value)) == value  # type: ignore[attr-defined]  # every scalar class has it


@given(st.integers(Timestamp.lowest, Timestamp.highest))
@example(Timestamp.lowest)
@example(Timestamp.highest)
def test_every_instant_comes_back_from_its_text(micros: int) -> None:
    text = str(Timestamp(micros))
    assert len(text) == 27
    assert Timestamp.parse(text).micros == micros


@given(st.datetimes(timezones=st.timezones() | st.just(UTC)))
def test_instants_agree_with_the_standard_library(moment: datetime) -> None:
    try:
        expected = moment.astimezone(UTC)
    except OverflowError:
        return
    made = Timestamp.from_datetime(moment)
    assert made.to_datetime() == expected
    assert str(made) == expected.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


@given(st.integers(0, 9999), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_a_date_is_one_of_the_calendar(year: int, month: int, day: int, hour: int, minute: int) -> None:
    text = f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:00.000000Z"
    try:
        # Year 0 is a leap year of the proleptic calendar, as 400 is.
        datetime(year or 400, month, day, hour, minute, tzinfo=UTC)
    except ValueError:
        with pytest.raises(InvalidValueError, match="out_of_range"):
            Timestamp.parse(text)
    else:
        assert str(Timestamp.parse(text)) == text


@given(st.integers(Timestamp.lowest, Timestamp.highest), st.timedeltas(timedelta(days=-4000), timedelta(days=4000)))
def test_moving_and_measuring_are_inverse(micros: int, delta: timedelta) -> None:
    start = Timestamp(micros)
    target = micros + delta // timedelta(microseconds=1)
    if not Timestamp.lowest <= target <= Timestamp.highest:
        with pytest.raises(InvalidValueError, match="overflow" if target > micros else "underflow"):
            start.plus(delta)
        return
    moved = start.plus(delta)
    assert (moved.micros, moved.minus(start)) == (target, delta)
    assert (moved < start) == (delta < timedelta())


COUNTS = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**63, 2**64 - 1])


@given(COUNTS, COUNTS, st.integers(-3, 2**65))
def test_arithmetic_is_exact_or_refused(left: int, right: int, factor: int) -> None:
    first: Counter = TokenCount(left)
    results: list[tuple[Callable[[], Counter], int]] = [
        (lambda: first.plus(TokenCount(right)), left + right),
        (lambda: first.minus(TokenCount(right)), left - right),
        (lambda: first.times(factor), left * factor),
    ]
    for call, expected in results:
        if 0 <= expected < 2**64:
            assert int(call()) == expected
        else:
            with pytest.raises(InvalidValueError, match="overflow" if expected > 0 else "underflow"):
                call()


SEGMENTS = st.lists(
    st.sampled_from(["a", ".", "..", "...", "%20", "%41", "%c3", "%C3%A9", "~", "a:b", "", "%2E", "a?b", "é", "@"]),
    max_size=4,
)
HOSTS = st.sampled_from(
    ["a", "A", "a.b", "a-b.c", "-a", "a-", "1.2.3.4", "a.1", "a..b", "", "[::1]", "x" * 63, "x" * 64]
)
PORTS = st.sampled_from(["", ":", ":0", ":1", ":01", ":443", ":444", ":65535", ":65536", ":99999"])


@given(HOSTS, PORTS, SEGMENTS)
def test_a_schema_id_agrees_with_its_model(host: str, port: str, segments: list[str]) -> None:
    text = f"https://{host}{port}" + "".join(f"/{segment}" for segment in segments)
    labels = host.split(".")
    good_host = all(
        1 <= len(label) <= 63 and within(label, LOWER + DIGITS + "-") and label[0] != "-" and label[-1] != "-"
        for label in labels
    ) and not within(labels[-1], DIGITS)
    good_port = port == "" or (is_decimal(port[1:], 65535) and port not in {":0", ":443"})
    good_path = bool(segments) and all(
        segment not in {".", "..", "%41", "%c3", "%2E", "a?b", "é"} for segment in segments
    )
    try:
        made = SchemaId.parse(text)
    except InvalidValueError:
        assert not (good_host and good_port and good_path)
    else:
        assert good_host
        assert good_port
        assert good_path
        assert unquote(made.text).startswith("https://")
