"""Read what a schema consists of, as text that can be compared."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from agentruns.store.verification.reading import printing_settings

#: Names what is not as it has to be only where it is so: a column may be generated, a table unlogged.
_OBJECTS: Final = text("""
WITH relation AS (
  SELECT c.oid, c.relname, c.relkind, c.relpersistence, c.relrowsecurity, c.reloptions
  FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  WHERE n.nspname = :schema AND c.relkind IN ('r', 'p', 'f', 'm', 'v', 'S') AND c.relname <> ALL (:ignored)
)
SELECT 'relation' AS kind, r.relname::text AS name,
  concat_ws(' ', r.relkind, (SELECT string_agg(o, ' ' ORDER BY o) FROM unnest(r.reloptions) AS o),
    CASE WHEN r.relpersistence <> 'p' THEN 'UNLOGGED' END, CASE WHEN r.relrowsecurity THEN 'row security' END,
    CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE r.oid IN (inhparent, inhrelid)) THEN 'INHERITANCE' END
  ) AS definition
FROM relation AS r
UNION ALL
SELECT 'column', r.relname || '.' || a.attname,
  concat_ws(' ', format_type(a.atttypid, a.atttypmod),
    CASE WHEN a.attcollation NOT IN (0, 100) THEN 'COLLATE ' || l.collname END,
    CASE WHEN a.attnotnull THEN 'NOT NULL' END, CASE WHEN k.oid IS NOT NULL THEN 'NOT VALIDATED' END,
    'DEFAULT ' || pg_get_expr(d.adbin, d.adrelid),
    CASE WHEN a.attgenerated <> '' THEN 'GENERATED' END, CASE WHEN a.attidentity <> '' THEN 'IDENTITY' END)
FROM relation AS r
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_collation AS l ON l.oid = a.attcollation
LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_catalog.pg_constraint AS k
  ON k.conrelid = a.attrelid AND k.contype = 'n' AND k.conkey = ARRAY[a.attnum] AND NOT k.convalidated
WHERE r.relkind <> 'v'
UNION ALL
SELECT 'constraint', r.relname || '.' || c.conname,
  concat_ws(' ', pg_get_constraintdef(c.oid), CASE WHEN NOT c.convalidated THEN 'NOT VALIDATED' END)
FROM relation AS r JOIN pg_catalog.pg_constraint AS c ON c.conrelid = r.oid AND c.contype NOT IN ('n', 't')
UNION ALL
SELECT 'index', r.relname || '.' || c.relname,
  concat_ws(' ', pg_get_indexdef(i.indexrelid), CASE WHEN NOT i.indisvalid THEN 'INVALID' END,
    CASE WHEN NOT i.indisready THEN 'NOT READY' END)
FROM relation AS r
JOIN pg_catalog.pg_index AS i ON i.indrelid = r.oid JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
UNION ALL
SELECT 'trigger', r.relname || '.' || t.tgname, concat_ws(' ', pg_get_triggerdef(t.oid), 'ENABLED', t.tgenabled)
FROM relation AS r JOIN pg_catalog.pg_trigger AS t ON t.tgrelid = r.oid AND NOT t.tgisinternal
UNION ALL
SELECT 'constraint trigger', concat_ws('.', r.relname, c.conname, p.proname), concat('ENABLED ', t.tgenabled)
FROM relation AS r
JOIN pg_catalog.pg_trigger AS t ON t.tgrelid = r.oid AND t.tgisinternal
JOIN pg_catalog.pg_constraint AS c ON c.oid = t.tgconstraint JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid
JOIN relation AS o ON o.oid = c.conrelid
UNION ALL
SELECT 'view', r.relname, pg_get_viewdef(r.oid) FROM relation AS r WHERE r.relkind IN ('v', 'm')
UNION ALL
SELECT 'rule', r.relname || '.' || w.rulename, pg_get_ruledef(w.oid)
FROM relation AS r JOIN pg_catalog.pg_rewrite AS w ON w.ev_class = r.oid AND w.rulename <> '_RETURN'
UNION ALL
SELECT 'function', p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')',
  concat_ws(' ', l.lanname, format_type(p.prorettype, NULL), p.prokind, p.provolatile, p.proparallel,
    CASE WHEN p.prosecdef THEN 'SECURITY DEFINER' END, CASE WHEN p.proisstrict THEN 'STRICT' END,
    CASE WHEN p.proleakproof THEN 'LEAKPROOF' END, array_to_string(p.proconfig, ' '), p.prosrc)
FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
JOIN pg_catalog.pg_language AS l ON l.oid = p.prolang
WHERE n.nspname = :schema
ORDER BY 1, 2
""")


def read_catalogue(
    connection: Connection, *, schema: str, ignored: tuple[str, ...] = ("alembic_version",)
) -> dict[str, dict[str, str]]:
    """Read every object of a schema, which needs no privilege on any of them.

    Args:
        connection: open, in autocommit or in a transaction, whose settings are afterwards what they were.
        schema: the schema; empty where there is none of that name.
        ignored: relations that are no part of it: the version tables of Alembic's.
    """
    found: dict[str, dict[str, str]] = {}
    with printing_settings(connection):
        for row in connection.execute(_OBJECTS, {"schema": schema, "ignored": list(ignored)}):
            found.setdefault(row.kind, {})[row.name] = row.definition
    return found
