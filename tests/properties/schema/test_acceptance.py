"""An acceptor says yes only where the validator does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import plain_digest
from agentruns.domain.identity import SchemaReference
from agentruns.domain.scalars import Version
from agentruns.domain.schema.acceptance import MAXIMUM_CHAIN, MAXIMUM_SUBSCHEMAS, acceptor_of
from agentruns.domain.schema.dialect import FORMAT_CHECKER
from agentruns.domain.schema.documents import SchemaDocument, closed_resources
from agentruns.domain.uris import SchemaId

ID = "https://schemas.example/accepted"
NAMES = st.sampled_from(["a", "b", "c"])
COUNTS = st.integers(0, 3)
NUMBERS = st.sampled_from([-1, 0, 1, 2, 0.5, 1e21])
TEXTS = st.sampled_from(["", "a", "ab", "2026-01-01", "ä"])
ATOMS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    ATOMS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
TYPES = st.sampled_from(["array", "boolean", "integer", "null", "number", "object", "string"])
REFERENCES = st.sampled_from(["#/$defs/x", "#/$defs/y"])


def schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=2)
    named = st.dictionaries(NAMES, inner, max_size=2)
    keywords: dict[str, st.SearchStrategy[Any]] = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=2),
        "const": VALUES,
        **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), NUMBERS),
        **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), COUNTS),
        "pattern": st.sampled_from(["^a", "b$"]),
        "format": st.sampled_from(["date", "uuid"]),
        **dict.fromkeys(("items", "additionalProperties", "not", "contains", "propertyNames", "if"), inner),
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), some),
        **dict.fromkeys(("then", "else", "unevaluatedProperties"), inner),
        **dict.fromkeys(("properties", "dependentSchemas"), named),
        "patternProperties": st.dictionaries(st.sampled_from(["a", "^b"]), inner, max_size=1),
        "required": st.lists(NAMES, max_size=2, unique=True),
        "uniqueItems": st.booleans(),
        "multipleOf": st.sampled_from([1, 2]),
        "$ref": REFERENCES,
        "title": st.just("not decisive"),
    }
    return st.booleans() | st.lists(st.sampled_from(sorted(keywords)), max_size=4, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({word: keywords[word] for word in chosen})
    )


LEAVES = schemas(st.booleans()).filter(lambda schema: "$ref" not in json.dumps(schema))
TREES = schemas(schemas(LEAVES))


def document(tree: dict[str, Any]) -> SchemaDocument:
    body = BoundedJson.of({"$id": ID, **tree})
    reference = SchemaReference(id=SchemaId.parse(ID), version=Version("1.0.0"), digest=plain_digest(body.data))
    return SchemaDocument.of(reference, body)


def accepts(tree: dict[str, Any], value: Any) -> bool:
    made = document(tree)
    return acceptor_of(made, closed_resources([made]))(value)


@given(TREES, LEAVES, LEAVES, VALUES)
def test_what_is_accepted_is_what_the_validator_accepts(root: Any, x: Any, y: Any, value: Any) -> None:
    made = document({"allOf": [root], "$defs": {"x": x, "y": y}})
    resources = closed_resources([made])
    read = BoundedJson.of(value).value
    if acceptor_of(made, resources)(read):
        Draft202012Validator(made.tree, registry=resources, format_checker=FORMAT_CHECKER).validate(read)


@pytest.mark.parametrize(
    ("tree", "value", "expected"),
    [
        ({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"a": 1}, True),
        ({"properties": {"a": {"type": "integer"}}, "additionalProperties": False}, {"a": 1, "b": 1}, False),
        ({"type": "integer"}, True, False),
        ({"type": ["string", "null"]}, None, True),
        ({"enum": ["a", 1]}, "a", True),
        ({"enum": ["a", 1]}, 1, False),  # the validator accepts it
        ({"anyOf": [{"type": "null"}, {"$ref": "#/$defs/x"}], "$defs": {"x": {"minLength": 2}}}, "ab", True),
        ({"items": {"maximum": 2}}, [1, 2, 3], False),
        ({"minimum": 1, "maximum": 1}, 1, True),
        ({"exclusiveMinimum": 1}, 1, False),
        ({"exclusiveMaximum": 1}, 1, False),
        ({"patternProperties": {"^b": False}, "additionalProperties": True}, {"a": 1}, False),  # the same
        ({"prefixItems": [True], "items": False}, [1], False),  # the validator accepts it
        ({"properties": {"a": {"$ref": "#"}}}, {"a": {"a": {}}}, False),  # a reference into itself is the validator's
    ],
)
def test_plain_documents_are_accepted_without_the_validator(tree: Any, value: Any, *, expected: bool) -> None:
    assert accepts(tree, value) is expected


def test_what_is_too_large_to_follow_is_left_to_the_validator() -> None:
    chain = {str(number): {"$ref": f"#/$defs/{number + 1}"} for number in range(MAXIMUM_CHAIN)}
    assert accepts({"$ref": "#/$defs/1", "$defs": {**chain, str(MAXIMUM_CHAIN): True}}, 1)
    assert not accepts({"$ref": "#/$defs/0", "$defs": {**chain, str(MAXIMUM_CHAIN): True}}, 1)
    doubled = {str(number): {"allOf": 2 * [{"$ref": f"#/$defs/{number + 1}"}]} for number in range(12)}
    assert MAXIMUM_SUBSCHEMAS < 2**12
    assert not accepts({"$ref": "#/$defs/0", "$defs": {**doubled, "12": True}}, 1)


SIZED: dict[str, list[Any]] = {
    "string": ["ä" * size for size in range(5)],
    "integer": [-1, 0, 1, 2, 3],
    "number": [-1, 0.5, 1, 1.5, 3],
    "array": [[None] * size for size in range(5)],
    "object": [dict.fromkeys("abcd"[:size]) for size in range(5)],
}
BOUNDS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
}


@pytest.mark.parametrize("kind", SIZED)
@pytest.mark.parametrize("with_type", [True, False])
def test_bounds_accept_exactly_what_lies_between_them(kind: str, *, with_type: bool) -> None:
    low, high = BOUNDS[kind]
    values = [value for values in SIZED.values() for value in values]
    for bounds in ({}, {low: 1}, {high: 2}, {low: 1, high: 2}, {low: 3, high: 1}):
        tree = {**bounds, **({"type": kind} if with_type else {})}
        validator = Draft202012Validator(tree)
        assert [accepts(tree, value) for value in values] == [validator.is_valid(value) for value in values]
