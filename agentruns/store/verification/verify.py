"""Verify a schema in five steps: the server, revisions that are there, revisions that fit, objects, privileges."""

from __future__ import annotations

import logging
from typing import Final

from attrs import frozen
from sqlalchemy import Connection
from sqlalchemy.exc import InternalError

from agentruns.errors import InvalidOptionError, SchemaVerificationError
from agentruns.store.released import Catalogue, released_catalogue, released_revisions
from agentruns.store.verification.catalogue import read_catalogue
from agentruns.store.verification.comparison import Differences, compare
from agentruns.store.verification.revisions import VerifiedRevisions, verify_revisions
from agentruns.store.verification.role import PrivilegeMode, VerifiedRole, tell_of_more, verify_role

_log: Final = logging.getLogger("agentruns.store.verification")
_LOOKS: Final = 3
_MORE_OBJECTS: Final = "the schema holds objects that no revision of this release made"


@frozen(kw_only=True)
class SchemaReport:
    """Say what was verified.

    Attributes:
        schema: the database schema.
        server_version: as the server names itself.
        revisions: what has been applied, in order, newer ones included.
        newer: revisions that this release does not know and may run beside.
        warnings: what does no harm and should not be so, a line each.
    """

    schema: str
    server_version: str
    revisions: tuple[str, ...]
    newer: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def is_ahead(self) -> bool:
        """The schema is newer than this release."""
        return bool(self.newer)


def verify_schema(
    connection: Connection,
    *,
    schema: str = "agentruns",
    strict: bool = False,
    privileges: PrivilegeMode = "warn",
    role: VerifiedRole = "runtime",
) -> SchemaReport:
    """Refuse a database that this release cannot work with, in a handful of statements that change nothing.

    Asks for no privilege that a runtime lacks. What it warns of is in the report and in the log.

    Args:
        connection: open, in autocommit or in a transaction, which can be used afterwards unless a privilege is missing.
        schema: the schema that holds the tables.
        strict: refuse every newer schema, even one that this release may run beside.
        privileges: ``warn`` of what the role may do beyond its needs, or ``require`` that there is nothing.
        role: what the current role is held against: ``runtime``, or ``operator``, which may release quarantines too.

    Raises:
        SchemaVerificationError: ``unsupported_server``, ``not_migrated``, ``behind``, ``ahead``, ``tampered``,
            ``incomplete``, ``missing_privileges`` or ``excess_privileges``; the last three name all findings.
    """
    if privileges not in ("warn", "require"):
        raise InvalidOptionError(option="privileges", value=ascii(privileges), bound="warn or require")
    if role not in ("runtime", "operator"):
        raise InvalidOptionError(option="role", value=ascii(role), bound="runtime or operator")
    found = _verified(connection, schema=schema, strict=strict, privileges=privileges, role=role)
    is_owner = found.applied.server.is_owner
    if found.excess:
        tell_of_more(found.excess, schema=schema, role=role, is_owner=is_owner)
    if found.warnings:
        _log.warning(_MORE_OBJECTS, extra={"schema": schema, "warnings": found.warnings})
    return SchemaReport(
        schema=schema,
        server_version=found.applied.server.version,
        revisions=found.applied.revisions,
        newer=found.applied.newer,
        warnings=(*found.warnings, *([found.excess] if found.excess else [])),
    )


def verify_schema_again(connection: Connection, *, schema: str) -> None:
    """Refuse what :func:`verify_schema` does, for whoever has verified before: what does no harm was told then.

    Raises:
        SchemaVerificationError: as there.
    """
    _verified(connection, schema=schema, strict=False, privileges="warn", role="runtime")


@frozen(kw_only=True)
class _Verified:
    """Hold what was read and not refused: objects and privileges that are more than there should be."""

    applied: VerifiedRevisions
    warnings: tuple[str, ...]
    excess: str


def _verified(
    connection: Connection, *, schema: str, strict: bool, privileges: PrivilegeMode, role: VerifiedRole
) -> _Verified:
    applied = verify_revisions(connection, schema=schema, strict=strict)
    released = released_catalogue(applied.server.quoted_schema)
    differences = _differences(connection, schema, released, may_hold_more=bool(applied.newer))
    if differences.findings:
        raise _incomplete(applied, schema, differences.findings)
    is_owner = applied.server.is_owner
    excess = verify_role(connection, schema=schema, role=role, released=released, is_owner=is_owner, mode=privileges)
    return _Verified(applied=applied, warnings=differences.warnings, excess=excess)


def _differences(connection: Connection, schema: str, released: Catalogue, *, may_hold_more: bool) -> Differences:
    """Compare what is there, and look again at what seems wrong.

    PostgreSQL lists objects as they were and prints definitions as they are now. What somebody changes between, as
    REINDEX CONCURRENTLY does, looks different for once, or cannot be printed.
    """
    for _ in range(_LOOKS - 1):
        try:
            differences = compare(read_catalogue(connection, schema=schema), released, may_hold_more=may_hold_more)
        except InternalError:
            continue
        if not differences.findings:
            return differences
    return compare(read_catalogue(connection, schema=schema), released, may_hold_more=may_hold_more)


def _incomplete(applied: VerifiedRevisions, schema: str, findings: tuple[str, ...]) -> SchemaVerificationError:
    """A newer schema that lacks what this release needs is one that this release cannot run beside."""
    if not applied.newer:
        return SchemaVerificationError(reason="incomplete", schema=schema, findings=findings)
    found, wanted = applied.newer[-1], released_revisions()[-1].revision
    return SchemaVerificationError(reason="ahead", schema=schema, found=found, wanted=wanted, findings=findings)
