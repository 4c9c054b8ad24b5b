"""Turn what people have at hand, a dict, a file or a class, into the schema documents of a graph."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from attrs import field, frozen

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import JsonTree, canonical_bytes
from agentruns.domain.digests import plain_digest
from agentruns.domain.identity import CapabilityIdentity, SchemaReference
from agentruns.domain.scalars import Version
from agentruns.domain.schema import JsonSchemaRegistryBuilder
from agentruns.domain.schema.builder import READ_LIMITS
from agentruns.domain.schema.keywords import DIALECT
from agentruns.domain.uris import SchemaId
from agentruns.errors import DefinitionError, InvalidValueError


@runtime_checkable
class HasJsonSchema(Protocol):
    """A class that can say its own JSON Schema, as those of pydantic do."""

    def model_json_schema(self) -> dict[str, JsonTree]:
        """Give the document."""
        ...


SchemaSource = Mapping[str, object] | os.PathLike[str] | HasJsonSchema | type


@frozen(kw_only=True)
class GraphSchema:
    """Hold one schema document of a graph, or of what people say to its runs.

    Attributes:
        reference: the triple that the graph pins.
        document: its canonical bytes.
    """

    reference: SchemaReference
    document: bytes = field(repr=False)

    @classmethod
    def of(cls, tree: dict[str, JsonTree], *, role: str, graph: CapabilityIdentity) -> GraphSchema:
        """Complete a document with the dialect and, where it has none, an id derived from the graph.

        The version is the last segment of the document's own id where that is one, else the graph's.
        """
        complete = {"$schema": DIALECT, "$id": derived_id(role, graph=graph), **tree}
        identifier = complete["$id"]
        if not isinstance(identifier, str):
            raise DefinitionError(kind="graph", reason="invalid_schema_id", findings=(f"{role}: $id is no text",))
        body = BoundedJson.of(complete, READ_LIMITS)
        reference = SchemaReference(
            id=SchemaId.parse(identifier),
            version=_version_in(identifier) or graph.capability.version,
            digest=body.digest,
        )
        return cls(reference=reference, document=body.data)

    def register(self, builder: JsonSchemaRegistryBuilder) -> None:
        """Register the document unless ``builder`` has it already.

        Raises:
            DefinitionError: kind ``schema``; it cannot be used, or its id stands for another one.
        """
        if self.reference not in builder:
            builder.register(self.reference, self.document)


def derived_id(role: str, *, graph: CapabilityIdentity) -> str:
    """Make an id from owner, graph name, role and version; the owner, who is private, stands there as a digest."""
    owner: dict[str, JsonTree] = {"issuer": str(graph.owner.issuer), "subject": str(graph.owner.subject)}
    digits = plain_digest(canonical_bytes(owner)).raw.hex()[:32]
    capability = graph.capability
    return f"https://agentruns.invalid/graphs/{digits}/{capability.name}/{role}/{capability.version}"


def read_schema(source: SchemaSource, *, role: str) -> dict[str, JsonTree]:
    """Read a document now, so that neither the file nor the dict matters later.

    Raises:
        DefinitionError: ``unknown_schema_source``, or ``schema_not_an_object``.
        InvalidJsonError: the document is not acceptable JSON.
        OSError: the file cannot be read.
    """
    if isinstance(source, os.PathLike):
        tree = BoundedJson.parse(Path(source).read_bytes(), READ_LIMITS).value
    elif isinstance(source, HasJsonSchema):
        tree = BoundedJson.of(source.model_json_schema(), READ_LIMITS).value
    elif isinstance(source, dict):
        tree = BoundedJson.of(source, READ_LIMITS).value
    else:
        finding = f"{role}: neither a dict, a file nor a class with model_json_schema()"
        raise DefinitionError(kind="graph", reason="unknown_schema_source", findings=(finding,))
    if not isinstance(tree, dict):
        raise DefinitionError(kind="graph", reason="schema_not_an_object", findings=(role,))
    return tree


def update_of(state: dict[str, JsonTree]) -> dict[str, JsonTree]:
    """Make the schema of an update from that of the state: the same, with every member optional, under its own id."""
    return {name: value for name, value in state.items() if name not in {"$id", "required"}}


def _version_in(identifier: str) -> Version | None:
    try:
        return Version.parse(identifier.rpartition("/")[2])
    except InvalidValueError:
        return None
