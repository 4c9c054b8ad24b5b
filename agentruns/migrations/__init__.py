"""Migrate the schema, alone or beside a host's own revisions; a process that runs agents never migrates."""

from __future__ import annotations

from typing import Final

from agentruns.migrations.api import downgrade, sql, upgrade
from agentruns.migrations.environment import BRANCH, LOCATION, check
from agentruns.migrations.frozen import create_schema
from agentruns.migrations.include import include_name
from agentruns.migrations.locking import wait_turn

#: What a host adds to its ``version_locations``.
VERSION_LOCATION: Final = LOCATION

__all__ = [
    "BRANCH",
    "LOCATION",
    "VERSION_LOCATION",
    "check",
    "create_schema",
    "downgrade",
    "include_name",
    "sql",
    "upgrade",
    "wait_turn",
]
