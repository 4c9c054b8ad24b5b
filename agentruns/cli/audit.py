"""``agentruns audit``: hold what is stored against every law that it can show."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

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
from agentruns.operations.audit import AuditProgress, AuditSample, AuditScope, audit_runs
from agentruns.operations.verification import verify_revisions

if TYPE_CHECKING:
    from agentruns.runtime.deployment import Deployment

_APP: Final = app_option(
    required=False, help="The deployment whose reducers and schemas are asked; without it states are taken as recorded."
)
_SAMPLE: Final = click.option(
    "--sample",
    "share",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="P",
    help="Only a random share of the runs, such as 0.05.",
)
_SEED: Final = click.option(
    "--seed",
    type=click.IntRange(0, 2**31 - 1),
    metavar="N",
    help="Draw the sample that the total of an earlier audit names by this seed.",
)


def _sampled(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a sample, and what they say as ``sample``."""

    @wraps(command)
    def call(*arguments: Any, share: float | None, seed: int | None, **options: Any) -> Any:
        return command(*arguments, sample=_sample(share, seed), **options)

    return _SAMPLE(_SEED(call))


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
@_sampled
@_APP
@click.pass_context
def of_tenant(
    context: click.Context,
    tenant: TenantId,
    resume_after: RunId | None,
    sample: AuditSample | None,
    deployment: Deployment | None,
) -> None:
    """Audit all runs of a tenant, or a sample of them, and the graphs and limits that it has beside them."""
    _audited(context, AuditScope.tenant(tenant, after_run=resume_after, sample=sample), deployment)


@audit.command("all")
@_sampled
@_APP
@click.pass_context
def of_all(context: click.Context, sample: AuditSample | None, deployment: Deployment | None) -> None:
    """Audit the runs of all tenants, or a sample of them, the cycles that share turns, and the schema's own guards."""
    _audited(context, AuditScope(sample=sample), deployment)


def _sample(share: float | None, seed: int | None) -> AuditSample | None:
    if share is None:
        if seed is not None:
            raise click.UsageError("--seed is of a --sample")
        return None
    return AuditSample(share=share) if seed is None else AuditSample(share=share, seed=seed)


class _StoppedError(Exception):
    """A signal has come, and the batch under way is over."""


def _audited(context: click.Context, scope: AuditScope, deployment: Deployment | None) -> None:
    settings = settings_of(context)
    output = Output(settings)
    executables = None if deployment is None else deployment.build().executables
    with stopping(output) as signals, AuditDisplay(output, scope.sample) as display:

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
