"""Where subschemas stand in a Draft 2020-12 document, and which keywords apply them to what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

DIALECT = "https://json-schema.org/draft/2020-12/schema"

#: Keywords whose value is one subschema, a list of subschemas, and a map from names to subschemas.
SINGLE = frozenset(
    {
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
LISTED = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
MAPPED = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})

#: Keywords that apply a subschema to the very instance at hand, and those that apply it to nothing.
IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})
NOT_APPLIED = frozenset({"$defs", "definitions", "contentSchema"})

REFERENCES = ("$ref", "$dynamicRef")
UNEVALUATED = ("unevaluatedItems", "unevaluatedProperties")

FORMATS = frozenset(
    {
        "date",
        "date-time",
        "duration",
        "email",
        "hostname",
        "idn-email",
        "idn-hostname",
        "ipv4",
        "ipv6",
        "iri",
        "iri-reference",
        "json-pointer",
        "regex",
        "relative-json-pointer",
        "time",
        "uri",
        "uri-reference",
        "uri-template",
        "uuid",
    }
)


def child_schemas(schema: Mapping[str, object]) -> Iterator[tuple[str, str, object]]:
    """Give each subschema directly inside ``schema``: its keyword, the pointer to it, and itself."""
    for keyword, value in schema.items():
        if keyword in SINGLE:
            yield keyword, f"/{keyword}", value
        elif keyword in LISTED and isinstance(value, list):
            yield from ((keyword, f"/{keyword}/{index}", item) for index, item in enumerate(value))
        elif keyword in MAPPED and isinstance(value, dict):
            yield from ((keyword, f"/{keyword}/{escaped(name)}", item) for name, item in value.items())


def escaped(segment: str | int) -> str:
    """Spell one segment of a JSON pointer (RFC 6901 section 3)."""
    return str(segment).replace("~", "~0").replace("/", "~1")


def pointer_of(path: Iterable[str | int]) -> str:
    """Spell a whole path as a JSON pointer."""
    return "".join(f"/{escaped(segment)}" for segment in path)
