"""``agentruns audit``: hold what is stored against every law that it can show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
from sqlalchemy.ext.asyncio import AsyncConnection

from agentruns.cli import connection
from agentruns.cli.app import app_option
from agentruns.cli.audit_display import AuditDisplay
from agentruns.cli.failures import FINDINGS, STOPPED
from agentruns.cli.options import settings_of
from agentruns.cli.output import Output
from agentruns.cli.parameters import RUN, TENANT
from agentruns.cli.root import Group
from agentruns.cli.stopping import stopping
from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.operations.audit import EVERYTHING, AuditProgress, AuditScope, audit_runs
from agentruns.operations.verification import verify_revisions

if TYPE_CHECKING:
    from agentruns.runtime.deployment import Deployment

_APP: Final = app_option(
    required=False, help="The deployment whose reducers and schemas are asked; without it states are taken as recorded."
)


@click.group(cls=Group)
def audit() -> None:
    """Read everything that is stored of runs, say what contradicts itself, and write nothing.

    The first SIGINT or SIGTERM stops after the batch under way.
    """


@audit.command("run")
@click.argument("tenant", type=TENANT)
@click.argument("run", type=RUN)
@_APP
@click.pass_context
def of_run(context: click.Context, tenant: TenantId, run: RunId, deployment: Deployment | None) -> None:
    """Audit one run."""
    _audited(context, AuditScope.run(tenant, run), deployment)


@audit.command("tenant")
@click.argument("tenant", type=TENANT)
@click.option(
    "--resume-after", type=RUN, metavar="RUN", help="Only the runs after this one: the last of a stopped audit."
)
@_APP
@click.pass_context
def of_tenant(
    context: click.Context, tenant: TenantId, resume_after: RunId | None, deployment: Deployment | None
) -> None:
    """Audit all runs of a tenant, and the graphs and limits that it has beside them."""
    _audited(context, AuditScope.tenant(tenant, after_run=resume_after), deployment)


@audit.command("all")
@_APP
@click.pass_context
def of_all(context: click.Context, deployment: Deployment | None) -> None:
    """Audit the runs of all tenants, the cycles that share turns, and the schema's own guards."""
    _audited(context, EVERYTHING, deployment)


class _StoppedError(Exception):
    """A signal has come, and the batch under way is over."""


def _audited(context: click.Context, scope: AuditScope, deployment: Deployment | None) -> None:

    settings = settings_of(context)
    output = Output(settings)
    executables = None if deployment is None else deployment.build().executables
    with stopping(output) as signals, AuditDisplay(output) as display:

        def tell(progress: AuditProgress) -> None:
            display.advance(progress)
            if signals and not progress.is_complete:
                raise _StoppedError

        async def work(reading: AsyncConnection) -> None:
            await reading.run_sync(lambda each: verify_revisions(each, schema=settings.schema))
            await reading.rollback()
            found = audit_runs(reading, scope, executables=executables, schema=settings.schema, on_progress=tell)
            async for finding in found:
                display.add(finding)

        try:
            connection.read_through(settings, output, work)
        except _StoppedError:
            display.stop()
    display.show()
    context.exit(STOPPED if display.is_stopped else FINDINGS if display.progress.findings else 0)
