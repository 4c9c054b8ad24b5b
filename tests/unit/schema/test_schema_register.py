from __future__ import annotations

import inspect
import json
import sys
from typing import Any

import pytest

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import canonical_bytes
from agentruns.domain.digests import plain_digest
from agentruns.domain.identity import SchemaReference
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.scalars import Version
from agentruns.domain.schema import JsonSchemaRegistryBuilder, JsonSchemaRegistryLimits
from agentruns.domain.uris import SchemaId
from agentruns.errors import DefinitionError, InvalidJsonError, InvalidValueError

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ID = "https://example.org/schemas/a/1.0.0"


def document(uri: str = ID, /, **keywords: Any) -> dict[str, Any]:
    return {"$schema": DIALECT, "$id": uri, **keywords}


def reference(tree: Any, *, uri: str = ID, version: str = "1.0.0") -> SchemaReference:
    return SchemaReference(
        id=SchemaId.parse(uri), version=Version.parse(version), digest=plain_digest(canonical_bytes(tree))
    )


def refused(builder: JsonSchemaRegistryBuilder, pinned: SchemaReference, tree: Any) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        builder.register(pinned, tree)
    assert caught.value.kind == "schema"
    assert caught.value.reference == pinned
    return caught.value


def test_add_computes_the_triple() -> None:
    builder = JsonSchemaRegistryBuilder()
    added = builder.add(document(type="string"), version="1.0.0")
    assert added == reference(document(type="string"))
    assert added in builder
    assert builder.build().references == (added,)


def test_text_bytes_and_tree_are_one_document() -> None:
    text = json.dumps(document(type="string"), indent=4)
    pinned = reference(document(type="string"))
    for spelled in (text, text.encode(), document(type="string")):
        assert JsonSchemaRegistryBuilder().add(spelled, Version.parse("1.0.0")) == pinned
        JsonSchemaRegistryBuilder().register(pinned, spelled)


@pytest.mark.parametrize(
    "text", ['{"$id":"https://example.org/a","$id":"https://example.org/b"}', '{"a":1,"\\u0061":2}', '[{"a":1,"a":1}]']
)
def test_duplicate_names_are_refused(text: str) -> None:
    with pytest.raises(InvalidJsonError) as caught:
        JsonSchemaRegistryBuilder().add(text, "1.0.0")
    assert caught.value.reason == "duplicate_key"


def test_python_only_types_are_refused() -> None:
    with pytest.raises(InvalidJsonError) as caught:
        JsonSchemaRegistryBuilder().add(document(enum=("a", "b")), "1.0.0")
    assert caught.value.reason == "unsupported_type"


@pytest.mark.parametrize("tree", [True, False, [], "text", 1, None])
def test_add_refuses_what_is_no_object(tree: Any) -> None:
    spelled = json.dumps(tree) if isinstance(tree, str) else tree
    with pytest.raises(DefinitionError) as caught:
        JsonSchemaRegistryBuilder().add(spelled, "1.0.0")
    assert caught.value.reason == "not_an_object"


@pytest.mark.parametrize("tree", [{"$schema": DIALECT}, {"$schema": DIALECT, "$id": 1}])
def test_add_needs_an_id(tree: Any) -> None:
    with pytest.raises(DefinitionError) as caught:
        JsonSchemaRegistryBuilder().add(tree, "1.0.0")
    assert caught.value.reason == "id_mismatch"


@pytest.mark.parametrize("uri", ["http://example.org/a", "urn:a", "https://example.org/a#", "https://Example.org/a"])
def test_add_refuses_an_id_outside_the_normal_form(uri: str) -> None:
    with pytest.raises(InvalidValueError):
        JsonSchemaRegistryBuilder().add(document(uri), "1.0.0")


def test_too_many_documents() -> None:
    builder = JsonSchemaRegistryBuilder(JsonSchemaRegistryLimits(documents=1))
    pinned = builder.add(document(), "1.0.0")
    error = refused(builder, pinned, document())
    assert (error.reason, error.limit, error.actual) == ("too_many_documents", 1, 2)


def test_duplicate_reference_before_duplicate_id() -> None:
    builder = JsonSchemaRegistryBuilder()
    pinned = builder.add(document(), "1.0.0")
    assert refused(builder, pinned, document()).reason == "duplicate_reference"


def test_duplicate_id_in_another_version_or_with_another_document() -> None:
    builder = JsonSchemaRegistryBuilder()
    builder.add(document(), "1.0.0")
    assert refused(builder, reference(document(), version="1.0.1"), document()).reason == "duplicate_id"
    assert refused(builder, reference(document(title="b")), document(title="b")).reason == "duplicate_id"
    assert refused(builder, reference([]), []).reason == "duplicate_id"


def test_a_bundled_meta_schema_cannot_be_replaced() -> None:
    builder = JsonSchemaRegistryBuilder()
    tree = document(DIALECT)
    assert refused(builder, reference(tree, uri=DIALECT), tree).reason == "duplicate_id"


