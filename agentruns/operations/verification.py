"""What an operator verifies of a schema; a store verifies the same when it is opened."""

from __future__ import annotations

from agentruns.store.verification import SchemaReport, verify_revisions, verify_schema

__all__ = ["SchemaReport", "verify_revisions", "verify_schema"]
