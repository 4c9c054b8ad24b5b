"""``agentruns tenants``: what tenants have, and how much of it may run at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click
from sqlalchemy import Connection, Row, select

from agentruns.cli import connection
from agentruns.cli.options import settings_of
from agentruns.cli.output import Output
from agentruns.cli.parameters import LIVE_LEASES, TENANT
from agentruns.cli.root import Group
from agentruns.cli.views import named, view
from agentruns.domain.scalars import TenantId
from agentruns.operations.verification import verify_revisions
from agentruns.runtime.store import AgentRunStore

_COLUMNS: Final = (
    "tenant_id",
    "active",
    "waiting",
    "cancellation_requested",
    "succeeded",
    "failed",
    "cancelled",
    "quarantined",
    "oldest_due_at",
    "live_leases",
    "maximum_live",
)


@click.group(cls=Group)
def tenants() -> None:
    """Count what tenants have, and limit how much of it may run at once."""


@tenants.command()
@click.argument("tenant", type=TENANT, required=False)
@click.pass_context
def stats(context: click.Context, tenant: TenantId | None) -> None:
    """Count the runs of each tenant that has some, or of one."""
    settings = settings_of(context)
    output = Output(settings)

    def work(reading: Connection) -> Sequence[Row[Any]]:
        verify_revisions(reading, schema=settings.schema)
        overview = select(view("tenant_overview", _COLUMNS, schema=settings.schema)).order_by(named("tenant_id"))
        return reading.execute(overview if tenant is None else overview.where(named("tenant_id") == tenant.text)).all()

    output.lines([row._asdict() for row in connection.read(settings, output, work)], columns=_COLUMNS)


@tenants.command()
@click.argument("tenant", type=TENANT)
@click.argument("maximum_live", type=LIVE_LEASES, metavar="N|none")
@click.pass_context
def limit(context: click.Context, tenant: TenantId, maximum_live: int | None) -> None:
    """Let at most N leases of a tenant live at once, over all workers, from the next claim on.

    Nothing that runs is interrupted.
    """
    settings = settings_of(context)
    output = Output(settings)

    async def work(store: AgentRunStore) -> None:
        await store.set_tenant_limit(tenant, maximum_live)

    connection.use_store(settings, output, work)
    output.document({"tenant_id": tenant, "maximum_live": maximum_live})
