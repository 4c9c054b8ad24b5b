from __future__ import annotations

import subprocess
import sys
import time
import traceback
from typing import Any

import pytest

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.identity import SchemaReference
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.scalars import Version
from agentruns.domain.schema import JsonSchemaRegistry, JsonSchemaRegistryBuilder, validator
from agentruns.errors import SchemaRejectedError, SchemaUnavailableError

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ID = "https://example.org/schemas/a/1.0.0"
OTHER = "https://example.org/schemas/b/1.0.0"
CANARY = "canary-7f3a"


def document(uri: str = ID, /, **keywords: Any) -> dict[str, Any]:
    return {"$schema": DIALECT, "$id": uri, **keywords}


def registry(*documents: dict[str, Any]) -> tuple[JsonSchemaRegistry, SchemaReference]:
    builder = JsonSchemaRegistryBuilder()
    references = [builder.add(tree, "1.0.0") for tree in documents]
    return builder.build(), references[0]


def value(tree: Any) -> BoundedJson:
    return BoundedJson.of(tree, JsonLimits.MAXIMUM)


def rejection(keywords: dict[str, Any], tree: Any, *others: dict[str, Any]) -> SchemaRejectedError:
    schemas, reference = registry(document(**keywords), *others)
    with pytest.raises(SchemaRejectedError) as caught:
        schemas.validate(reference, value(tree))
    assert caught.value.reference == reference
    return caught.value


def unavailable(schemas: JsonSchemaRegistry, reference: SchemaReference, tree: Any) -> SchemaUnavailableError:
    with pytest.raises(SchemaUnavailableError) as caught:
        schemas.validate(reference, value(tree), "input")
    assert caught.value.part == "input"
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return caught.value


@pytest.mark.parametrize(
    ("keywords", "tree", "expected"),
    [
        ({"type": "string"}, 1, ("type", "/type", "")),
        ({"properties": {"a/b": {"maximum": 3}}}, {"a/b": 4}, ("maximum", "/properties/a~1b/maximum", "/a~1b")),
        ({"items": {"const": 1}}, [1, 1, 2], ("const", "/items/const", "/2")),
        ({"required": ["a"]}, {}, ("required", "/required", "")),
        ({"properties": {"a": False}}, {"a": 1}, ("false", "/properties", "")),
        ({"additionalProperties": False}, {"a": 1}, ("additionalProperties", "/additionalProperties", "")),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, ("anyOf", "/anyOf", "")),
        ({"if": True, "then": {"type": "string"}}, 1, ("type", "/then/type", "")),
        (
            {"properties": {"a": {"$ref": "#/$defs/t"}}, "$defs": {"t": {"type": "string"}}},
            {"a": 1},
            ("type", "/properties/a/$ref/type", "/a"),
        ),
        (
            {"$dynamicRef": "#t", "$defs": {"t": {"$dynamicAnchor": "t", "type": "string"}}},
            1,
            ("type", "/$dynamicRef/type", ""),
        ),
    ],
)
def test_where_a_value_is_rejected(keywords: dict[str, Any], tree: Any, expected: tuple[str, str, str]) -> None:
    error = rejection(keywords, tree)
    assert (error.keyword, error.schema_pointer, error.pointer) == expected


def test_the_first_rejection_does_not_depend_on_how_document_and_value_are_written() -> None:
    names = ["n", "z", "a", "m"]
    forward = {"properties": {name: {"type": "string"} for name in names}, "minProperties": 9}
    backward = {"minProperties": 9, "properties": {name: {"type": "string"} for name in reversed(names)}}
    for keywords in (forward, backward):
        for order in (names, names[::-1]):
            error = rejection(keywords, dict.fromkeys(order, 1))
            assert (error.keyword, error.pointer) == ("minProperties", "")
    del forward["minProperties"]
    assert rejection(forward, dict.fromkeys(names, 1)).pointer == "/a"


