"""JSON values: numbers over all bit patterns, two encoders that agree, bytes and trees that are inverse."""

from __future__ import annotations

import json
import re
import struct
from random import Random
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import (
    JsonTree,
    canonical_bytes,
    dump_json,
    encode_bounded,
    encode_walked,
    parse_canonical,
    parse_json,
)
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.json_parse import parse_text
from agentruns.domain.json_plain import plain_tree
from agentruns.domain.json_walk import walk
from agentruns.errors import InvalidJsonError

LIMITS = JsonLimits.MAXIMUM
INTEGER_MAX = 2**53 - 1

ODD = st.sampled_from('\0\x01\b\t\n\f\r\x1f"\\/\x7f\x80\u2028\u2029\ue000\uffff\U0001f600\U0010ffff')
TEXTS = st.text(ODD | st.characters(exclude_categories=["Cs"]), max_size=8)
INTEGERS = st.integers(-INTEGER_MAX, INTEGER_MAX) | st.sampled_from([INTEGER_MAX, -INTEGER_MAX, 0])
PLAIN_LEAVES = st.none() | st.booleans() | INTEGERS | TEXTS
ASCII_NAMES = st.text(st.characters(max_codepoint=127), max_size=5)


def legal(number: float) -> bool:
    return number == number and abs(number) != float("inf") and not INTEGER_MAX < abs(number) < 1e21  # noqa: PLR0124


FLOATS = st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0])
LEGAL_FLOATS = (FLOATS | st.floats(allow_nan=False, allow_infinity=False) | st.floats(-1e7, 1e7)).filter(legal)


def trees(leaves: st.SearchStrategy[Any], names: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
        max_leaves=12,
    )


PLAIN = trees(PLAIN_LEAVES, ASCII_NAMES)
ANY = trees(PLAIN_LEAVES | LEGAL_FLOATS, TEXTS)


def normal(tree: Any) -> Any:
    """Write integral floats as integers, the plain way."""
    if isinstance(tree, list):
        return [normal(each) for each in tree]
    if isinstance(tree, dict):
        return {name: normal(each) for name, each in tree.items()}
    return int(tree) if isinstance(tree, float) and tree.is_integer() and abs(tree) < 2**53 else tree


def same(left: Any, right: Any) -> bool:
    """Compare with types, since ``1 == 1.0 == True``."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    return type(left) is type(right) and left == right


@given(PLAIN)
def test_the_fast_path_writes_what_the_reference_writes(tree: JsonTree) -> None:
    walked = walk(tree, LIMITS)
    assert walked.is_plain
    assert encode_walked(tree, walked) == rfc8785.dumps(tree)


LETTERS = 'ab \0\x01\b\t\n\f\r\x1f"\\/\x7f\x80\xe9\u2028\u2029\ue000\uffff\U0001f600\U0010ffff'


def grow(random: Random, depth: int) -> JsonTree:
    """Make a tree without floats or names beyond ASCII, much faster than a strategy does."""
    kind = random.randrange(7 if depth else 5)
    if kind < 3:
        return (None, bool(random.getrandbits(1)), INTEGER_MAX * random.choice((-1, 1)))[kind]
    if kind == 3:
        return random.randint(-INTEGER_MAX, INTEGER_MAX) >> random.randrange(54)
    if kind == 4:
        return "".join(random.choices(LETTERS, k=random.randrange(6)))
    if kind == 5:
        return [grow(random, depth - 1) for _ in range(random.randrange(5))]
    names = ["".join(random.choices(LETTERS[:15], k=random.randrange(4))) for _ in range(random.randrange(5))]
    return {name: grow(random, depth - 1) for name in names}


def test_the_fast_path_agrees_over_twenty_thousand_trees() -> None:
    random = Random(8785)
    for _ in range(20_000):
        tree = grow(random, 4)
        walked = walk(tree, LIMITS)
        assert walked.is_plain
        assert encode_walked(tree, walked) == rfc8785.dumps(tree)


def strictly(data: bytes, limits: JsonLimits) -> JsonTree:
    """Read canonical bytes without the short way."""
    tree = parse_text(data, limits)
    if encode_bounded(tree, limits) != data:
        raise InvalidJsonError(reason="not_canonical")
    return tree


def odd_bytes(random: Random) -> bytes:
    """Make bytes of which many are nearly canonical: a tree's, with pieces lost, doubled, swapped or put in."""
    data = canonical_bytes(grow(random, 4))
    pieces = (
        b'"',
        b"\\",
        b",",
        b" ",
        b"0",
        b"-0",
        b"1.5",
        b"1e3",
        b"9007199254740992",
        b"NaN",
        b"\\ud800",
        b"\xf0\x9f\x98\x80",
    )
    for _ in range(random.randrange(3)):
        at, end = sorted((random.randrange(len(data) + 1), random.randrange(len(data) + 1)))
        put = random.choice((b"", data[at:end] * 2, data[end:] + data[at:end], random.choice(pieces)))
        data = data[:at] + put + data[end:]
    return data


