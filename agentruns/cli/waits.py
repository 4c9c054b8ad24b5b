"""``agentruns waits``: what runs wait for, and the answers of people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click
from sqlalchemy import Connection, Row, select

from agentruns.cli import connection
from agentruns.cli.options import settings_of
from agentruns.cli.output import Output
from agentruns.cli.parameters import RUN, TENANT
from agentruns.cli.resolution import resolve
from agentruns.cli.root import Group
from agentruns.cli.views import named, view
from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.operations.verification import verify_revisions

PAGE: Final = 100
_COLUMNS: Final = ("tenant_id", "run_id", "wait_id", "kind", "registered_at", "due_at", "expires_at", "bytes", "digest")
_LISTED: Final = ("run_id", "wait_id", "kind", "registered_at", "due_at", "expires_at")


@click.group(cls=Group)
def waits() -> None:
    """List what runs wait for, and answer it."""


waits.add_command(resolve)


@waits.command(name="list")
@click.option("--tenant", type=TENANT, required=True, metavar="T", help="Tenant that owns the runs.")
@click.option("--run", type=RUN, metavar="RUN", help="Only what this run waits for.")
@click.pass_context
def list_waits(context: click.Context, tenant: TenantId, run: RunId | None) -> None:
    """List what a tenant's runs wait for now, in the order of the runs' ids, at most a hundred of them."""
    settings = settings_of(context)
    output = Output(settings)
    conditions = [named("tenant_id") == tenant.text, named("status") == "outstanding"]
    if run is not None:
        conditions.append(named("run_id") == run.text)

    def work(reading: Connection) -> Sequence[Row[Any]]:
        verify_revisions(reading, schema=settings.schema)
        overview = view("wait_overview", _COLUMNS, schema=settings.schema)
        statement = select(overview).where(*conditions).order_by("run_id", "registered_at", "wait_id")
        return reading.execute(statement.limit(PAGE + 1)).all()

    rows = connection.read(settings, output, work)
    output.lines([row._asdict() for row in rows[:PAGE]], columns=_LISTED)
    if len(rows) > PAGE:
        output.say("There are more: name a run with --run")
