"""``agentruns graphs``: what tenants have, as pictures too, and whether an application has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
from attrs import asdict
from sqlalchemy import Connection

from agentruns.cli import connection
from agentruns.cli.app import app_option
from agentruns.cli.failures import FINDINGS
from agentruns.cli.options import Settings, settings_of
from agentruns.cli.output import Output
from agentruns.cli.painted_runs import PaintedRun, painted_run
from agentruns.cli.parameters import DIGEST, RUN, TENANT
from agentruns.cli.root import Group
from agentruns.domain.digests import Digest
from agentruns.domain.graph.definition import CompiledGraph
from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.domain.wire import to_wire
from agentruns.errors import NotFoundError
from agentruns.operations.verification import verify_revisions
from agentruns.store.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from agentruns.runtime.deployment import Deployment

_LISTED: Final = ("definition_digest", "name", "version", "published_at", "live_runs")
_MISSING: Final = ("tenant_id", "definition_digest", "name", "version", "live_runs")


@click.group(cls=Group)
def graphs() -> None:
    """List graphs, draw them, and check that an application has what runs need."""


@graphs.command(name="list")
@click.option("--tenant", type=TENANT, required=True, metavar="T", help="Tenant that has the graphs.")
@click.option("--in-use", is_flag=True, help="Only graphs that a live run pins.")
@click.pass_context
def list_graphs(context: click.Context, tenant: TenantId, in_use: bool) -> None:
    """List a tenant's graphs by name, and how many live runs pin each."""
    settings = settings_of(context)
    output = Output(settings)
    found = connection.read(settings, output, lambda reading: _work(reading, settings).graphs.published(tenant))
    rows = [{"tenant_id": tenant, **asdict(each, recurse=False)} for each in found if each.live_runs or not in_use]
    output.lines(rows, columns=_LISTED)


@graphs.command()
@click.argument("tenant", type=TENANT)
@click.argument("digest", type=DIGEST)
@click.option("--run", type=RUN, metavar="RUN", help="Paint on it where this run stands.")
@click.pass_context
def show(context: click.Context, tenant: TenantId, digest: Digest, run: RunId | None) -> None:
    """Write a graph as Mermaid text, or its definition as JSON."""
    settings = settings_of(context)
    output = Output(settings)

    def work(reading: Connection) -> tuple[CompiledGraph | None, PaintedRun | None]:
        found = _work(reading, settings).graphs.find(tenant, digest)
        return found, None if run is None else painted_run(reading, tenant, run, schema=settings.schema)

    graph, painted = connection.read(settings, output, work)
    if graph is None:
        raise NotFoundError(kind="graph", tenant_id=tenant, id=digest)
    if painted is not None and painted.definition_digest != digest:
        raise click.UsageError(f"the run is one of another graph: {painted.definition_digest}")
    _show(output, graph, painted)


@graphs.command()
@app_option(required=True, help="The deployment that is to hold them.")
@click.pass_context
def check(context: click.Context, deployment: Deployment) -> None:
    """Find the graphs that live runs pin and the application does not have: nobody would drive those runs."""
    settings = settings_of(context)
    output = Output(settings)
    held = frozenset(deployment.build().executables.graph_digests)
    pinned = connection.read(settings, output, lambda reading: _work(reading, settings).graphs.pinned())
    missing = [each for each in pinned if each.definition_digest not in held]
    output.lines([asdict(each, recurse=False) for each in missing], columns=_MISSING)
    output.say(f"Graphs that live runs pin: {len(pinned)}; missing here: {len(missing)}")
    context.exit(FINDINGS if missing else 0)


def _work(reading: Connection, settings: Settings) -> UnitOfWork:
    """Read as the store does, once the schema is known to be this release's."""
    verify_revisions(reading, schema=settings.schema)
    return UnitOfWork(reading, schema=settings.schema)


def _show(output: Output, graph: CompiledGraph, painted: PaintedRun | None) -> None:
    if output.is_json:
        output.document({"definition": to_wire(graph), "run": None if painted is None else painted.document})
        return
    if painted is not None:
        output.say(f"Run {painted.run_id}: {painted.status}, superstep {painted.superstep}")
    output.text(graph.to_mermaid(marks={} if painted is None else painted.marks))
