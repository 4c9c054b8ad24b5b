"""``agentruns runs explain``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
from sqlalchemy import Connection

from agentruns.cli import connection
from agentruns.cli.app import app_option
from agentruns.cli.options import settings_of
from agentruns.cli.output import Output
from agentruns.cli.parameters import RUN, TENANT
from agentruns.cli.root import Command
from agentruns.domain.explanation.explanation import RunExplanation
from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.operations.verification import verify_revisions
from agentruns.store.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from agentruns.runtime.deployment import Deployment

_REASON: Final = ("code", "sentence", "action")


@click.command(cls=Command)
@click.argument("tenant", type=TENANT)
@click.argument("run", type=RUN)
@app_option(required=False, help="The deployment that is to have the run's graph; without it that is not asked.")
@click.pass_context
def explain(context: click.Context, tenant: TenantId, run: RunId, deployment: Deployment | None) -> None:
    """Say why a run does not progress, and what to do about it.

    It verifies nothing and needs no application, so it answers for isolated and damaged runs as well.
    """
    settings = settings_of(context)
    output = Output(settings)
    digests = None if deployment is None else frozenset(deployment.build().executables.graph_digests)

    def work(reading: Connection) -> RunExplanation:
        verify_revisions(reading, schema=settings.schema)
        work = UnitOfWork(reading, schema=settings.schema)
        return work.explanations.of(tenant, run, graph_digests=digests)

    _show(output, connection.read(settings, output, work), tenant_id=tenant, run_id=run)


def _show(output: Output, explanation: RunExplanation, **ids: object) -> None:
    reasons = [
        {
            "code": reason.code.value,
            "sentence": reason.sentence,
            "action": reason.action,
            "needs_action": reason.needs_action,
        }
        for reason in explanation.reasons
    ]
    members: dict[str, object] = {
        **ids,
        "verdict": explanation.verdict.value,
        "observed_at": explanation.observed_at.to_datetime(),
        "next_action": explanation.next_action,
    }
    if output.is_json:
        output.document({**members, "reasons": reasons})
        return
    output.document(members)
    if reasons:
        output.lines(reasons, columns=_REASON)
