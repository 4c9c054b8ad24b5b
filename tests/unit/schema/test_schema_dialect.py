from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import sys
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.schema import JsonSchemaRegistryBuilder
from agentruns.errors import SchemaRejectedError

DEFERRED = ("lark", "rfc3987_syntax", "arrow", "isoduration", "rfc3986_validator", "webcolors")

def here():
    print(*(name for name in DEFERRED if name in sys.modules))

def checked(name, good, bad):
    builder = JsonSchemaRegistryBuilder()
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.org/a"}
    reference = builder.add({**document, "format": name}, "1.0.0")
    schemas = builder.build()
    here()
    schemas.validate(reference, BoundedJson.of(good))
    try:
        schemas.validate(reference, BoundedJson.of(bad))
    except SchemaRejectedError as error:
        print(error.keyword)

here()
checked("uri", "https://example.org/", "/a")
checked("duration", "P1D", "1 day")
checked("iri-reference", "https://example.org/\\u00e4", "\\\\\\\\x")
import isoduration
import rfc3987_syntax
print(rfc3987_syntax.is_valid_syntax("iri", "https://example.org/"), hasattr(rfc3987_syntax, "parse"))
print(hasattr(isoduration, "format_duration"))
from jsonschema import Draft3Validator, FormatChecker
colours = [FormatChecker(["color"]).conforms(name, "color") for name in ("red", "#fff", "no colour")]
print(*colours, hasattr(sys.modules["webcolors"], "hex_to_name"))
"""


def test_what_parses_a_format_is_imported_for_the_registry_that_needs_it_and_not_before() -> None:
    ended = subprocess.run(  # noqa: S603 - our own interpreter and our own script
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines() == [
        "",
        "rfc3986_validator",
        "format",
        "arrow isoduration rfc3986_validator",
        "format",
        "lark rfc3987_syntax arrow isoduration rfc3986_validator",
        "format",
        "True True",
        "True",
        "True True False True",
    ]
