"""A real PostgreSQL server that comes with the extra ``embedded``."""

from __future__ import annotations

from agentruns.operations.embedded.server import EmbeddedServer, ServerStatus

__all__ = ["EmbeddedServer", "ServerStatus"]
