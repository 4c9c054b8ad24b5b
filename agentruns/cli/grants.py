"""``agentruns grants``: what each role may do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from attrs import asdict
from sqlalchemy import Connection

from agentruns.cli import connection
from agentruns.cli.failures import FINDINGS
from agentruns.cli.options import settings_of
from agentruns.cli.output import Output
from agentruns.cli.root import Group
from agentruns.operations import grants as operation
from agentruns.operations.grants import GrantedRoles, GrantPlan

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_JOBS: Final = {
    "retention": "Role that removes whole runs.",
    "reader": "Role that sees overviews.",
    "operator": "Role that does what runtime does, and releases quarantines.",
    "runtime": "Role that submits, reads and drives runs.",
}
_COLUMNS: Final = ("role", "problem", "subject")
_FOR_THE_DBA: Final = "For somebody who may alter the roles:"


@click.group(cls=Group)
def grants() -> None:
    """Grant each role what it needs and nothing else, and audit that."""


def _roles(function: Decorated) -> Decorated:
    """Add the options that name the roles; a job whose role is not named is left out."""
    evidence = click.option("--evidence", is_flag=True, help="Let the reader see tables and decoded bodies too.")
    function = evidence(function)
    for job, meaning in _JOBS.items():
        function = click.option(f"--{job}", metavar="ROLE", help=meaning)(function)
    return function


@grants.command(name="print")
@_roles
@click.pass_context
def print_(context: click.Context, /, **named: Any) -> None:
    """Write what `apply` does, as a script of one transaction."""
    settings, roles = settings_of(context), GrantedRoles(**named)
    output = Output(settings)
    planned = connection.read(settings, output, lambda reading: operation.plan(reading, roles, schema=settings.schema))
    if output.is_json:
        output.document(asdict(planned))
    else:
        output.text(_script(planned))


@grants.command()
@_roles
@click.pass_context
def apply(context: click.Context, /, **named: Any) -> None:
    """Take everything from the roles and from PUBLIC, and grant each role what it needs.

    Run it as the owner of the schema, after every upgrade.
    """
    settings, roles = settings_of(context), GrantedRoles(**named)
    output = Output(settings)

    def work(granting: Connection) -> GrantPlan:
        with granting.begin():
            return operation.apply(granting, roles, schema=settings.schema)

    planned = connection.migrate(settings, output, work)
    if output.is_json:
        output.document({"schema": settings.schema, "roles": roles.names, **asdict(planned)})
        return
    output.document({"schema": settings.schema, "roles": roles.names, "statements": len(planned.statements)})
    if planned.for_the_dba:
        output.say(_FOR_THE_DBA)
        output.text(_lines(planned.for_the_dba))


@grants.command()
@_roles
@click.pass_context
def audit(context: click.Context, /, **named: Any) -> None:
    """Find what the roles may do and need not, and what they need and may not."""
    settings, roles = settings_of(context), GrantedRoles(**named)
    output = Output(settings)
    found = connection.read(settings, output, lambda reading: operation.audit(reading, roles, schema=settings.schema))
    output.lines(map(asdict, found), columns=_COLUMNS)
    context.exit(FINDINGS if found else 0)


def _script(planned: GrantPlan) -> str:
    """Write what `psql` runs; lines for somebody else are comments, whatever their names hold."""
    script = _lines(("BEGIN", *planned.statements, "COMMIT"))
    if not planned.for_the_dba:
        return script
    others = "\n".join((_FOR_THE_DBA, _lines(planned.for_the_dba)))
    return "\n".join((script, *(f"-- {line}" for line in others.splitlines())))


def _lines(statements: tuple[str, ...]) -> str:
    return "\n".join(f"{statement};" for statement in statements)
