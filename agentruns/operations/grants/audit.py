"""Find every privilege of a role that its job does not need, and every one that it lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sqlalchemy import Connection, text

from agentruns.operations.grants.findings import Finding
from agentruns.operations.grants.preconditions import look
from agentruns.operations.grants.role_settings import changed_settings
from agentruns.operations.grants.roles import GrantedRoles
from agentruns.operations.grants.unnamed import granted_to_unnamed
from agentruns.operations.verification import verify_schema
from agentruns.store.privileges import Privilege, excess, expected, missing
from agentruns.store.privileges_held import PUBLIC, held

#: What objects that an owner makes later would carry, in this schema or in every one.
_DEFAULTS: Final = text("""
SELECT coalesce(r.rolname, 'PUBLIC') AS role, o.rolname AS owner, a.privilege_type AS action,
  CASE d.defaclobjtype WHEN 'r' THEN 'tables' ELSE 'routines' END AS kind,
  CASE d.defaclnamespace WHEN 0 THEN 'every schema' ELSE 'the schema' END AS place
FROM pg_catalog.pg_default_acl AS d JOIN pg_catalog.pg_roles AS o ON o.oid = d.defaclrole
CROSS JOIN LATERAL aclexplode(d.defaclacl) AS a LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = a.grantee
WHERE o.rolname = ANY (CAST(:owners AS name[])) AND a.grantee <> d.defaclrole
  AND (d.defaclnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = :schema)
       AND d.defaclobjtype IN ('r', 'f')
    OR d.defaclnamespace = 0 AND d.defaclobjtype = 'r')
""")

#: What everybody may set; a named role of whom that was said is not fit.
_PARAMETERS: Final = text("""
SELECT a.privilege_type || ' on ' || p.parname
FROM pg_catalog.pg_parameter_acl AS p CROSS JOIN LATERAL aclexplode(p.paracl) AS a WHERE a.grantee = 0
""")


def audit(connection: Connection, roles: GrantedRoles, *, schema: str = "agentruns") -> tuple[Finding, ...]:
    """Compare what the roles hold in effect with what their jobs need; nothing is changed.

    Grants to PUBLIC and to columns and what a membership brings count as a grant to the role does. So does what
    PUBLIC holds on its own, what others were granted who are not named, what the roles are, how their connections to
    the database are set, and what later tables would carry.

    Raises:
        RefusedError: ``unfit_for_grants``: a role does not exist, or has two jobs.
        SchemaVerificationError: the schema is not this release's.
    """
    situation = look(connection, roles, schema=schema)
    verify_schema(connection, schema=schema)
    found = list(situation.findings)
    for name, job in roles.jobs:
        # Who is an owner or a superuser was found; a list of all that follows from it would hide the rest.
        if name not in situation.all_powerful:
            found += _compared(name, expected(job), held(connection, schema=schema, role=name))
    found += _compared("PUBLIC", frozenset(), held(connection, schema=schema, role=PUBLIC))
    found += granted_to_unnamed(connection, [*situation.owners, *roles.names], schema=schema)
    found += changed_settings(connection, roles.names)
    found += _defaults(connection, situation.owners, schema)
    found += [Finding("PUBLIC", "parameter", subject) for subject in connection.execute(_PARAMETERS).scalars()]
    return tuple(sorted(found))


def _compared(role: str, wanted: frozenset[Privilege], having: frozenset[Privilege]) -> Iterator[Finding]:
    for privilege in missing(wanted, having):
        yield Finding(role, "missing", str(privilege))
    for privilege in excess(wanted, having):
        yield Finding(role, "grant_option" if privilege.grantable else "excess", str(privilege))


def _defaults(connection: Connection, owners: Sequence[str], schema: str) -> Iterator[Finding]:
    for row in connection.execute(_DEFAULTS, {"owners": list(owners), "schema": schema}):
        subject = f"{row.action} on later {row.kind} of {row.owner} in {row.place}"
        yield Finding(row.role, "default_privilege", subject)