def test_additional_properties_go_by_name() -> None:
    keywords = {"properties": {"b": True}, "patternProperties": {"^x": True}, "additionalProperties": {"type": "null"}}
    schemas, reference = registry(document(**keywords))
    schemas.validate(reference, value({"b": 1, "xy": 2, "c": None}))
    schemas.validate(reference, value([1]))
    error = rejection(keywords, {"q": 1, "b": 1, "d": 1, "x": 1, "a": None})
    assert (error.keyword, error.schema_pointer, error.pointer) == ("type", "/additionalProperties/type", "/d")


@pytest.mark.parametrize("keyword", [True, {"type": ["integer", "null"]}])
def test_additional_properties_that_accept(keyword: Any) -> None:
    schemas, reference = registry(document(additionalProperties=keyword))
    schemas.validate(reference, value({"a": 1}))


_ORDER_SCRIPT = """
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.schema import JsonSchemaRegistryBuilder
from agentruns.errors import SchemaRejectedError
builder = JsonSchemaRegistryBuilder()
reference = builder.add({"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.org/a",
    "additionalProperties": {"type": "null"}}, "1.0.0")
try:
    builder.build().validate(reference, BoundedJson.of({name: 1 for name in "qwertyuiop"}, JsonLimits.DEFAULT))
except SchemaRejectedError as error:
    print(error.pointer)
"""


