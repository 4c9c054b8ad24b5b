"""What came near to being stored in systems of this kind: halves of characters, numbers that are none, other types."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from attrs import frozen

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import JsonTree, canonical_bytes
from agentruns.domain.digests import plain_digest
from agentruns.domain.graph.check import check_result
from agentruns.domain.graph.definition import GraphNode
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.returns import Continue, Finish
from agentruns.domain.numbers import TokenCount
from agentruns.domain.scalars import NodeId
from agentruns.domain.wire import from_json, from_wire
from agentruns.errors import InvalidJsonError, InvalidValueError
from agentruns.testing.graphs import executable_of

HALF, PAIR = "\ud83d", "\U0001f600"


def refused(call: Callable[[], object]) -> tuple[str, str | None]:
    """Give reason and place of the one error."""
    with pytest.raises(InvalidJsonError) as refusal:
        call()
    assert type(refusal.value) is InvalidJsonError
    return refusal.value.reason, refusal.value.pointer


@pytest.mark.parametrize("tree", [{"a": ["x", HALF]}, {"a": {HALF: 1}}], ids=["value", "key"])
def test_K2_half_a_character_is_refused_at_its_place_however_it_is_written(tree: Any) -> None:
    place = "/a/1" if isinstance(tree["a"], list) else "/a"
    escaped = json.dumps(tree)
    assert "\\ud83d" in escaped
    found = {refused(lambda: BoundedJson.of(tree)), refused(lambda: BoundedJson.parse(escaped))}
    assert found == {("lone_surrogate", place)}


def test_K2_a_whole_character_is_kept_and_is_the_same_however_it_is_written() -> None:
    tree: dict[str, JsonTree] = {PAIR: PAIR}
    spellings = [BoundedJson.of(tree), BoundedJson.parse(json.dumps(tree)), BoundedJson.parse(f'{{"{PAIR}":"{PAIR}"}}')]
    assert len({each.data for each in spellings}) == len({each.digest for each in spellings}) == 1
    assert spellings[0].value == tree


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400"])
def test_K3_what_is_no_number_is_refused_at_its_place(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def hashed(*_: object) -> object:
        raise AssertionError("a hash has seen it")

    monkeypatch.setattr("hashlib.sha256", hashed)
    expected = ("non_finite_number", "/a/1")
    assert refused(lambda: BoundedJson.of({"a": [0, float(text.replace("1e400", "inf"))]})) == expected
    assert refused(lambda: BoundedJson.parse(f'{{"a":[0,{text}]}}')) == expected


def test_K6_names_are_in_the_order_of_their_utf_16_units() -> None:
    names = ("\ufb33", PAIR)
    # By their characters the emoji would be the last one.
    assert sorted(names) == list(names)
    documents = [BoundedJson.of(dict.fromkeys(order, 1)) for order in (names, names[::-1])]
    assert {each.data for each in documents} == {f'{{"{PAIR}":1,"\ufb33":1}}'.encode()}
    assert documents[0].digest == documents[1].digest == plain_digest(canonical_bytes(documents[0].value))


@frozen(kw_only=True)
class Counted:
    """Stand for any class of the wire."""

    a: TokenCount


@pytest.mark.parametrize(
    "tree",
    [{"a": 5}, {"a": 1.9}, {"a": True}, {"a": "1.9"}, {"a": "05"}, {"a": "1", "zz": 2}, {"a": None}, {}],
    ids=repr,
)
def test_K9_nothing_is_coerced_or_dropped_on_the_wire(tree: Any) -> None:
    assert from_wire({"a": "5"}, Counted) == Counted(a=TokenCount(5))
    with pytest.raises(InvalidValueError):
        from_wire(tree, Counted)
    with pytest.raises(InvalidValueError):
        from_json(json.dumps(tree), Counted)


class Colour(IntEnum):
    RED = 1


class Pair(NamedTuple):
    left: int
    right: int


class Words(str):
    __slots__ = ()


@pytest.fixture(scope="module")
def graph() -> ExecutableGraph:
    return executable_of([GraphNode.of("a", continue_to=["a"], terminal=True)])


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {1},
        b"x",
        Decimal("1.5"),
        dt.datetime(2030, 1, 1, tzinfo=dt.UTC),
        UUID(int=1),
        Colour.RED,
        Words("x"),
        {1: 2},
        {Words("x"): 1},
        Pair(1, 2),
    ],
    ids=repr,
)
def test_K10_what_is_not_exactly_a_value_of_json_is_refused_by_every_way_in(graph: ExecutableGraph, value: Any) -> None:
    assert refused(lambda: BoundedJson.of({"x": value})) == ("unsupported_type", "/x")
    for returned in ({"x": value}, Continue({"x": value}), Finish({"x": value}), Finish({}, {"x": value})):
        with pytest.raises(InvalidValueError) as refusal:
            check_result(graph, node_id=NodeId("a"), returned=returned, invocations={})
        assert (refusal.value.type_name, refusal.value.reason) == ("NodeResult", "not_json")
