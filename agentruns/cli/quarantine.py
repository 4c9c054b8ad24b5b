"""``agentruns quarantine``: runs that are isolated, why, and their release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click
from sqlalchemy import Connection, Row, select

from agentruns.cli import connection
from agentruns.cli.options import settings_of
from agentruns.cli.output import Output
from agentruns.cli.parameters import QUARANTINE, RUN, TENANT
from agentruns.cli.quarantine_release import release
from agentruns.cli.root import Group
from agentruns.cli.views import named, view
from agentruns.domain.ids import QuarantineId, RunId
from agentruns.domain.scalars import TenantId
from agentruns.errors import NotFoundError
from agentruns.operations.verification import verify_revisions

PAGE: Final = 100
_COLUMNS: Final = (
    "tenant_id",
    "run_id",
    "quarantine_id",
    "quarantined_at",
    "cause_kind",
    "component",
    "epoch",
    "bytes",
    "digest",
    "released_at",
)
_LISTED: Final = ("run_id", "quarantine_id", "quarantined_at", "cause_kind", "component", "epoch", "released_at")


@click.group(cls=Group)
def quarantine() -> None:
    """List runs that are isolated, and let them go on."""


quarantine.add_command(release)


@quarantine.command(name="list")
@click.option("--tenant", type=TENANT, required=True, metavar="T", help="Tenant that owns the runs.")
@click.pass_context
def list_quarantines(context: click.Context, tenant: TenantId) -> None:
    """List a tenant's quarantines, a hundred at most: first those that stand, then those that were released last."""
    settings = settings_of(context)
    output = Output(settings)

    def work(reading: Connection) -> Sequence[Row[Any]]:
        verify_revisions(reading, schema=settings.schema)
        overview = view("quarantine_overview", _COLUMNS, schema=settings.schema)
        order = (named("released_at").desc().nulls_first(), named("quarantined_at"), named("quarantine_id"))
        found = select(overview).where(named("tenant_id") == tenant.text).order_by(*order)
        return reading.execute(found.limit(PAGE + 1)).all()

    rows = connection.read(settings, output, work)
    output.lines([row._asdict() for row in rows[:PAGE]], columns=_LISTED)
    if len(rows) > PAGE:
        output.say(f"There are more than {PAGE}")


@quarantine.command()
@click.argument("tenant", type=TENANT)
@click.argument("run", type=RUN)
@click.argument("quarantine_id", type=QUARANTINE, metavar="QUARANTINE")
@click.pass_context
def show(context: click.Context, tenant: TenantId, run: RunId, quarantine_id: QuarantineId) -> None:
    """Show why a run was isolated, and whether it was released."""
    settings = settings_of(context)
    output = Output(settings)

    def work(reading: Connection) -> Row[Any] | None:
        verify_revisions(reading, schema=settings.schema)
        overview = view("quarantine_overview", _COLUMNS, schema=settings.schema)
        conditions = [
            named("tenant_id") == tenant.text,
            named("run_id") == run.text,
            named("quarantine_id") == quarantine_id.text,
        ]
        return reading.execute(select(overview).where(*conditions)).one_or_none()

    found = connection.read(settings, output, work)
    if found is None:
        raise NotFoundError(kind="quarantine", tenant_id=tenant, id=quarantine_id)
    output.document(found._asdict())
