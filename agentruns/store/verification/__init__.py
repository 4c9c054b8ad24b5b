"""Verify that a database is what this release needs: server, revisions, objects, and what the role may do."""

from __future__ import annotations

from agentruns.store.verification.revisions import verify_revisions
from agentruns.store.verification.server import verify_server
from agentruns.store.verification.verify import SchemaReport, verify_schema

__all__ = ["SchemaReport", "verify_revisions", "verify_schema", "verify_server"]
