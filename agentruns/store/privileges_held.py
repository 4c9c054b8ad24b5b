"""Read which privileges a role holds in effect: by grants to it, to its columns, to PUBLIC, and by membership."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from agentruns.store.privileges import Privilege

#: Names whatever holds for everybody. PostgreSQL lets no role be called so.
PUBLIC: Final = "public"

#: Asks by object id, so it needs no privilege on anything. A column counts where the whole relation is not held.
_HELD: Final = text("""
WITH asked AS (SELECT coalesce(CAST(:role AS name), current_user) AS role),
space AS (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = :schema),
relation AS (
  SELECT c.oid, c.relname FROM pg_catalog.pg_class AS c JOIN space AS s ON s.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
),
grantable AS (SELECT * FROM (VALUES (false, ''), (true, ' WITH GRANT OPTION')) AS v (yes, words)),
action AS (
  SELECT unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'REFERENCES', 'DELETE', 'TRUNCATE', 'TRIGGER']
    || CASE WHEN current_setting('server_version_num')::integer >= 170000 THEN ARRAY['MAINTAIN'] END) AS name
)
SELECT 'schema' AS kind, '' AS name, '' AS column_name, a.name AS action, g.yes AS grantable
FROM asked AS q, space AS s, grantable AS g, (VALUES ('USAGE'), ('CREATE')) AS a (name)
WHERE has_schema_privilege(q.role, s.oid, a.name || g.words)
UNION ALL
SELECT 'relation', r.relname, '', a.name, g.yes
FROM asked AS q, relation AS r, grantable AS g, action AS a
WHERE has_table_privilege(q.role, r.oid, a.name || g.words)
UNION ALL
SELECT 'relation', r.relname, c.attname, a.name, g.yes
FROM asked AS q, relation AS r JOIN pg_catalog.pg_attribute AS c ON c.attrelid = r.oid AND NOT c.attisdropped,
  grantable AS g, (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('REFERENCES')) AS a (name)
WHERE has_column_privilege(q.role, r.oid, c.attnum, a.name || g.words)
  AND NOT has_table_privilege(q.role, r.oid, a.name || g.words)
UNION ALL
SELECT 'function', p.proname, '', 'EXECUTE', g.yes
FROM asked AS q, grantable AS g, space AS s JOIN pg_catalog.pg_proc AS p ON p.pronamespace = s.oid
WHERE has_function_privilege(q.role, p.oid, 'EXECUTE' || g.words)
""")


def held(connection: Connection, *, schema: str, role: str | None = None) -> frozenset[Privilege]:
    """Read everything that a role holds in a schema, the tables of later revisions included, in one statement.

    Args:
        connection: of any role, with or without a privilege on the schema.
        schema: the schema; where it is missing, nothing is held.
        role: its name, ``PUBLIC`` for what everybody holds, or nobody's for the current role.
    """
    rows = connection.execute(_HELD, {"schema": schema, "role": role})
    return frozenset(Privilege(row.kind, row.name, row.column_name, row.action, row.grantable) for row in rows)
