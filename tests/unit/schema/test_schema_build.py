from __future__ import annotations

from typing import Any

import pytest

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.schema import JsonSchemaRegistryBuilder, dialect
from agentruns.domain.schema.keywords import FORMATS
from agentruns.errors import DefinitionError, SchemaRejectedError

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ID = "https://example.org/schemas/a/1.0.0"
OTHER = "https://example.org/schemas/b/1.0.0"


def document(uri: str = ID, /, **keywords: Any) -> dict[str, Any]:
    return {"$schema": DIALECT, "$id": uri, **keywords}


def refusal(*documents: dict[str, Any]) -> DefinitionError:
    builder = JsonSchemaRegistryBuilder()
    for tree in documents:
        builder.add(tree, "1.0.0")
    with pytest.raises(DefinitionError) as caught:
        builder.build()
    assert caught.value.kind == "schema"
    return caught.value


def accepts(tree: dict[str, Any], value: Any, *others: dict[str, Any]) -> bool:
    builder = JsonSchemaRegistryBuilder()
    reference = builder.add(tree, "1.0.0")
    for other in others:
        builder.add(other, "1.0.0")
    try:
        builder.build().validate(reference, BoundedJson.of(value, JsonLimits.MAXIMUM))
    except SchemaRejectedError:
        return False
    return True


def test_empty() -> None:
    assert refusal().reason == "empty"


@pytest.mark.parametrize(
    ("keywords", "pointer"),
    [
        ({"$defs": {"b": {"$id": OTHER}}}, "/$defs/b/$id"),
        ({"properties": {"b": {"$schema": DIALECT}}}, "/properties/b/$schema"),
        ({"items": {"$vocabulary": {"https://example.org/v": True}}}, "/items/$vocabulary"),
        ({"$vocabulary": {"https://example.org/v": True}}, "/$vocabulary"),
        ({"definitions": {"b": {"$id": "b"}}}, "/definitions/b/$id"),
        ({"allOf": [True, {"$id": "b"}]}, "/allOf/1/$id"),
        ({"patternProperties": {"a/b~": {"$id": "b"}}}, "/patternProperties/a~1b~0/$id"),
        ({"$defs": {"b": {"$id": "http://["}}}, "/$defs/b/$id"),
    ],
)
def test_embedded_resource(keywords: dict[str, Any], pointer: str) -> None:
    error = refusal(document(**keywords))
    assert error.reason == "embedded_resource"
    assert error.findings == (f"embedded_resource at {ID}#{pointer}",)


@pytest.mark.parametrize(
    "keywords",
    [
        {"$ref": "#/$defs/missing"},
        {"$ref": "#missing"},
        {"$ref": "#a/b"},
        {"$ref": OTHER},
        {"$ref": OTHER + "#/$defs/a"},
        {"$ref": "b"},
        {"$ref": "http://127.0.0.1:9/schema"},
        {"$ref": "https://["},
        {"$ref": "http://json-schema.org/draft-07/schema"},
        {"$dynamicRef": "#missing"},
        {"$ref": "#/allOf/x", "allOf": [{}]},
        {"$ref": "#/allOf/1", "allOf": [{}]},
        {"$ref": "#/title/0/x", "title": "text"},
        {"$ref": "#/minLength/x", "minLength": 3},
        {"$ref": "#/title", "title": "text"},
        {"$ref": "#/const", "const": {"type": 5}},
        {"$ref": "#/x-shared/a", "x-shared": {"a": {}}},
        {"properties": {"a": {"items": {"$ref": "#/$defs/missing"}}}},
    ],
)
def test_unresolved_reference(keywords: dict[str, Any]) -> None:
    assert refusal(document(**keywords)).reason == "unresolved_reference"


def test_every_unresolved_reference_is_named() -> None:
    tree = document(properties={"a": {"$ref": "#a"}, "b": {"$dynamicRef": "#b"}})
    error = refusal(tree, document(OTHER, **{"$ref": "#c"}))
    assert set(error.findings) == {
        f"unresolved_reference at {ID}#/properties/a/$ref",
        f"unresolved_reference at {ID}#/properties/b/$dynamicRef",
        f"unresolved_reference at {OTHER}#/$ref",
    }


def test_findings_are_at_most_a_hundred() -> None:
    tree = document(properties={f"p{number}": {"$ref": "#missing"} for number in range(150)})
    assert len(refusal(tree).findings) == 100


@pytest.mark.parametrize(
    "keywords",
    [
        {"const": {"$ref": "#missing", "$id": "x", "format": "nope", "pattern": "("}},
        {"enum": [{"$ref": "#missing"}]},
        {"default": {"$ref": "#missing"}},
        {"examples": [{"$ref": "#missing"}]},
        {"x-anything": {"$ref": "#missing"}},
        {"properties": {"$ref": {"type": "string"}, "$id": {}, "format": {}, "pattern": {}}},
    ],
)
def test_what_only_looks_like_a_keyword_is_ignored(keywords: dict[str, Any]) -> None:
    builder = JsonSchemaRegistryBuilder()
    builder.add(document(**keywords), "1.0.0")
    builder.build()


