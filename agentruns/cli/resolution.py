"""``agentruns waits resolve``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentruns.cli import connection
from agentruns.cli.app import app_option, executables_of
from agentruns.cli.operators import decided, say_ids, show_mutation
from agentruns.cli.options import settings_of
from agentruns.cli.output import Output
from agentruns.cli.parameters import EVENT, RUN, SCOPE, TENANT, WAIT
from agentruns.cli.root import Command
from agentruns.domain.ids import EventId, RunId, WaitId
from agentruns.domain.operator_authority import OperatorAuthority
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scalars import Scope, TenantId
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.waits import WaitResolver
from agentruns.domain.wire import from_json
from agentruns.errors import SchemaUnavailableError
from agentruns.runtime.control import AgentRunMutation
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.waits import DurableRunWaits

if TYPE_CHECKING:
    from agentruns.runtime.deployment import Deployment

_FORM = '{"schema": {"id", "version", "digest"}, "kind", "data"}'


@click.command(cls=Command)
@click.argument("tenant", type=TENANT)
@click.argument("run", type=RUN)
@click.argument("wait", type=WAIT)
@decided
@click.option(
    "--payload-file",
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    required=True,
    metavar="F",
    help=f"File with the answer: {_FORM}.",
)
@click.option("--scope", "scopes", type=SCOPE, multiple=True, metavar="S", help="What the principal was granted.")
@click.option("--event-id", type=EVENT, metavar="E", help="Of an earlier try; else fresh.")
@app_option(required=False, help="The deployment that has the answer's schema, unless it is one of the library's.")
@click.pass_context
def resolve(
    context: click.Context,
    /,
    *,
    tenant: TenantId,
    run: RunId,
    wait: WaitId,
    authority: OperatorAuthority,
    payload_file: Path,
    scopes: tuple[Scope, ...],
    event_id: EventId | None,
    deployment: Deployment | None,
) -> None:
    """Answer an interrupt; with the last of its waits the run goes on. The first answer stands."""
    settings = settings_of(context)
    output = Output(settings)
    executables = executables_of(deployment)
    answer = _answer(payload_file, executables, has_app=deployment is not None)
    resolver = WaitResolver(principal=authority.principal, scopes=ScopeSet(frozenset(scopes)), reason=authority.reason)
    event = event_id or EventId.generate()
    say_ids(output, event_id=event)

    async def work(store: AgentRunStore) -> AgentRunMutation:
        service = DurableRunWaits(store, executables)
        return await service.resolve_interrupt(tenant, run, wait, event_id=event, resolution=answer, resolver=resolver)

    done = connection.use_store(settings, output, work)
    show_mutation(output, done, tenant_id=tenant, run_id=run, wait_id=wait, event_id=event)


def _answer(file: Path, executables: ExecutableGraphRegistry, *, has_app: bool) -> JournalPayload:
    """Read the answer, and say early when nothing here knows its schema.

    Raises:
        InvalidValueError: the file holds no payload.
        SchemaUnavailableError: the application has not the schema.
    """
    payload: JournalPayload = from_json(file.read_bytes(), JournalPayload)
    try:
        executables.schemas.require(payload.schema)
    except SchemaUnavailableError:
        if has_app:
            raise
    else:
        return payload
    raise click.UsageError("the answer's schema is none of the library's: name the application with --app MODULE:NAME")
