"""``agentruns runs cancel``."""

from __future__ import annotations

import click

from agentruns.cli import connection
from agentruns.cli.app import executables_of
from agentruns.cli.operators import decided, say_ids, show_mutation
from agentruns.cli.options import settings_of
from agentruns.cli.output import Output
from agentruns.cli.parameters import EVENT, FAILURE, RUN, TENANT
from agentruns.cli.root import Command
from agentruns.domain.failure import Failure, FailureCategory, NeverRetry
from agentruns.domain.failure_codes import OPERATOR_CANCELLED, ORIGIN_OPERATOR
from agentruns.domain.ids import EventId, FailureId, RunId
from agentruns.domain.operator_authority import OperatorAuthority
from agentruns.domain.scalars import TenantId
from agentruns.runtime.control import AgentRunMutation
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore


@click.command(cls=Command)
@click.argument("tenant", type=TENANT)
@click.argument("run", type=RUN)
@decided
@click.option("--event-id", type=EVENT, metavar="E", help="Of an earlier try, with its failure; else fresh.")
@click.option("--failure-id", type=FAILURE, metavar="F", help="Of an earlier try, with its event; else fresh.")
@click.pass_context
def cancel(
    context: click.Context,
    /,
    *,
    tenant: TenantId,
    run: RunId,
    authority: OperatorAuthority,
    event_id: EventId | None,
    failure_id: FailureId | None,
) -> None:
    """Ask for the end of a run. The reason becomes public with the run; who asked stays in the record.

    The run need not be deployed here. Whoever holds its lease stops, and confirms.
    """
    if (event_id is None) is not (failure_id is None):
        raise click.UsageError("an earlier try is repeated with both of its ids: --event-id and --failure-id")
    settings = settings_of(context)
    output = Output(settings)
    event, failure = event_id or EventId.generate(), _failure(failure_id or FailureId.generate(), authority)
    say_ids(output, event_id=event, failure_id=failure.id)

    async def work(store: AgentRunStore) -> AgentRunMutation:
        runs = DurableAgentRuns(store, executables_of(None))
        return await runs.request_cancellation(tenant, run, event_id=event, failure=failure, authority=authority)

    done = connection.use_store(settings, output, work)
    show_mutation(output, done, tenant_id=tenant, run_id=run, event_id=event, failure_id=failure.id)


def _failure(failure_id: FailureId, authority: OperatorAuthority) -> Failure:
    """Say publicly why, and nothing of who."""
    return Failure(
        id=failure_id,
        category=FailureCategory.CANCELLED,
        code=OPERATOR_CANCELLED,
        origin=ORIGIN_OPERATOR,
        message=authority.reason,
        retry_advice=NeverRetry(),
    )
