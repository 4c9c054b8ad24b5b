"""Canonical bytes joined from canonical parts."""

from __future__ import annotations

import pytest

from agentruns.domain.canonical import canonical_bytes
from agentruns.domain.splice import NULL, array, quoted, spliced_object
from agentruns.errors import InvalidValueError


def test_members_are_ordered_by_name_and_none_is_left_out() -> None:
    parts = {"b": quoted("x"), "a": array([b"1", b"2"]), "absent": None, "null": NULL, "A": array([])}
    assert spliced_object(parts) == canonical_bytes({"b": "x", "a": [1, 2], "null": None, "A": []})
    assert spliced_object({}) == b"{}"


def test_the_bound_is_the_exact_length_of_the_sum() -> None:
    parts = {"a": b"1", "b": b"22"}
    assert spliced_object(parts, max_bytes=14) == b'{"a":1,"b":22}'
    assert spliced_object({}, max_bytes=2) == b"{}"
    for members, bound in ((parts, 13), ({}, 1)):
        with pytest.raises(InvalidValueError, match="too_large"):
            spliced_object(members, max_bytes=bound)


def test_only_ascii_is_quoted_without_the_encoder() -> None:
    with pytest.raises(UnicodeEncodeError):
        quoted("é")
