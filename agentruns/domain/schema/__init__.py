"""JSON Schema documents, frozen into a registry that validates offline."""

from __future__ import annotations

from agentruns.domain.schema.builder import JsonSchemaRegistryBuilder
from agentruns.domain.schema.limits import JsonSchemaRegistryLimits
from agentruns.domain.schema.registry import JsonSchemaRegistry

__all__ = ["JsonSchemaRegistry", "JsonSchemaRegistryBuilder", "JsonSchemaRegistryLimits"]
