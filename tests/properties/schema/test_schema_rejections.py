"""What is accepted agrees with the library's own validator, and what is rejected points at real places."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import Schema

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.schema import JsonSchemaRegistryBuilder
from agentruns.errors import DefinitionError, SchemaRejectedError

ID = "https://example.org/schemas/a/1.0.0"
NAMES = st.sampled_from(["a", "b", "c/d", "~"])
TYPES = st.sampled_from(["string", "integer", "object", "array", "null", "boolean", "number"])


def schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES,
            "properties": st.dictionaries(NAMES, inner, max_size=2),
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$"]), inner, max_size=1),
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "required": st.lists(NAMES, max_size=1),
            "maxProperties": st.integers(0, 2),
            "$ref": st.sampled_from(["#/$defs/a", "#/$defs/b"]),
        },
    )


SCHEMAS = st.recursive(st.booleans() | st.builds(lambda name: {"type": name}, TYPES), schemas, max_leaves=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


def lookup(tree: Any, pointer: str) -> Any:
    for segment in pointer.split("/")[1:]:
        name = segment.replace("~1", "/").replace("~0", "~")
        tree = tree[int(name)] if isinstance(tree, list) else tree[name]
    return tree


@given(SCHEMAS, SCHEMAS, SCHEMAS, st.lists(VALUES, min_size=1, max_size=4))
def test_same_verdict_as_the_library(root: Any, first: Any, second: Any, values: list[Any]) -> None:
    tree: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": ID,
        "$defs": {"a": first, "b": second},
        "allOf": [root],
    }
    builder = JsonSchemaRegistryBuilder()
    reference = builder.add(tree, "1.0.0")
    try:
        registry = builder.build()
    except DefinitionError as error:
        assume(error.reason != "cyclic_reference")
        raise
    model = Draft202012Validator(tree, registry=Registry[Schema]())
    for value in values:
        try:
            registry.validate(reference, BoundedJson.of(value, JsonLimits.DEFAULT))
            accepted = True
        except SchemaRejectedError as error:
            accepted = False
            lookup(value, error.pointer)
        assert accepted == model.is_valid(value)
