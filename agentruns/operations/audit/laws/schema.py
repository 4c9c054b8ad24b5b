"""Laws that the catalogue shows: what keeps the tables append-only, keyed by tenant, and their hot row narrow."""

from __future__ import annotations

from typing import Final

from agentruns.operations.audit.law import WideLaw

_OURS: Final = "c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = :schema) AND c.relkind = 'r'"

EVERY_TABLE_IS_GUARDED: Final = WideLaw(
    label="DB-1",
    sentence="every table but applied_revisions has its append-only trigger, and it is enabled",
    needs_everything=True,
    sql=f"""
SELECT NULL AS tenant_id, NULL AS run_id, c.relname::text AS "table", NULL AS "column", 'trigger=append_only' AS key,
  CASE WHEN t.oid IS NULL THEN 'no trigger' ELSE 'a trigger that is disabled' END AS found, 'one, enabled' AS wanted
FROM pg_class AS c LEFT JOIN pg_trigger AS t ON t.tgrelid = c.oid AND t.tgname = 'append_only'
WHERE {_OURS} AND c.relname <> 'applied_revisions'
  AND c.relname NOT LIKE 'alembic%' AND (t.oid IS NULL OR t.tgenabled NOT IN ('O', 'A'))
""",
)

EVERY_CHECK_HOLDS: Final = WideLaw(
    label="DB-3",
    sentence="every check and foreign key is validated",
    needs_everything=True,
    sql=f"""
SELECT NULL AS tenant_id, NULL AS run_id, c.relname::text AS "table", NULL AS "column",
  'constraint=' || k.conname AS key, 'not validated' AS found, 'validated' AS wanted
FROM pg_class AS c JOIN pg_constraint AS k ON k.conrelid = c.oid
WHERE {_OURS} AND k.contype IN ('c', 'f') AND NOT k.convalidated
""",
)

EVERY_KEY_BEGINS_WITH_THE_TENANT: Final = WideLaw(
    label="DB-4",
    sentence="every key and foreign key of a table of tenants begins with the tenant",
    needs_everything=True,
    sql=f"""
SELECT NULL AS tenant_id, NULL AS run_id, c.relname::text AS "table", a.attname::text AS "column",
  'constraint=' || k.conname AS key, a.attname::text AS found, 'tenant_id' AS wanted
FROM pg_class AS c JOIN pg_constraint AS k ON k.conrelid = c.oid AND k.contype IN ('p', 'u', 'f')
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = k.conkey[1]
WHERE {_OURS} AND a.attname <> 'tenant_id' AND EXISTS (
  SELECT FROM pg_attribute AS t WHERE t.attrelid = c.oid AND t.attname = 'tenant_id' AND NOT t.attisdropped)
""",
)

HOT_COLUMNS_ARE_IN_NO_INDEX: Final = WideLaw(
    label="DB-5",
    sentence="no column of head, superstep, checkpoint or lease is in an index of runs",
    needs_everything=True,
    sql=f"""
SELECT DISTINCT NULL AS tenant_id, NULL::text AS run_id, 'runs' AS "table", a.attname::text AS "column",
  'index=' || i.relname AS key, 'a column of the index' AS found, 'a column that no index has' AS wanted
FROM pg_class AS c JOIN pg_index AS x ON x.indrelid = c.oid JOIN pg_class AS i ON i.oid = x.indexrelid
JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = i.oid
  AND d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = d.refobjsubid
WHERE {_OURS} AND c.relname = 'runs' AND (a.attname LIKE 'head\\_%' OR a.attname LIKE 'lease\\_%'
  OR a.attname IN ('superstep', 'checkpoint_digest'))
""",
)
