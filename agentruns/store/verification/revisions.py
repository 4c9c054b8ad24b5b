"""Verify that what was applied to a schema is this release's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import frozen
from sqlalchemy import Connection, LargeBinary, Row, text
from sqlalchemy.exc import DBAPIError

from agentruns.errors import SchemaVerificationError
from agentruns.store.failures import refusal
from agentruns.store.released import released_revisions
from agentruns.store.transient import sqlstate_of
from agentruns.store.verification.server import VerifiedServer, verify_server

_REVISIONS: Final = """
SELECT number, revision, checksum, oldest_code FROM "{schema}".applied_revisions ORDER BY number
"""
_NO_SUCH_COLUMN: Final = "42703"
#: No privilege, and no table: the latter went since the catalogue named it.
_REFUSED: Final = frozenset({"42501", "42P01"})


@frozen(kw_only=True)
class VerifiedRevisions:
    """Say which server it is, and what was applied.

    Attributes:
        revisions: in order, newer ones included.
        newer: those that this release does not know and may run beside.
    """

    server: VerifiedServer
    revisions: tuple[str, ...]
    newer: tuple[str, ...]


def verify_revisions(connection: Connection, *, schema: str, strict: bool = False) -> VerifiedRevisions:
    """Refuse a server and revisions that this release cannot work with, in two statements.

    For whoever only reads what a role may read; :func:`verify_schema` verifies the objects and the role as well.

    Args:
        connection: open, in autocommit or in a transaction.
        schema: the schema that holds the tables.
        strict: refuse every newer schema, even one that this release may run beside.

    Raises:
        SchemaVerificationError: ``unsupported_server``, ``not_migrated``, ``behind``, ``ahead``, ``tampered``,
            ``incomplete`` (the table itself) or ``missing_privileges``.
    """
    server = verify_server(connection, schema)
    rows = _applied(connection, schema)
    if not rows:
        raise SchemaVerificationError(reason="not_migrated", schema=schema)
    newer = _compare(rows, schema)
    if newer:
        _verify_newer(newer, schema, strict=strict)
    names = tuple(row.revision for row in rows)
    return VerifiedRevisions(server=server, revisions=names, newer=names[len(rows) - len(newer) :])


def _applied(connection: Connection, schema: str) -> Sequence[Row[Any]]:
    statement = text(_REVISIONS.format(schema=schema)).columns(checksum=LargeBinary())
    failure: DBAPIError | None = None
    try:
        return connection.execute(statement).all()
    except DBAPIError as error:
        failure = error
    # Raised outside the block: the driver's error carries the statement.
    state = sqlstate_of(failure)
    if state == _NO_SUCH_COLUMN:
        finding = "different table applied_revisions"
        raise SchemaVerificationError(reason="incomplete", schema=schema, findings=(finding,))
    raise refusal(failure, schema=schema) if state in _REFUSED else failure


def _compare(rows: Sequence[Row[Any]], schema: str) -> Sequence[Row[Any]]:
    """Match the rows with the release's own list and hand back those beyond it."""
    wanted = released_revisions()
    for position, row in enumerate(rows, start=1):
        if row.number != position:
            raise _refused("tampered", schema, found=row.revision, wanted=f"revision number {position}")
    for row, entry in zip(rows, wanted, strict=False):
        if row.revision != entry.revision:
            raise _refused("tampered", schema, found=row.revision, wanted=entry.revision)
        if bytes(row.checksum) != entry.checksum:
            found = f"{row.revision} {bytes(row.checksum).hex()}"
            raise _refused("tampered", schema, found=found, wanted=entry.checksum.hex())
    if len(rows) < len(wanted):
        raise _refused("behind", schema, found=rows[-1].revision, wanted=wanted[-1].revision)
    return rows[len(wanted) :]


def _verify_newer(newer: Sequence[Row[Any]], schema: str, *, strict: bool) -> None:
    """Run beside a newer schema only where each newer revision says that this release may."""
    head = released_revisions()[-1]
    if strict or any(row.oldest_code > head.number for row in newer):
        raise _refused("ahead", schema, found=newer[-1].revision, wanted=head.revision)


def _refused(reason: str, schema: str, *, found: str, wanted: str) -> SchemaVerificationError:
    return SchemaVerificationError(reason=reason, schema=schema, found=found, wanted=wanted)
