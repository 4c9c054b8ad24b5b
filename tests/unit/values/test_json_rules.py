"""What is a JSON value here: the rules of text and of trees, each with its reason, and the limits."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import JsonTree, canonical_bytes, dump_json, parse_canonical, parse_json
from agentruns.domain.json_limits import JsonLimits
from agentruns.errors import InvalidJsonError, InvalidValueError

GOLDEN = Path(__file__).parent / "golden"
DEFAULT = JsonLimits.DEFAULT


def refusal(call: Callable[..., object], *arguments: Any) -> InvalidJsonError:
    with pytest.raises(InvalidJsonError) as refused:
        call(*arguments)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None
    return refused.value


@pytest.mark.parametrize(
    "vector", json.loads((GOLDEN / "canonical.json").read_text()), ids=lambda vector: vector["about"]
)
def test_golden_canonical_bytes(vector: dict[str, str]) -> None:
    expected = vector["canonical"].encode()
    tree = parse_json(vector["text"], DEFAULT)
    assert canonical_bytes(tree) == expected
    assert parse_canonical(expected, DEFAULT) == tree
    assert BoundedJson.parse(vector["text"].encode()).data == expected


@pytest.mark.parametrize("vector", json.loads((GOLDEN / "refused.json").read_text()), ids=lambda vector: vector["text"])
def test_golden_refusals(vector: dict[str, str]) -> None:
    assert refusal(parse_json, vector["text"], DEFAULT).reason == vector["reason"]
    assert refusal(parse_canonical, vector["text"].encode(), DEFAULT).reason == vector["reason"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'"\xff"', "invalid_utf8"),
        (b'"\xed\xa0\x80"', "invalid_utf8"),
        ('{"a":1}'.encode("utf-16"), "invalid_utf8"),
        ('{"a":1}'.encode("utf-16-le"), "invalid_json"),
        ('{"a":1}'.encode("utf-32"), "invalid_utf8"),
        (b"\xef\xbb\xbf{}", "byte_order_mark"),
        ('"\ud800"', "lone_surrogate"),
        (b"[" * 100_000, "nesting_too_deep"),
        (b'{"a":' * 40_000, "nesting_too_deep"),
        (b"1" * 5000, "number_too_long"),
        (b"1." + b"0" * 1023, "number_too_long"),
        (b'"' + b'\\"' * 100_000, "invalid_json"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_hostile_text_is_a_typed_error_soon(data: bytes | str, reason: str) -> None:
    begun = time.process_time()
    assert refusal(parse_json, data, DEFAULT).reason == reason
    assert time.process_time() - begun < 1


def test_a_number_of_1024_characters_is_read() -> None:
    assert parse_json(b"1." + b"0" * 1022, DEFAULT) == 1


def test_a_syntax_error_says_where_and_keeps_nothing() -> None:
    error = refusal(parse_json, '{\n "a": }', DEFAULT)
    assert (error.reason, error.line, error.column) == ("invalid_json", 2, 7)


def test_brackets_inside_strings_do_not_nest() -> None:
    text = json.dumps(["[" * 100, '\\"[{' * 100, "]"])
    assert parse_json(text, DEFAULT) == json.loads(text)
    assert parse_json("[" * 20 + "]" * 20 + " " * 10, JsonLimits(max_depth=20)) == parse_json(
        "[" * 20 + "]" * 20, DEFAULT
    )
    assert parse_json("[[],[],[]]", JsonLimits(max_depth=2)) == [[], [], []]


def test_input_is_bytes_or_str() -> None:
    with pytest.raises(TypeError):
        parse_json(bytearray(b"{}"), DEFAULT)  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize(
    ("tree", "type_name", "pointer"),
    [
        ((1,), "tuple", ""),
        ({"a": {1}}, "set", "/a"),
        ([b"x"], "bytes", "/0"),
        ({"a": [Decimal(1)]}, "Decimal", "/a/0"),
        ({1: 2}, "int", ""),
        ({"a": {None: 2}}, "NoneType", "/a"),
        (type("Text", (str,), {})("x"), "Text", ""),
        ([type("Number", (int,), {})(1)], "Number", "/0"),
        ([type("Real", (float,), {})(1)], "Real", "/0"),
        ([type("Map", (dict,), {})()], "Map", "/0"),
        ([type("List", (list,), {})()], "List", "/0"),
    ],
    ids=repr,
)
def test_a_tree_has_exactly_the_types_of_json(tree: Any, type_name: str, pointer: str) -> None:
    error = refusal(BoundedJson.of, tree)
    assert (error.reason, error.type_name, error.pointer) == ("unsupported_type", type_name, pointer)


@pytest.mark.parametrize(
    ("tree", "reason", "pointer"),
    [
        ([float("nan")], "non_finite_number", "/0"),
        (float("inf"), "non_finite_number", ""),
        ([[-float("inf")]], "non_finite_number", "/0/0"),
        ({"a/b": {"~": 2**53}}, "integer_out_of_range", "/a~1b/~0"),
        (-(2**53), "integer_out_of_range", ""),
        (float(2**53), "integer_out_of_range", ""),
        (-1e20, "integer_out_of_range", ""),
        (["x", "\ud800"], "lone_surrogate", "/1"),
        ({"a": {"\udc00": 1}}, "lone_surrogate", "/a"),
    ],
    ids=repr,
)
def test_a_pointer_leads_to_the_place_and_stays_out_of_texts(tree: Any, reason: str, pointer: str) -> None:
    error = refusal(BoundedJson.of, tree)
    assert (error.reason, error.pointer) == (reason, pointer)
    assert "pointer" not in str(error) + repr(error)


@pytest.mark.parametrize("number", [1e21, -1e21, 1.5, 2**53 - 1, -(2**53) + 1, float(2**53 - 1), 5e-324])
def test_numbers_at_the_edges_come_back_as_they_were(number: float) -> None:
    assert parse_canonical(canonical_bytes(number), DEFAULT) == number


def test_true_is_not_one_and_an_integral_float_is_its_integer() -> None:
    assert BoundedJson.of(True) != BoundedJson.of(1)  # noqa: FBT003  # a JSON value
    assert BoundedJson.of({"n": 1}) == BoundedJson.of({"n": 1.0})
    assert BoundedJson.of(-0.0) == BoundedJson.of(0)
    assert type(parse_json("1.0", DEFAULT)) is int
    assert BoundedJson.of("\u00e9") != BoundedJson.of("e\u0301")


def test_a_container_within_itself_ends_at_the_depth_limit() -> None:
    loop: list[Any] = []
    loop.extend([loop, loop])
    assert refusal(BoundedJson.of, loop).reason == "nesting_too_deep"
    knot: dict[str, Any] = {}
    knot["a"] = knot
    assert refusal(canonical_bytes, knot).reason == "nesting_too_deep"


LIMITS = JsonLimits(max_bytes=40, max_depth=2, max_entries=3, max_nodes=6, max_string_bytes=4, max_key_bytes=3)


@pytest.mark.parametrize(
    ("tree", "reason", "limit", "actual"),
    [
        ([[[]]], "nesting_too_deep", 2, 3),
        ([1, 2, 3, 4], "too_many_entries", 3, 4),
        ({"a": 1, "b": 2, "c": 3, "d": 4}, "too_many_entries", 3, 4),
        ([[1, 2, 3], [1, 2], []], "too_many_nodes", 6, 9),
        ("abcde", "string_too_large", 4, 5),
        (["ééé"], "string_too_large", 4, 6),
        ({"abcd": 1}, "name_too_large", 3, 4),
        ({"éé": 1}, "name_too_large", 3, 4),
        (["\u0000" * 4, "\u0000" * 4], "too_large", 40, 55),
    ],
    ids=repr,
)
def test_each_dimension_is_bounded(tree: JsonTree, reason: str, limit: int, actual: int) -> None:
    error = refusal(BoundedJson.of, tree, LIMITS)
    assert (error.reason, error.limit, error.actual) == (reason, limit, actual)


@pytest.mark.parametrize(
    "tree",
    [[[]], [1, 2, 3], [[1, 2], 1, 1], "abcd", ["éé"], {"abc": 1}, {"éa": 1}, [[], [], []]],
    ids=repr,
)
def test_each_dimension_holds_its_limit(tree: JsonTree) -> None:
    value = BoundedJson.of(tree, LIMITS)
    assert value.value == tree
    assert BoundedJson.parse(value.data, LIMITS) == value


def test_raw_input_is_bounded_with_its_white_space() -> None:
    assert parse_json("[]" + " " * 38, LIMITS) == []
    error = refusal(parse_json, "[]" + " " * 39, LIMITS)
    assert (error.reason, error.limit, error.actual) == ("input_too_large", 40, 41)


@pytest.mark.parametrize("dimension", JsonLimits.hard_maxima)
def test_limits_lie_between_one_and_their_hard_maximum(dimension: str) -> None:
    maximum = JsonLimits.hard_maxima[dimension]
    assert getattr(JsonLimits.MAXIMUM, dimension) == maximum
    assert getattr(JsonLimits(**{dimension: 1}), dimension) == 1
    for value in (0, maximum + 1):
        with pytest.raises(InvalidValueError, match="out_of_range"):
            JsonLimits(**{dimension: value})
    with pytest.raises(TypeError):
        JsonLimits(**{dimension: True})


def test_records_are_bounded_by_their_bytes_and_depth_96() -> None:
    limits = JsonLimits.record(16 * 1024 * 1024)
    assert (limits.max_bytes, limits.max_depth, limits.max_key_bytes) == (16_777_216, 96, 1024)
    assert limits.max_entries == limits.max_nodes == limits.max_string_bytes == 16_777_216
    assert JsonLimits.record() is JsonLimits.record(2 * 1024 * 1024)


@pytest.mark.parametrize("data", [b"1.0", b" 1", b'{"b":1,"a":2}', b'"\\u0041"', b'"\\/"', b"-0", b"[1,2] ", b"1e30"])
def test_other_bytes_for_the_same_value_are_not_canonical(data: bytes) -> None:
    assert refusal(parse_canonical, data, DEFAULT).reason == "not_canonical"
    assert refusal(BoundedJson.read, data).reason == "not_canonical"


def test_dumped_json_keeps_the_order_of_members_and_comes_back() -> None:
    tree: JsonTree = {"b": [1.5, None, True, "é"], "a": 1e21}
    assert dump_json(tree) == '{"b":[1.5,null,true,"é"],"a":1e+21}'.encode()
    assert parse_json(dump_json(tree), DEFAULT) == tree
    assert refusal(dump_json, [float("nan")]).reason == "non_finite_number"
