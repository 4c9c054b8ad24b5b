"""Look at the roles and at who owns the objects, before anything is granted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from attrs import frozen
from sqlalchemy import Connection, Row, text

from agentruns.errors import RefusedError
from agentruns.operations.grants.findings import Finding
from agentruns.operations.grants.roles import GrantedRoles

_ATTRIBUTES: Final = ("SUPERUSER", "CREATEROLE", "CREATEDB", "REPLICATION", "BYPASSRLS")

_HERE: Final = text("SELECT current_user AS role, current_database() AS database")
_ROLES: Final = text("""
SELECT r.rolname AS name,
  ARRAY[r.rolsuper, r.rolcreaterole, r.rolcreatedb, r.rolreplication, r.rolbypassrls] AS attributes,
  ARRAY(SELECT g.rolname FROM pg_catalog.pg_auth_members AS m JOIN pg_catalog.pg_roles AS g ON g.oid = m.roleid
        WHERE m.member = r.oid ORDER BY g.rolname) AS memberships,
  ARRAY(SELECT a.privilege_type || ' on ' || p.parname
        FROM pg_catalog.pg_parameter_acl AS p CROSS JOIN LATERAL aclexplode(p.paracl) AS a
        WHERE a.grantee = r.oid ORDER BY 1) AS parameters,
  EXISTS (SELECT FROM pg_catalog.pg_database WHERE datname = current_database() AND datdba = r.oid) AS owns_database,
  r.oid = c.oid OR c.rolsuper
    OR c.rolcreaterole AND pg_has_role(c.oid, r.oid, 'MEMBER WITH ADMIN OPTION') AS may_be_altered
FROM pg_catalog.pg_roles AS r, pg_catalog.pg_roles AS c
WHERE c.rolname = current_user AND r.rolname = ANY (CAST(:names AS name[]))
""")
_OWNERS: Final = text("""
WITH space AS (SELECT oid, nspowner FROM pg_catalog.pg_namespace WHERE nspname = :schema)
SELECT o.rolname AS name, o.rolsuper AS is_superuser, pg_has_role(current_user, o.oid, 'USAGE') AS is_ours
FROM pg_catalog.pg_roles AS o
WHERE o.oid IN (
  SELECT nspowner FROM space
  UNION SELECT c.relowner FROM space AS s JOIN pg_catalog.pg_class AS c ON c.relnamespace = s.oid
  UNION SELECT p.proowner FROM space AS s JOIN pg_catalog.pg_proc AS p ON p.pronamespace = s.oid
)
ORDER BY o.rolname
""")


@frozen(kw_only=True)
class Situation:
    """Hold what was looked at.

    Attributes:
        database: the database's name.
        owners: the roles that own the schema and what is in it; one, as it should be.
        all_powerful: named roles that hold everything, whatever is granted.
        alterable: named roles whose settings the current role may change.
        findings: what forbids to grant.
        strangers: the current role, unless it may act as the owner.
    """

    database: str
    owners: tuple[str, ...]
    all_powerful: frozenset[str]
    alterable: frozenset[str]
    findings: tuple[Finding, ...]
    strangers: tuple[Finding, ...]


def look(connection: Connection, roles: GrantedRoles, *, schema: str) -> Situation:
    """Look at the roles and the owners in three statements that change nothing.

    Raises:
        RefusedError: a role does not exist, or has two jobs.
    """
    rows = connection.execute(_ROLES, {"names": sorted(set(roles.names))}).all()
    refuse_for(_unusable(roles.names, {row.name for row in rows}))
    owners = connection.execute(_OWNERS, {"schema": schema}).all()
    here = connection.execute(_HERE).one()
    owning = {row.name for row in owners}
    return Situation(
        database=here.database,
        owners=tuple(row.name for row in owners),
        all_powerful=frozenset(row.name for row in rows if row.name in owning or row.attributes[0]),
        alterable=frozenset(row.name for row in rows if row.may_be_altered),
        findings=tuple(sorted([*_unfit(rows, owning), *_unfit_owners(owners)])),
        strangers=tuple(
            Finding(here.role, "ownership", f"may not act as the owner {row.name}") for row in owners if not row.is_ours
        ),
    )


def refuse_for(findings: Iterable[Finding]) -> None:
    """Refuse because of all that was found.

    Raises:
        RefusedError: something was.
    """
    found = "; ".join(map(str, findings))
    if found:
        raise RefusedError(reason="unfit_for_grants", found=found)


def _unusable(names: Sequence[str], existing: set[str]) -> Iterator[Finding]:
    for name, count in Counter(names).items():
        if name not in existing:
            yield Finding(name, "absent", "there is no such role")
        if count > 1:
            yield Finding(name, "named_twice", "each job needs a role of its own")


def _unfit(roles: Sequence[Row[Any]], owning: set[str]) -> Iterator[Finding]:
    for role in roles:
        if role.name in owning:
            yield Finding(role.name, "ownership", "owns the schema or objects in it")
        if role.owns_database:
            yield Finding(role.name, "ownership", "owns the database")
        for attribute, is_set in zip(_ATTRIBUTES, role.attributes, strict=True):
            if is_set:
                yield Finding(role.name, "attribute", attribute)
        for group in role.memberships:
            yield Finding(role.name, "membership", group)
        for parameter in role.parameters:
            yield Finding(role.name, "parameter", parameter)


def _unfit_owners(owners: Sequence[Row[Any]]) -> Iterator[Finding]:
    for owner in owners:
        if owner.is_superuser:
            yield Finding(owner.name, "ownership", "is a superuser and owns the schema or objects in it")
        if len(owners) > 1:
            yield Finding(owner.name, "ownership", "is one of several owners; one role must own everything")
