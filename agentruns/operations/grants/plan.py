"""Plan the statements that grant, and run them in one transaction."""

from __future__ import annotations

from attrs import frozen
from sqlalchemy import Connection, text

from agentruns.migrations.api import require_transactions
from agentruns.operations.grants.preconditions import Situation, look, refuse_for
from agentruns.operations.grants.roles import GrantedRoles
from agentruns.operations.grants.statements import Target, grant, revoke, settings
from agentruns.operations.verification import verify_schema
from agentruns.store.privileges import expected


@frozen(kw_only=True)
class GrantPlan:
    """Hold the statements of one transaction.

    Attributes:
        statements: what the current role runs, in their order.
        for_the_dba: settings of roles that the current role may not alter.
    """

    statements: tuple[str, ...]
    for_the_dba: tuple[str, ...]


def plan(connection: Connection, roles: GrantedRoles, *, schema: str = "agentruns") -> GrantPlan:
    """Say what :func:`apply` would do now; nothing is changed.

    Raises:
        RefusedError: ``unfit_for_grants``: a role or the ownership is not what grants need.
        SchemaVerificationError: the schema is not this release's.
    """
    situation = look(connection, roles, schema=schema)
    refuse_for(situation.findings)
    verify_schema(connection, schema=schema)
    return _planned(situation, roles, schema)


def apply(connection: Connection, roles: GrantedRoles, *, schema: str = "agentruns") -> GrantPlan:
    """Take everything from the roles and from everybody, and grant each role what its job needs.

    All of it is in the transaction of the connection, which the caller commits: others see all or nothing. A second
    time changes nothing. Repeat it after every upgrade, since new tables carry no privilege.

    Args:
        connection: of the owner of the schema, and not in autocommit.
        roles: who gets what.
        schema: the schema.

    Raises:
        RefusedError: ``unfit_for_grants``: a role or the ownership is not what grants need.
        SchemaVerificationError: the schema is not this release's.
    """
    require_transactions(connection)
    situation = look(connection, roles, schema=schema)
    refuse_for([*situation.findings, *situation.strangers])
    verify_schema(connection, schema=schema)
    planned = _planned(situation, roles, schema)
    for statement in planned.statements:
        connection.execute(text(statement.replace(":", r"\:")))  # a role's name may hold a colon
    return planned


def _planned(situation: Situation, roles: GrantedRoles, schema: str) -> GrantPlan:
    target = Target(schema=schema, owner=situation.owners[0], database=situation.database)
    granted = [line for name, job in roles.jobs for line in grant(target, name, expected(job))]
    alterable = [name for name in roles.names if name in situation.alterable]
    others = [name for name in roles.names if name not in situation.alterable]
    return GrantPlan(
        statements=(*revoke(target, roles.names), *granted, *settings(target, alterable)),
        for_the_dba=tuple(settings(target, others)),
    )
