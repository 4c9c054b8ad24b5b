"""Schema ids in normal form only; issuers compared exactly."""

from __future__ import annotations

import pytest

from agentruns.domain.uris import IssuerId, SchemaId
from agentruns.errors import InvalidValueError

LABEL = "a" * 63


@pytest.mark.parametrize(
    "text",
    [
        "https://a/",
        "https://agentruns.invalid/schemas/graph-failure-details/1.0.0",
        "https://stknot.com/schemas/runtime/graph-driver-event/1.0.0",
        "https://a-b.c9/x//y/",
        "https://a:1/",
        "https://a:444/",
        "https://a:65535/",
        f"https://{LABEL}.{LABEL}.{LABEL}.{'a' * 61}/",
        "https://a/.../.a/a.",
        "https://a/%20%C3%A9/!$&'()*+,;=:@~",
        "https://9a.a9/",
    ],
)
def test_a_schema_id_in_normal_form_is_accepted(text: str) -> None:
    assert str(SchemaId.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "reason", "offset"),
    [
        ("https://", "too_short", None),
        ("https://a/" + "x" * 503, "too_long", None),
        ("https://a/é", "invalid_byte", 10),
        ("https://a/ ", "invalid_byte", 10),
        ("http://aa/", "invalid_format", None),
        ("HTTPS://a/", "invalid_format", None),
        ("https://aa", "invalid_format", None),
        ("https://A/", "invalid_format", None),
        ("https://u@a/", "invalid_format", None),
        ("https://a/?", "invalid_format", None),
        ("https://a/#", "invalid_format", None),
        ("https://a./", "invalid_format", None),
        ("https://-a/", "invalid_format", None),
        ("https://a-/", "invalid_format", None),
        (f"https://{LABEL}a/", "invalid_format", None),
        (f"https://{LABEL}.{LABEL}.{LABEL}.{'a' * 62}/", "invalid_format", None),
        ("https://127.0.0.1/", "invalid_format", None),
        ("https://127.1/", "invalid_format", None),
        ("https://1:8/", "invalid_format", None),
        ("https://[::1]/", "invalid_format", None),
        ("https://a:/", "invalid_format", None),
        ("https://a:0/", "invalid_format", None),
        ("https://a:080/", "invalid_format", None),
        ("https://a:443/", "invalid_format", None),
        ("https://a:65536/", "invalid_format", None),
        ("https://a/./", "invalid_format", None),
        ("https://a/..", "invalid_format", None),
        ("https://a/b/../c", "invalid_format", None),
        ("https://a/%c3", "invalid_format", None),
        ("https://a/%4", "invalid_format", None),
        ("https://a/%41", "invalid_format", None),
        ("https://a/%7E", "invalid_format", None),
        ("https://a/%2D", "invalid_format", None),
        ("https://a/%5F", "invalid_format", None),
        ("https://a/[", "invalid_format", None),
    ],
)
def test_every_other_spelling_of_a_schema_id_is_refused(text: str, reason: str, offset: int | None) -> None:
    with pytest.raises(InvalidValueError) as refused:
        SchemaId.parse(text)
    assert (refused.value.reason, refused.value.offset) == (reason, offset)


def test_issuers_are_compared_exactly() -> None:
    texts = ["https://a", "https://A", "https://a/", "https://a:443", "https://a/%7e", "https://a/~", "https://[::1]/x"]
    assert len({IssuerId(text) for text in texts}) == len(texts)


@pytest.mark.parametrize(
    "text",
    [
        "https://:1",
        "https:///",
        "https://a:",
        "https://a:65536",
        "https://u@a",
        "https://a?",
        "https://a/#",
        "https://a/?q",
        "http://aaa",
        "HTTPS://a",
        "https://a/%4",
        "https://a\n",
    ],
)
def test_an_issuer_has_a_host_and_no_userinfo_query_or_fragment(text: str) -> None:
    with pytest.raises(InvalidValueError):
        IssuerId.parse(text)
