"""Verify at the start that a database is what this release needs: its server and its applied revisions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

from attrs import frozen
from sqlalchemy import Connection, LargeBinary, Row, text
from sqlalchemy.exc import DBAPIError

from agentruns.errors import SchemaVerificationError
from agentruns.store.failures import refusal
from agentruns.store.options import check_schema_name

_OLDEST_SERVER: Final = 160000
_NEWEST_SERVER: Final = 189999
_SERVERS_WANTED: Final = "16, 17 or 18, UTF8"

#: Reads the catalogue rather than ``to_regclass``, which fails without a privilege on the schema.
_SERVER: Final = text("""
SELECT current_setting('server_version_num')::integer AS number, current_setting('server_version') AS version,
  current_setting('server_encoding') AS encoding,
  ARRAY(SELECT n.nspname::text FROM pg_catalog.pg_class AS c
        JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.relname = 'applied_revisions' AND c.relkind = 'r' ORDER BY n.nspname) AS schemas
""")
_REVISIONS: Final = """
SELECT number, revision, checksum, oldest_code FROM "{schema}".applied_revisions ORDER BY number
"""


@frozen(kw_only=True)
class ReleasedRevision:
    """Hold what the manifest says of one revision.

    Attributes:
        checksum: SHA-256 of the revision's file with LF line ends.
    """

    number: int
    revision: str
    checksum: bytes


@frozen(kw_only=True)
class SchemaReport:
    """Say what was verified.

    Attributes:
        schema: the database schema.
        server_version: as the server names itself.
        revisions: what has been applied, in order, newer ones included.
        newer: revisions that this release does not know and may run beside.
    """

    schema: str
    server_version: str
    revisions: tuple[str, ...]
    newer: tuple[str, ...]

    @property
    def is_ahead(self) -> bool:
        """The schema is newer than this release."""
        return bool(self.newer)


@cache
def released_revisions() -> tuple[ReleasedRevision, ...]:
    """Read the revisions of this release, oldest first."""
    manifest: dict[str, Any] = json.loads(files("agentruns").joinpath("migrations/manifest.json").read_bytes())
    return tuple(
        ReleasedRevision(number=entry["number"], revision=entry["revision"], checksum=bytes.fromhex(entry["sha256"]))
        for entry in manifest["revisions"]
    )


def verify_schema(connection: Connection, *, schema: str = "agentruns", strict: bool = False) -> SchemaReport:
    """Refuse a database that this release cannot work with, in two statements that change nothing.

    Args:
        connection: open, in autocommit or in a transaction.
        schema: the schema that holds the tables.
        strict: refuse every newer schema, even one that this release may run beside.

    Raises:
        SchemaVerificationError: ``unsupported_server``, ``not_migrated``, ``behind``, ``ahead``, ``tampered`` or
            ``missing_privileges``.
    """
    check_schema_name(schema)
    version = verify_server(connection, schema)
    rows = _applied(connection, schema)
    if not rows:
        raise SchemaVerificationError(reason="not_migrated", schema=schema)
    newer = _compare(rows, schema)
    if newer:
        _verify_newer(newer, schema, strict=strict)
    return SchemaReport(
        schema=schema,
        server_version=version,
        revisions=tuple(row.revision for row in rows),
        newer=tuple(row.revision for row in newer),
    )


def verify_server(connection: Connection, schema: str) -> str:
    """Refuse an unsupported server and a schema without our tables, and hand back the server's version.

    Raises:
        SchemaVerificationError: ``unsupported_server`` or ``not_migrated``.
    """
    found = connection.execute(_SERVER).one()
    if not _OLDEST_SERVER <= found.number <= _NEWEST_SERVER or found.encoding != "UTF8":
        raise SchemaVerificationError(
            reason="unsupported_server",
            schema=schema,
            found=f"{found.version}, {found.encoding}",
            wanted=_SERVERS_WANTED,
        )
    if schema not in found.schemas:
        elsewhere = f"tables in schema {', '.join(found.schemas)}" if found.schemas else ""
        raise SchemaVerificationError(reason="not_migrated", schema=schema, found=elsewhere)
    return str(found.version)


def _applied(connection: Connection, schema: str) -> Sequence[Row[Any]]:
    statement = text(_REVISIONS.format(schema=schema)).columns(checksum=LargeBinary())
    failure: DBAPIError | None = None
    try:
        return connection.execute(statement).all()
    except DBAPIError as error:
        failure = error
    if getattr(failure.orig, "sqlstate", None) in ("42501", "42P01", "42703"):
        # Raised outside the block: the driver's error carries the statement.
        raise refusal(failure, schema=schema)
    raise failure


def _compare(rows: Sequence[Row[Any]], schema: str) -> Sequence[Row[Any]]:
    """Match the rows with the release's own list and hand back those beyond it."""
    wanted = released_revisions()
    for position, row in enumerate(rows, start=1):
        if row.number != position:
            raise _different("tampered", schema, found=row.revision, wanted=f"revision number {position}")
    for row, entry in zip(rows, wanted, strict=False):
        if row.revision != entry.revision:
            raise _different("tampered", schema, found=row.revision, wanted=entry.revision)
        if bytes(row.checksum) != entry.checksum:
            found = f"{row.revision} {bytes(row.checksum).hex()}"
            raise _different("tampered", schema, found=found, wanted=entry.checksum.hex())
    if len(rows) < len(wanted):
        raise _different("behind", schema, found=rows[-1].revision, wanted=wanted[-1].revision)
    return rows[len(wanted) :]


def _verify_newer(newer: Sequence[Row[Any]], schema: str, *, strict: bool) -> None:
    """Run beside a newer schema only where each newer revision says that this release may."""
    head = released_revisions()[-1]
    if strict or any(row.oldest_code > head.number for row in newer):
        raise _different("ahead", schema, found=newer[-1].revision, wanted=head.revision)


def _different(reason: str, schema: str, *, found: str, wanted: str) -> SchemaVerificationError:
    return SchemaVerificationError(reason=reason, schema=schema, found=found, wanted=wanted)
