"""Verify that a server is supported, and that it has a schema with our tables."""

from __future__ import annotations

from typing import Final

from attrs import frozen
from sqlalchemy import Connection, text

from agentruns.errors import SchemaVerificationError
from agentruns.store.options import check_schema_name

_OLDEST_SERVER: Final = 160000
_NEWEST_SERVER: Final = 189999
_SERVERS_WANTED: Final = "16, 17 or 18, UTF8"

#: Reads the catalogue rather than ``to_regclass``, which fails without a privilege on the schema. A name of the grammar
#: is printed in quotes exactly where it is a keyword with a meaning of its own.
_SERVER: Final = text("""
WITH migrated AS (
  SELECT n.nspname::text AS name, c.relowner AS owner
  FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  WHERE c.relname = 'applied_revisions' AND c.relkind = 'r'
)
SELECT current_setting('server_version_num')::integer AS number, current_setting('server_version') AS version,
  current_setting('server_encoding') AS encoding,
  EXISTS (SELECT FROM pg_catalog.pg_get_keywords() WHERE word = :schema AND catcode <> 'U') AS is_keyword,
  EXISTS (SELECT FROM migrated WHERE name = :schema AND pg_has_role(owner, 'USAGE')) AS is_owner,
  ARRAY(SELECT name FROM migrated ORDER BY name) AS schemas
""")


@frozen(kw_only=True)
class VerifiedServer:
    """Say which server it is.

    Attributes:
        version: as the server names itself.
        quoted_schema: the schema's name as the server prints it in a definition.
        is_owner: the current role owns the tables, or acts for their owner as a superuser does.
    """

    version: str
    quoted_schema: str
    is_owner: bool


def verify_server(connection: Connection, schema: str) -> VerifiedServer:
    """Refuse an unsupported server and a schema without our tables.

    Raises:
        SchemaVerificationError: ``unsupported_server`` or ``not_migrated``.
    """
    found = connection.execute(_SERVER, {"schema": check_schema_name(schema)}).one()
    if not _OLDEST_SERVER <= found.number <= _NEWEST_SERVER or found.encoding != "UTF8":
        version = f"{found.version}, {found.encoding}"
        raise SchemaVerificationError(reason="unsupported_server", schema=schema, found=version, wanted=_SERVERS_WANTED)
    if schema not in found.schemas:
        elsewhere = f"tables in schema {', '.join(found.schemas)}" if found.schemas else ""
        raise SchemaVerificationError(reason="not_migrated", schema=schema, found=elsewhere)
    quoted_schema = f'"{schema}"' if found.is_keyword else schema
    return VerifiedServer(version=found.version, quoted_schema=quoted_schema, is_owner=found.is_owner)