@pytest.mark.parametrize(
    "documents",
    [
        [document(**{"$ref": "#"})],
        [document(**{"$dynamicRef": "#"})],
        [document(allOf=[{"$ref": "#"}])],
        [document(anyOf=[{}, {"not": {"$ref": "#"}}])],
        [document(oneOf=[{"$ref": ID}])],
        [document(**{"if": {"then": True, "else": {"$ref": "#"}}})],
        [document(then={"$ref": "#"})],
        [document(dependentSchemas={"a": {"$ref": "#"}})],
        [document(**{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})],
        [document(allOf=[{"$ref": OTHER}]), document(OTHER, allOf=[{"$ref": ID}])],
        [document(**{"$anchor": "me", "allOf": [{"$ref": "#me"}]})],
        [
            document(**{"$dynamicAnchor": "n", "$ref": OTHER}),
            document(OTHER, **{"$dynamicAnchor": "n", "$dynamicRef": "#n"}),
        ],
    ],
)
def test_K8_cyclic_reference(documents: list[dict[str, Any]]) -> None:
    assert refusal(*documents).reason == "cyclic_reference"


def test_a_document_that_only_leads_to_a_cycle_is_not_named() -> None:
    tree = document(**{"$ref": OTHER})
    error = refusal(tree, document(OTHER, **{"$ref": "#"}))
    assert error.findings == (f"cyclic_reference at {OTHER}#",)


@pytest.mark.parametrize(
    "keywords",
    [
        {"items": {"$ref": "#"}},
        {"prefixItems": [{"$ref": "#"}]},
        {"properties": {"a": {"$ref": "#"}}},
        {"additionalProperties": {"$ref": "#"}},
        {"patternProperties": {"a": {"$ref": "#"}}},
        {"contains": {"$ref": "#"}},
        {"$defs": {"a": {"$ref": "#"}}},
        {"contentSchema": {"$ref": "#"}},
        {"propertyNames": {"$ref": "#"}},
    ],
)
def test_K8_recursion_that_consumes_the_instance_is_legal(keywords: dict[str, Any]) -> None:
    builder = JsonSchemaRegistryBuilder()
    builder.add(document(**keywords), "1.0.0")
    builder.build()


@pytest.mark.parametrize(
    ("documents", "pointer"),
    [
        ([document(items={"$ref": "#"}, unevaluatedItems=False)], "/unevaluatedItems"),
        ([document(unevaluatedItems={"$ref": "#"})], "/unevaluatedItems"),
        ([document(properties={"a": {"$ref": "#"}}, unevaluatedProperties=False)], "/unevaluatedProperties"),
        (
            [document(allOf=[{"properties": {"a": {"$ref": "#"}}, "unevaluatedProperties": False}])],
            "/allOf/0/unevaluatedProperties",
        ),
        (
            [
                document(**{"$dynamicAnchor": "node", "$ref": OTHER, "unevaluatedProperties": False}),
                document(OTHER, **{"$dynamicAnchor": "node", "properties": {"a": {"$dynamicRef": "#node"}}}),
            ],
            "/unevaluatedProperties",
        ),
    ],
)
def test_recursive_unevaluated(documents: list[dict[str, Any]], pointer: str) -> None:
    error = refusal(*documents)
    assert error.reason == "recursive_unevaluated"
    assert error.findings == (f"recursive_unevaluated at {ID}#{pointer}",)


def test_unevaluated_around_a_recursion_is_legal() -> None:
    tree = document(
        allOf=[{"$ref": "#/$defs/tree"}],
        unevaluatedProperties=False,
        **{"$defs": {"tree": {"properties": {"child": {"$ref": "#/$defs/tree"}}}}},
    )
    assert accepts(tree, {"child": {"child": {"other": 1}}})
    assert not accepts(tree, {"other": 1})


@pytest.mark.parametrize("name", ["datetime", "", "Date", "color", "uri-ref", "binary"])
def test_unknown_format(name: str) -> None:
    error = refusal(document(properties={"a": {"format": name}}))
    assert error.reason == "unknown_format"
    assert error.findings == (f"unknown_format at {ID}#/properties/a/format",)


