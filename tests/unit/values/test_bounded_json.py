"""The immutable JSON value."""

from __future__ import annotations

import copy
import pickle

import pytest

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import JsonTree
from agentruns.domain.digests import plain_digest
from agentruns.domain.json_limits import JsonLimits
from agentruns.errors import InvalidJsonError


def test_it_counts_what_entered() -> None:
    value = BoundedJson.of({"a": [1, {"b": "é"}], "c": None})
    assert (value.data, value.size, value.depth, value.nodes) == ('{"a":[1,{"b":"é"}],"c":null}'.encode(), 29, 3, 6)
    assert (BoundedJson.of("x").depth, BoundedJson.of("x").nodes) == (0, 1)
    assert (BoundedJson.of([]).depth, BoundedJson.of([]).nodes) == (1, 1)


def test_mutating_a_tree_changes_nothing() -> None:
    inner: list[JsonTree] = [1]
    tree: JsonTree = {"a": inner}
    value = BoundedJson.of(tree)
    inner.append(2)
    assert value.value == {"a": [1]}
    shown = value.value
    assert isinstance(shown, dict)
    shown["b"] = 1
    assert value.value == {"a": [1]}
    with pytest.raises(AttributeError):
        value.data = b"{}"  # type: ignore[misc]  # on purpose


def test_equality_and_hash_are_those_of_the_bytes() -> None:
    left, right = BoundedJson.of({"a": 1, "b": 2}), BoundedJson.parse(' {"b": 2.0, "a": 1}')
    assert left == right
    assert hash(left) == hash(right)
    assert left != BoundedJson.of({"a": 1})


def test_the_digest_is_plain_and_kept() -> None:
    value = BoundedJson.of({})
    assert value.digest == plain_digest(b"{}")
    assert value.digest is value.digest


def test_it_travels_without_what_it_keeps() -> None:
    value = BoundedJson.of({"a": [1]})
    fresh = pickle.dumps(value)
    assert value.digest == plain_digest(b'{"a":[1]}')
    assert pickle.dumps(value) == fresh
    again = pickle.loads(fresh)  # noqa: S301  # our own bytes
    assert (again, again.depth, again.nodes, again.digest) == (value, 2, 3, value.digest)
    assert copy.deepcopy(value) == value


def test_repr_shows_counts_and_the_digest_only() -> None:
    value = BoundedJson.of({"canary": "canary"})
    assert repr(value) == f"BoundedJson(size=19, depth=1, nodes=2, {value.digest})"


def test_stored_bytes_are_bounded_by_their_column_alone() -> None:
    deep = b"[" * 60 + b"]" * 60
    assert BoundedJson.read(deep).depth == 60
    with pytest.raises(InvalidJsonError, match="nesting_too_deep"):
        BoundedJson.parse(deep)
    assert BoundedJson.parse(deep, JsonLimits.MAXIMUM).data == deep
    with pytest.raises(InvalidJsonError, match="input_too_large"):
        BoundedJson.read(deep, 119)
