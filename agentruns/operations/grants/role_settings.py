"""Compare how the connections of each role behave with what grants set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from sqlalchemy import Connection, text

from agentruns.operations.grants.findings import Finding
from agentruns.operations.grants.statements import SETTINGS

#: Switches the append-only triggers off, so a role must not have it in any database.
_NO_TRIGGERS: Final = "session_replication_role"
#: How an empty path is kept.
_EMPTY: Final = '""'

_SET: Final = text("""
SELECT r.rolname AS role, s.setdatabase <> 0 AS is_here, c.entry
FROM pg_catalog.pg_db_role_setting AS s JOIN pg_catalog.pg_roles AS r ON r.oid = s.setrole
CROSS JOIN LATERAL unnest(s.setconfig) AS c (entry)
WHERE r.rolname = ANY (CAST(:names AS name[]))
  AND s.setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()))
""")


def changed_settings(connection: Connection, names: Sequence[str]) -> Iterator[Finding]:
    """Find settings of the roles in this database that are not what grants make them; others have theirs everywhere.

    Values are compared as they were written, and none is repeated.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    for row in connection.execute(_SET, {"names": list(names)}):
        if row.is_here or row.entry.startswith(f"{_NO_TRIGGERS}="):
            found[row.role].add(row.entry)
    wanted = {f"{name}={value or _EMPTY}" for name, value in SETTINGS.items()}
    for role in names:
        for name in {entry.partition("=")[0] for entry in found[role] ^ wanted}:
            yield Finding(role, "setting", f"{name} is not what apply sets")