def test_two_processes_with_different_hash_seeds_agree() -> None:
    answers = {
        subprocess.run(  # noqa: S603 - our own interpreter and our own script
            [sys.executable, "-c", _ORDER_SCRIPT],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert answers == {"/e\n"}


def test_true_is_no_integer_and_an_integral_float_is_one() -> None:
    schemas, reference = registry(document(type="integer"))
    schemas.validate(reference, value(1.0))
    with pytest.raises(SchemaRejectedError):
        schemas.validate(reference, value(tree=True))
    with pytest.raises(SchemaRejectedError):
        schemas.validate(reference, value(1.5))


@pytest.mark.parametrize(("keywords", "tree"), [({"const": 1}, True), ({"enum": [0]}, False), ({"const": True}, 1)])
def test_booleans_and_numbers_are_never_equal(keywords: dict[str, Any], tree: Any) -> None:
    assert rejection(keywords, tree).keyword == next(iter(keywords))


def test_not_installed_needs_the_exact_triple() -> None:
    schemas, reference = registry(document(type="string"))
    _, stranger = registry(document(type="integer"))
    renamed = SchemaReference(id=reference.id, version=Version.parse("1.0.1"), digest=reference.digest)
    for absent in (stranger, renamed):
        assert unavailable(schemas, absent, "text").reason == "not_installed"
        assert absent not in schemas
        with pytest.raises(SchemaUnavailableError) as caught:
            schemas.require(absent, part="event")
        assert (caught.value.reason, caught.value.reference, caught.value.part) == ("not_installed", absent, "event")
    schemas.require(reference)
    assert reference in schemas


def test_a_validator_that_fails_gives_no_verdict_and_is_asked_again() -> None:
    deep: dict[str, Any] = {"$ref": "#"}
    for _ in range(20):
        deep = {"allOf": [deep]}
    schemas, reference = registry(document(properties={"c": deep}))
    tree: Any = {}
    for _ in range(63):
        tree = {"c": tree}
    for _ in range(2):
        assert unavailable(schemas, reference, tree).reason == "validator_failed"
    schemas.validate(reference, value({"c": {}}))


def test_hostile_doubling_ends_within_seconds() -> None:
    branch = {"properties": {"c": {"$ref": "#"}}}
    schemas, reference = registry(document(allOf=[branch, branch]))
    tree: Any = {}
    for _ in range(60):
        tree = {"c": tree}
    began = time.process_time()
    assert unavailable(schemas, reference, tree).reason == "too_much_work"
    assert time.process_time() - began < 10


@pytest.mark.parametrize("keyword", ["unevaluatedProperties", "unevaluatedItems"])
def test_doubling_under_unevaluated_is_counted_too(keyword: str) -> None:
    levels = {f"l{n}": {"anyOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(40)}
    schemas, reference = registry(
        document(**{"$ref": "#/$defs/l0", keyword: False, "$defs": {**levels, "l40": {"type": ["object", "array"]}}})
    )
    tree: Any = {"a": 1} if keyword == "unevaluatedProperties" else [1]
    began = time.process_time()
    assert unavailable(schemas, reference, tree).reason == "too_much_work"
    assert time.process_time() - began < 20


def test_hops_are_counted_across_documents() -> None:
    branch = {"properties": {"c": {"$ref": OTHER}}}
    schemas, reference = registry(document(**{"$ref": OTHER}), document(OTHER, allOf=[branch, branch]))
    tree: Any = {}
    for _ in range(60):
        tree = {"c": tree}
    assert unavailable(schemas, reference, tree).reason == "too_much_work"


def test_the_number_of_hops_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (validator.BASE_HOPS, validator.HOPS_PER_NODE) == (10_000, 8)
    # Less is counted in less time; the document is still one that only a validator judges.
    monkeypatch.setattr(validator, "BASE_HOPS", 3_000)
    # Each of thirty references costs a hundred: itself, and those behind it.
    hundred = {"allOf": [{"$ref": "#/$defs/any"}] * 99}
    references = [{"$ref": "#/$defs/hundred"}] * 30 + [{"$ref": "#/$defs/any"}] * 8
    tree = document(**{"allOf": references, "$defs": {"any": {}, "hundred": hundred}})
    schemas, reference = registry(tree)
    schemas.validate(reference, value(1))
    tree["allOf"].append({"$ref": "#/$defs/any"})
    schemas, reference = registry(tree)
    assert unavailable(schemas, reference, 1).reason == "too_much_work"
    schemas.validate(reference, value([1]))


@pytest.mark.parametrize(
    ("keywords", "nest"),
    [
        ({"properties": {"c": {"$ref": "#"}}}, "object"),
        ({"items": {"$ref": "#"}}, "array"),
        ({"$dynamicAnchor": "node", "additionalProperties": {"$dynamicRef": "#node"}}, "object"),
        ({"properties": {"c": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}}}, "object"),
        ({"properties": {"c": {"$ref": "#/$defs/node"}}, "$defs": {"node": {"allOf": [{"$ref": "#"}]}}}, "object"),
    ],
)
def test_recursion_of_depth_64_passes(keywords: dict[str, Any], nest: str) -> None:
    schemas, reference = registry(document(**keywords))
    tree: Any = {} if nest == "object" else []
    for _ in range(63):
        tree = {"c": tree} if nest == "object" else [tree]
    schemas.validate(reference, value(tree))


def test_a_rejected_value_is_in_no_text() -> None:
    error = rejection(
        {"properties": {CANARY: {"enum": [CANARY, 1]}}, "additionalProperties": False}, {CANARY: CANARY + "x"}
    )
    assert CANARY in error.pointer
    without_pointers = SchemaRejectedError(
        reference=error.reference, keyword=error.keyword, schema_pointer="", pointer=error.pointer
    )
    for text in (str(without_pointers), repr(without_pointers), *traceback.format_exception(without_pointers)):
        assert CANARY not in text
    assert error.__cause__ is None
    assert error.__context__ is None


def test_a_value_in_an_additional_member_is_in_no_text() -> None:
    for keywords in ({"additionalProperties": False}, {"additionalProperties": {"type": "null"}}, {"maxProperties": 0}):
        error = rejection(keywords, {CANARY: CANARY})
        assert CANARY not in str(error)
        assert CANARY not in repr(error)
        assert CANARY not in "".join(traceback.format_exception(error))


def test_part_is_that_of_the_call() -> None:
    schemas, reference = registry(document(type="string"))
    for part in ("input", None, "state"):
        with pytest.raises(SchemaRejectedError) as caught:
            schemas.validate(reference, value(1), part)
        assert caught.value.part == part
