"""Digests: their text, their purposes and the golden vectors."""

from __future__ import annotations

import copy
import json
import pickle
import re
from hashlib import sha256
from itertools import permutations
from pathlib import Path

import pytest

from agentruns.domain.digests import Digest, DigestPurpose, digest_body, digest_members, plain_digest
from agentruns.errors import InvalidValueError

GOLDEN = Path(__file__).parent / "golden"
TEXT = "sha256:" + "0a" * 32


@pytest.mark.parametrize("vector", json.loads((GOLDEN / "digests.json").read_text()))
def test_golden_digests(vector: dict[str, str | None]) -> None:
    preimage = str(vector["preimage"]).encode()
    purpose = vector["purpose"]
    made = plain_digest(preimage) if purpose is None else digest_body(DigestPurpose(purpose), preimage)
    assert str(made) == vector["digest"]


def test_the_first_event_of_a_run_has_its_golden_digest() -> None:
    envelope = (
        b'{"data":{},"epoch":"0","event_id":"0198c0de-0000-7000-8000-000000000002","kind":"x",'
        b'"recorded_at":"2026-01-02T03:04:05.000006Z","run_id":"0198c0de-0000-7000-8000-000000000001",'
        b'"schema_digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","sequence":"1",'
        b'"tenant_id":"tenant-a"}'
    )
    assert (
        str(digest_body(DigestPurpose.EVENT, bytes(32), envelope))
        == "sha256:01e66412ed32a074780252402194da25191fbf4d5966865d08cdde160f0ff4fb"
    )


def test_members_are_encoded_canonically_and_absence_is_null() -> None:
    made = digest_members(DigestPurpose.CHECKPOINT, {"b": None, "a": "x"})
    assert made == Digest(sha256(b'agentruns/checkpoint/v1\0{"a":"x","b":null}').digest())


def test_the_purposes_are_exactly_the_listed_ones() -> None:
    assert [purpose.value for purpose in DigestPurpose] == json.loads((GOLDEN / "purposes.json").read_text())


def test_no_purpose_is_a_prefix_of_another() -> None:
    assert all(re.fullmatch(rb"agentruns/[a-z]+(-[a-z]+)*/v1\0", purpose.domain) for purpose in DigestPurpose)
    assert not any(left.domain.startswith(right.domain) for left, right in permutations(DigestPurpose, 2))


def test_two_purposes_never_agree() -> None:
    assert len({digest_body(purpose, b"{}") for purpose in DigestPurpose} | {plain_digest(b"{}")}) == 33


@pytest.mark.parametrize(
    ("text", "reason", "offset"),
    [
        (TEXT + "0", "too_long", None),
        ("é" * 36, "too_long", None),
        ("", "invalid_format", None),
        ("0a" * 32, "invalid_format", None),
        ("sha512:" + "0a" * 32, "unsupported_algorithm", None),
        ("SHA256:" + "0a" * 32, "unsupported_algorithm", None),
        (TEXT[:-1], "too_short", None),
        (TEXT[:-1] + "A", "not_canonical", 70),
        (TEXT[:-1] + "g", "invalid_byte", 70),
        ("sha256:g" + "A" * 63, "invalid_byte", 7),
        (TEXT[:-1] + "\n", "invalid_byte", 70),
    ],
)
def test_a_text_is_refused_in_the_stated_order(text: str, reason: str, offset: int | None) -> None:
    with pytest.raises(InvalidValueError) as refused:
        Digest.parse(text)
    assert (refused.value.type_name, refused.value.reason, refused.value.offset) == ("Digest", reason, offset)


def test_raw_bytes_are_32() -> None:
    for size, reason in ((31, "too_short"), (33, "too_long")):
        with pytest.raises(InvalidValueError, match=reason):
            Digest(bytes(size))
    with pytest.raises(TypeError):
        Digest("00" * 16)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(TypeError):
        Digest.parse(bytes(32))  # type: ignore[arg-type]  # on purpose


def test_a_digest_is_a_value() -> None:
    digest = Digest.parse(TEXT)
    assert (digest.raw, digest.hex, str(digest)) == (b"\n" * 32, "0a" * 32, TEXT)
    assert repr(digest) == f"Digest('{TEXT}')"
    assert digest == Digest(b"\n" * 32)
    assert digest != TEXT
    assert hash(digest) == hash(Digest(b"\n" * 32))
    assert digest < Digest(b"\v" * 32)
    assert digest.__lt__(1) is NotImplemented  # type: ignore[operator]  # on purpose
    assert copy.copy(digest) is digest
    assert pickle.loads(pickle.dumps(digest)) == digest  # noqa: S301  # our own bytes
