from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.identity import SchemaReference
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.schema import JsonSchemaRegistry, JsonSchemaRegistryBuilder, JsonSchemaRegistryLimits
from agentruns.errors import SchemaRejectedError, SchemaUnavailableError

SCHEMAS: list[dict[str, Any]] = [
    {"type": "string", "maxLength": 2},
    {"type": ["integer", "array"], "items": {"type": "integer"}},
    {"properties": {"a": {"type": "integer"}, "b": {"$ref": "#"}}, "additionalProperties": False, "type": "object"},
    {"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]},
]

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "abc", 1.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)

CALLS = st.lists(st.tuples(st.integers(0, len(SCHEMAS) - 1), VALUES), max_size=30)


def registry(*, verdicts: int) -> tuple[JsonSchemaRegistry, list[SchemaReference]]:
    builder = JsonSchemaRegistryBuilder(JsonSchemaRegistryLimits(verdicts=verdicts))
    dialect = "https://json-schema.org/draft/2020-12/schema"
    references = [
        builder.add({"$schema": dialect, "$id": f"https://example.org/{number}", **schema}, "1.0.0")
        for number, schema in enumerate(SCHEMAS)
    ]
    return builder.build(), references


def answer(schemas: JsonSchemaRegistry, reference: SchemaReference, tree: Any) -> object:
    try:
        schemas.validate(reference, BoundedJson.of(tree, JsonLimits.DEFAULT))
    except SchemaRejectedError as error:
        return (error.reference, error.keyword, error.schema_pointer, error.pointer)
    except SchemaUnavailableError as error:
        return (error.reference, error.reason)
    return "accepted"


BARE, REFERENCES = registry(verdicts=0)


@given(CALLS, st.integers(1, 4))
def test_with_and_without_verdicts_every_call_answers_alike(calls: list[tuple[int, Any]], kept: int) -> None:
    remembering, references = registry(verdicts=kept)
    assert references == REFERENCES
    for number, tree in calls:
        expected = answer(BARE, references[number], tree)
        assert answer(remembering, references[number], tree) == expected
        assert answer(remembering, references[number], tree) == expected