def test_the_short_reading_never_takes_what_the_strict_one_refuses() -> None:
    random, taken, refused = Random(8785), 0, 0
    bounds = [JsonLimits.record(), JsonLimits.DEFAULT, JsonLimits(max_depth=2, max_entries=3, max_nodes=8)]
    bounds += [JsonLimits(max_string_bytes=4), JsonLimits(max_key_bytes=2), JsonLimits(max_bytes=9)]
    for _ in range(20_000):
        data, limits = odd_bytes(random), random.choice(bounds)
        plain = plain_tree(data, limits)
        if plain is not None:
            taken += 1
            assert same(plain[0], strictly(data, limits))
            continue
        try:
            strictly(data, limits)
        except InvalidJsonError:
            refused += 1
    assert taken > 2_000
    assert refused > 2_000


@given(trees(st.none() | st.booleans() | st.integers(-(10**15) + 1, 10**15 - 1) | st.text(), st.text()))
def test_the_short_reading_takes_what_people_write(tree: JsonTree) -> None:
    data = canonical_bytes(tree)
    plain = plain_tree(data, JsonLimits.record())
    if all(ord(character) < 2**16 for character in data.decode()) and not re.search(rb"[0-9]{16}", data):
        assert plain is not None
        assert same(plain[0], tree)
    else:
        assert plain is None


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":1}',
        b'{"b":1,"a":1}',
        '{"\U0001f600":1,"\uffff":2}'.encode(),
        '{"\uffff":2,"\U0001f600":1}'.encode(),
        b'"\\ud800"',
        b'"\\u00e9"',
        b'"\\/"',
        b"9007199254740993",
        b"-0",
        b"1.0",
        b"NaN",
        b" 1",
        b"",
        b"\xef\xbb\xbf1",
        b"\xff",
        b"[" * 97 + b"]" * 97,
        b'{"' + b"n" * 1025 + b'":1}',
        b'{"' + b'\\"' * 1025 + b'":1}',
    ],
)
def test_what_the_short_reading_leaves_to_the_strict_one(data: bytes) -> None:
    assert plain_tree(data, JsonLimits.record()) is None


@given(ANY)
def test_bytes_and_trees_are_inverse(tree: JsonTree) -> None:
    data, expected = canonical_bytes(tree), normal(tree)
    assert same(parse_canonical(data, LIMITS), expected)
    assert canonical_bytes(parse_canonical(data, LIMITS)) == data
    assert same(parse_json(dump_json(expected), LIMITS), expected)
    assert same(parse_json(data, LIMITS), expected)
    value = BoundedJson.of(tree, LIMITS)
    assert (value.data, value.size) == (data, len(data))
    assert same(value.value, expected)
    assert BoundedJson.parse(json.dumps(tree, indent=1), LIMITS) == value


@settings(max_examples=1000)
@given(FLOATS)
@example(1e16)
@example(float(2**53))
@example(float(2**53 - 1))
@example(1e20)
@example(999999999999999868928.0)
@example(1e21)
@example(-0.0)
@example(5e-324)
def test_a_double_comes_back_as_itself_or_is_refused(number: float) -> None:
    if legal(number):
        data = canonical_bytes(number)
        assert same(parse_canonical(data, LIMITS), normal(number))
        assert same(parse_json(data, LIMITS), normal(number))
        return
    text = json.dumps(number)
    for read in (canonical_bytes, lambda value: parse_json(json.dumps(value), LIMITS)):
        with pytest.raises(InvalidJsonError) as refused:
            read(number)
        expected = "non_finite_number" if text.strip("-") in {"NaN", "Infinity"} else "integer_out_of_range"
        assert refused.value.reason == expected


@given(st.dictionaries(TEXTS, PLAIN_LEAVES, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_insertion_does_not_matter(tree: dict[str, JsonTree], random: Any) -> None:
    items = list(tree.items())
    random.shuffle(items)
    assert canonical_bytes(dict(items)) == canonical_bytes(tree)


@given(st.text(st.sampled_from('[]{}"\\,:1 a'), max_size=60))
def test_any_text_is_read_as_the_standard_library_does_or_refused(text: str) -> None:
    try:
        tree = parse_json(text, LIMITS)
    except InvalidJsonError as error:
        if error.reason in {"duplicate_key", "nesting_too_deep"}:
            return
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)
    else:
        assert json.loads(text) == tree


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused_with_a_reason(data: bytes) -> None:
    refused: InvalidJsonError | None = None
    try:
        tree = parse_json(data, LIMITS)
    except InvalidJsonError as error:
        refused = error
    else:
        assert same(parse_canonical(canonical_bytes(tree), LIMITS), tree)
    assert refused is None or (refused.__cause__, refused.__context__) == (None, None)


@given(ANY, st.integers(0, 200), st.binary(min_size=1, max_size=1))
def test_one_changed_byte_is_another_value_or_refused(tree: JsonTree, at: int, byte: bytes) -> None:
    data = canonical_bytes(tree)
    changed = data[: at % len(data)] + byte + data[at % len(data) + 1 :]
    try:
        read = parse_canonical(changed, LIMITS)
    except InvalidJsonError:
        return
    assert canonical_bytes(read) == changed


def depth_of(tree: Any) -> int:
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


def nodes_of(tree: Any) -> int:
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return 1 + sum(map(nodes_of, inner))


@given(ANY)
def test_the_walk_counts_what_a_person_counts(tree: JsonTree) -> None:
    walked = walk(tree, LIMITS)
    assert (walked.depth, walked.nodes) == (depth_of(tree), nodes_of(tree))
