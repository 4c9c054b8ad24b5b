from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import sys
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.schema import JsonSchemaRegistryBuilder
from agentruns.errors import SchemaRejectedError

def is_here():
    return {"lark", "rfc3987_syntax"} <= sys.modules.keys()

def built(name):
    builder = JsonSchemaRegistryBuilder()
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.org/a"}
    reference = builder.add({**document, "format": name}, "1.0.0")
    return builder.build(), reference

schemas, reference = built("uri")
schemas.validate(reference, BoundedJson.of("https://example.org/"))
print("lark" in sys.modules, "rfc3987_syntax" in sys.modules)
schemas, reference = built(sys.argv[1])
print(is_here())
schemas.validate(reference, BoundedJson.of("https://example.org/\\u00e4"))
try:
    schemas.validate(reference, BoundedJson.of("\\\\\\\\x"))
except SchemaRejectedError as error:
    print(error.keyword)
import rfc3987_syntax
print(rfc3987_syntax.is_valid_syntax("iri", "https://example.org/"), hasattr(rfc3987_syntax, "parse"))
"""


def test_the_parser_of_iris_is_made_for_the_registry_that_needs_it_and_not_before() -> None:
    ended = subprocess.run(  # noqa: S603 - our own interpreter and our own script
        [sys.executable, "-c", _SCRIPT, "iri-reference"], capture_output=True, text=True, check=True
    )
    assert ended.stdout.split("\n") == ["False False", "True", "format", "True True", ""]