GOOD_AND_BAD = {
    "date": ("2026-01-02", "2026-13-02"),
    "date-time": ("2026-01-02T03:04:05Z", "nope"),
    "duration": ("P1D", "1 day"),
    "email": ("a@example.org", "a"),
    "hostname": ("example.org", "-example"),
    "idn-email": ("ä@example.org", "ä"),
    "idn-hostname": ("b\u00fccher.example", "\u302ea"),
    "ipv4": ("127.0.0.1", "127.0.0.256"),
    "ipv6": ("::1", ":::1"),
    "iri": ("https://example.org/\u00e4", "\u00e4"),
    "iri-reference": ("/\u00e4", "\\\\x"),
    "json-pointer": ("/a~1b", "a"),
    "regex": ("a+", "("),
    "relative-json-pointer": ("0/a", "/a"),
    "time": ("03:04:05Z", "25:00:00Z"),
    "uri": ("https://example.org/", "/a"),
    "uri-reference": ("/a", "\\\\x"),
    "uri-template": ("https://example.org/{a}", "{"),
    "uuid": ("0198c0de-0000-7000-8000-000000000001", "0198c0de"),
}


def test_there_are_nineteen_formats() -> None:
    assert set(GOOD_AND_BAD) == set(FORMATS)
    assert len(GOOD_AND_BAD) == 19


@pytest.mark.parametrize("name", sorted(GOOD_AND_BAD))
def test_formats_are_asserted(name: str) -> None:
    good, bad = GOOD_AND_BAD[name]
    assert accepts(document(format=name), good)
    assert not accepts(document(format=name), bad)
    assert accepts(document(format=name), 1)


def test_missing_format_checker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(dialect.FORMAT_CHECKER.checkers, "duration")
    # No other test has had this document checked.
    error = refusal(document(format="duration", title="without a checker"))
    assert error.reason == "missing_format_checker"
    assert error.findings == (f"missing_format_checker at {ID}#/format",)


@pytest.mark.parametrize(
    ("keywords", "pointer"),
    [
        ({"pattern": "("}, "/pattern"),
        ({"pattern": "\\p{L}"}, "/pattern"),
        ({"patternProperties": {"a/(": {}}}, "/patternProperties/a~1("),
        ({"pattern": "a{99999999999999999999}"}, "/pattern"),
        ({"pattern": "(" * 5_000 + ")" * 5_000}, "/pattern"),
    ],
)
def test_invalid_pattern(keywords: dict[str, Any], pointer: str) -> None:
    error = refusal(document(**keywords))
    assert error.reason == "invalid_pattern"
    assert error.findings == (f"invalid_pattern at {ID}#{pointer}",)


def test_the_first_failing_check_is_reported() -> None:
    flaws: list[tuple[str, dict[str, Any]]] = [
        ("embedded_resource", {"$id": "x"}),
        ("unresolved_reference", {"$ref": "#missing"}),
        ("cyclic_reference", {"$anchor": "loop", "allOf": [{"$ref": "#loop"}]}),
        ("recursive_unevaluated", {"$anchor": "deep", "items": {"$ref": "#deep"}, "unevaluatedItems": False}),
        ("unknown_format", {"format": "nope"}),
        ("invalid_pattern", {"pattern": "("}),
    ]
    for position, (reason, _) in enumerate(flaws):
        later = dict(flaws[position:])
        assert refusal(document(**{"$defs": later})).reason == reason


def test_references_between_documents_and_to_anchors() -> None:
    tree = document(
        properties={"a": {"$ref": "../b/1.0.0#text"}, "b": {"$ref": OTHER + "#/$defs/n~1m"}, "c": {"$ref": OTHER}}
    )
    other = document(
        OTHER, **{"$defs": {"t": {"$anchor": "text", "type": "string"}, "n/m": {"type": "integer"}, "x": True}}
    )
    assert accepts(tree, {"a": "text", "b": 1, "c": None}, other)
    assert not accepts(tree, {"a": 1}, other)
    assert not accepts(tree, {"b": "text"}, other)


def test_a_reference_to_a_boolean_schema() -> None:
    tree = document(**{"$ref": "#/$defs/never", "$defs": {"never": False}})
    assert not accepts(tree, 1)


def test_a_dynamic_reference_finds_the_outermost_anchor() -> None:
    strict = document(
        **{"$dynamicAnchor": "node", "$ref": OTHER, "required": ["value"]},
    )
    tree = document(
        OTHER,
        **{"$dynamicAnchor": "node", "properties": {"children": {"items": {"$dynamicRef": "#node"}}}},
    )
    assert accepts(strict, {"value": 1, "children": [{"value": 2}]}, tree)
    assert not accepts(strict, {"value": 1, "children": [{}]}, tree)
    assert accepts(tree, {"children": [{}]}, strict)


def test_the_meta_schema_may_be_referred_to() -> None:
    tree = document(properties={"schema": {"$ref": DIALECT}})
    assert accepts(tree, {"schema": {"type": "string", "items": {"minLength": 1}}})
    assert not accepts(tree, {"schema": {"items": {"items": {"minLength": "x"}}}})