@pytest.mark.parametrize("tree", [True, [], 1])
def test_not_an_object(tree: Any) -> None:
    assert refused(JsonSchemaRegistryBuilder(), reference(tree), tree).reason == "not_an_object"


@pytest.mark.parametrize(
    "dialect",
    [
        "https://json-schema.org/draft/2020-12/schema#",
        "http://json-schema.org/draft/2020-12/schema",
        "http://json-schema.org/draft-07/schema#",
        1,
    ],
)
def test_wrong_dialect_before_id_mismatch(dialect: Any) -> None:
    tree = {"$schema": dialect, "$id": "https://example.org/other"}
    assert refused(JsonSchemaRegistryBuilder(), reference(tree), tree).reason == "wrong_dialect"


def test_missing_dialect() -> None:
    tree = {"$id": ID}
    assert refused(JsonSchemaRegistryBuilder(), reference(tree), tree).reason == "wrong_dialect"


@pytest.mark.parametrize("uri", ["https://example.org/schemas/b/1.0.0", ID + "#", 1])
def test_id_mismatch_before_invalid_schema(uri: Any) -> None:
    tree = {"$schema": DIALECT, "$id": uri, "type": 5}
    assert refused(JsonSchemaRegistryBuilder(), reference(tree), tree).reason == "id_mismatch"


@pytest.mark.parametrize(
    "keywords",
    [{"type": 5}, {"type": "text"}, {"required": "a"}, {"properties": {"a": {"minLength": -1}}}, {"allOf": []}],
)
def test_invalid_schema_before_document_too_large(keywords: dict[str, Any]) -> None:
    tree = document(**keywords)
    builder = JsonSchemaRegistryBuilder(JsonSchemaRegistryLimits(document_bytes=1))
    assert refused(builder, reference(tree), tree).reason == "invalid_schema"


def test_a_schema_that_needs_more_stack_than_there_is_cannot_be_used() -> None:
    tree = document(**{"$defs": {"a": {"not": {"not": {"not": {"not": {"not": {"not": {}}}}}}}}})
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 50)
    try:
        error = refused(JsonSchemaRegistryBuilder(), reference(tree), tree)
    finally:
        sys.setrecursionlimit(limit)
    assert error.reason == "invalid_schema"


def test_the_deepest_document_can_be_used() -> None:
    tree: dict[str, Any] = {}
    for _ in range(47):
        tree = {"items": {"not": tree}}
    assert JsonSchemaRegistryBuilder().add(document(**tree), "1.0.0").id == SchemaId.parse(ID)


def test_document_too_large_before_digest_mismatch() -> None:
    tree = document(title="x" * 100)
    size = len(canonical_bytes(tree))
    builder = JsonSchemaRegistryBuilder(JsonSchemaRegistryLimits(document_bytes=size - 1))
    error = refused(builder, reference(document()), tree)
    assert (error.reason, error.limit, error.actual) == ("document_too_large", size - 1, size)


def test_white_space_does_not_count() -> None:
    tree = document()
    limits = JsonSchemaRegistryLimits(document_bytes=len(canonical_bytes(tree)))
    JsonSchemaRegistryBuilder(limits).add(json.dumps(tree, indent=8), "1.0.0")


def test_digest_mismatch_before_registry_too_large() -> None:
    first = document()
    size = len(canonical_bytes(first))
    builder = JsonSchemaRegistryBuilder(JsonSchemaRegistryLimits(document_bytes=size, total_bytes=size))
    builder.add(first, "1.0.0")
    uri = "https://example.org/schemas/b/1.0.0"
    assert refused(builder, reference(first, uri=uri), document(uri)).reason == "digest_mismatch"
    error = refused(builder, reference(document(uri), uri=uri), document(uri))
    assert (error.reason, error.limit, error.actual) == ("registry_too_large", size, 2 * size)


def test_a_refused_document_leaves_nothing_behind() -> None:
    builder = JsonSchemaRegistryBuilder()
    tree = document(type=5)
    refused(builder, reference(tree), tree)
    assert reference(tree) not in builder
    assert builder.add(document(), "1.0.0") in builder


def test_a_built_registry_does_not_grow() -> None:
    builder = JsonSchemaRegistryBuilder()
    first = builder.add(document(), "1.0.0")
    built = builder.build()
    second = builder.add(document("https://example.org/schemas/b/1.0.0"), "1.0.0")
    assert first in built
    assert second not in built
    assert "text" not in built
    assert "text" not in builder
    assert builder.build().references == (first, second)


def test_mutating_a_registered_tree_changes_nothing() -> None:
    tree = document(type="string")
    builder = JsonSchemaRegistryBuilder()
    pinned = builder.add(tree, "1.0.0")
    tree["type"] = "integer"
    builder.build().validate(pinned, BoundedJson.of("text", JsonLimits.DEFAULT))
