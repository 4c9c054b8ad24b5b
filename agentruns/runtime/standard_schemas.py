"""The library's own schema documents, and the functions that register them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from agentruns.domain.identity import SchemaReference
from agentruns.domain.schema import JsonSchemaRegistryBuilder

_VERSION = "1.0.0"
_SUFFIX = f"-{_VERSION}.json"


def register_standard_schemas(builder: JsonSchemaRegistryBuilder) -> tuple[SchemaReference, ...]:
    """Register every document of the library, in the order of names; none of them may be registered already.

    Raises:
        DefinitionError: kind ``schema``; one of the documents or its id is there, or the registry is full.
    """
    return tuple(_register(builder, name) for name in standard_document_names())


def register_standard_agent_admission_event_schema(builder: JsonSchemaRegistryBuilder) -> SchemaReference:
    """Register the document of the event that admits a run."""
    return _register(builder, "agent-admission-event")


def register_standard_graph_driver_event_schema(builder: JsonSchemaRegistryBuilder) -> SchemaReference:
    """Register the document of the driver's events, and that of the details of the failures it writes."""
    reference = _register(builder, "graph-driver-event")
    _register(builder, "graph-failure-details")
    return reference


def register_standard_graph_lifecycle_event_schema(builder: JsonSchemaRegistryBuilder) -> SchemaReference:
    """Register the document of the events that change a run's status."""
    return _register(builder, "graph-lifecycle-event")


def register_standard_agent_cancellation_event_schema(builder: JsonSchemaRegistryBuilder) -> SchemaReference:
    """Register the document of the events that cancel a run."""
    return _register(builder, "agent-cancellation-event")


def register_standard_invocation_event_schema(builder: JsonSchemaRegistryBuilder) -> SchemaReference:
    """Register the document of the events of model and tool calls."""
    return _register(builder, "invocation-execution-event")


@cache
def standard_document_names() -> tuple[str, ...]:
    """Name the documents that are installed with the library."""
    installed = (resource.name for resource in files("agentruns.schemas").iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in installed if name.endswith(_SUFFIX)))


@cache
def standard_document(name: str) -> bytes:
    """Read one document, once; ``name`` is that of its file without version and suffix."""
    return files("agentruns.schemas").joinpath(name + _SUFFIX).read_bytes()


def _register(builder: JsonSchemaRegistryBuilder, name: str) -> SchemaReference:
    return builder.add(standard_document(name), _VERSION)
