"""Find what was granted to roles that nobody named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sqlalchemy import Connection, text

from agentruns.operations.grants.findings import Finding

#: So many objects stand in a finding.
_SHOWN: Final = 2

#: A privilege on columns counts as one on their table: it should not be there at all.
_GRANTED: Final = text("""
WITH space AS (SELECT oid, nspacl FROM pg_catalog.pg_namespace WHERE nspname = :schema),
relation AS (SELECT c.oid, c.relname, c.relacl FROM space AS s JOIN pg_catalog.pg_class AS c ON c.relnamespace = s.oid),
object AS (
  SELECT 'the schema' AS name, nspacl AS acl FROM space
  UNION ALL SELECT relname::text, relacl FROM relation
  UNION ALL SELECT r.relname::text, a.attacl FROM relation AS r
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = r.oid AND NOT a.attisdropped
  UNION ALL SELECT p.proname::text, p.proacl FROM space AS s JOIN pg_catalog.pg_proc AS p ON p.pronamespace = s.oid
)
SELECT r.rolname AS role, a.privilege_type AS action, array_agg(DISTINCT o.name ORDER BY o.name) AS objects
FROM object AS o CROSS JOIN LATERAL aclexplode(o.acl) AS a JOIN pg_catalog.pg_roles AS r ON r.oid = a.grantee
WHERE r.rolname <> ALL (CAST(:named AS name[]))
GROUP BY r.rolname, a.privilege_type
""")


def granted_to_unnamed(connection: Connection, named: Sequence[str], *, schema: str) -> Iterator[Finding]:
    """Find grants to other roles, one finding for each role and kind of privilege.

    What a role holds without a grant on an object of the schema, as a superuser does or a member of a predefined role,
    is the server's affair and is not looked at.

    Args:
        connection: of any role.
        named: the owners, and the roles that have a job.
        schema: the schema.
    """
    for row in connection.execute(_GRANTED, {"schema": schema, "named": list(named)}):
        yield Finding(row.role, "not_named", f"{row.action} on {_listed(row.objects)}")


def _listed(objects: Sequence[str]) -> str:
    more = len(objects) - _SHOWN
    return ", ".join(objects[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
