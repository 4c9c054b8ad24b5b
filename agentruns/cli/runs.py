"""``agentruns runs``: runs as the overviews show them, without anything private."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click
from sqlalchemy import Connection, Row, select

from agentruns.cli import connection
from agentruns.cli.cancellation import cancel
from agentruns.cli.explanation import explain
from agentruns.cli.options import settings_of
from agentruns.cli.output import Output
from agentruns.cli.parameters import RUN, TENANT
from agentruns.cli.root import Group
from agentruns.cli.views import named, view
from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.domain.status import RunStatus
from agentruns.errors import RunNotFoundError
from agentruns.operations.verification import verify_revisions

PAGE: Final = 100
_STATUSES: Final = [status.value for status in RunStatus if status is not RunStatus.PENDING]
_RUN_COLUMNS: Final = (
    "tenant_id",
    "run_id",
    "status",
    "revision",
    "superstep",
    "events",
    "agent_name",
    "agent_version",
    "graph_name",
    "graph_version",
    "graph_definition_digest",
    "lease_epoch",
    "lease_expires_at",
    "next_wake_up_at",
    "agent_deadline_at",
    "outstanding_waits",
    "quarantined_at",
    "admitted_at",
    "changed_at",
    "head_recorded_at",
    "run_age",
    "status_age",
)
_NODE_COLUMNS: Final = (
    "superstep",
    "node_id",
    "attempt",
    "attempt_id",
    "epoch",
    "status",
    "started_at",
    "ended_at",
    "bytes",
    "digest",
    "retry_not_before",
)
_LISTED: Final = ("run_id", "status", "superstep", "events", "agent_name", "graph_name", "lease_epoch", "admitted_at")
_ATTEMPTS: Final = ("superstep", "node_id", "attempt", "epoch", "status", "started_at", "ended_at", "bytes")


@click.group(cls=Group)
def runs() -> None:
    """List runs, show them, say why they do not progress, and ask for their end."""


runs.add_command(cancel)
runs.add_command(explain)


@runs.command(name="list")
@click.option("--tenant", type=TENANT, required=True, metavar="T", help="Tenant that owns the runs.")
@click.option("--status", type=click.Choice(_STATUSES), help="Only runs of this status.")
@click.option("--after", type=RUN, metavar="RUN", help="Only runs after this one, in the order of their ids.")
@click.pass_context
def list_runs(context: click.Context, tenant: TenantId, status: str | None, after: RunId | None) -> None:
    """List a tenant's runs, oldest first, a hundred at a time."""
    settings = settings_of(context)
    output = Output(settings)
    conditions = [named("tenant_id") == tenant.text]
    if status is not None:
        conditions.append(named("status") == status)
    if after is not None:
        conditions.append(named("run_id") > after.text)

    def work(reading: Connection) -> Sequence[Row[Any]]:
        verify_revisions(reading, schema=settings.schema)
        overview = view("run_overview", _RUN_COLUMNS, schema=settings.schema)
        return reading.execute(select(overview).where(*conditions).order_by("run_id").limit(PAGE + 1)).all()

    rows = connection.read(settings, output, work)
    output.lines([row._asdict() for row in rows[:PAGE]], columns=_LISTED)
    if len(rows) > PAGE:
        output.say(f"There are more: --after {rows[PAGE - 1].run_id}")


@runs.command()
@click.argument("tenant", type=TENANT)
@click.argument("run", type=RUN)
@click.pass_context
def show(context: click.Context, tenant: TenantId, run: RunId) -> None:
    """Show one run and the attempts of its nodes."""
    settings = settings_of(context)
    output = Output(settings)

    def work(reading: Connection) -> tuple[Row[Any] | None, Sequence[Row[Any]]]:
        verify_revisions(reading, schema=settings.schema)
        conditions = [named("tenant_id") == tenant.text, named("run_id") == run.text]
        overview = view("run_overview", _RUN_COLUMNS, schema=settings.schema)
        attempts = view("node_overview", _NODE_COLUMNS, schema=settings.schema)
        order = ("superstep", "node_id", "attempt")
        return (
            reading.execute(select(overview).where(*conditions)).one_or_none(),
            reading.execute(select(attempts).where(*conditions).order_by(*order)).all(),
        )

    found, attempts = connection.read(settings, output, work)
    if found is None:
        raise RunNotFoundError(tenant_id=tenant, id=run)
    _show(output, found._asdict(), [row._asdict() for row in attempts])


def _show(output: Output, run: dict[str, Any], attempts: list[dict[str, Any]]) -> None:
    if output.is_json:
        output.document({**run, "attempts": attempts})
        return
    output.document(run)
    if attempts:
        output.lines(attempts, columns=_ATTEMPTS)
