"""``agentruns worker``."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import click

from agentruns.cli.app import app_option
from agentruns.cli.failures import STOPPED
from agentruns.cli.options import Settings, connection_settings, database_url_text, settings_of
from agentruns.cli.output import Output
from agentruns.cli.parameters import ADDRESS, TENANT
from agentruns.cli.root import Command
from agentruns.errors import InvalidOptionError

if TYPE_CHECKING:
    from sqlalchemy import URL

    from agentruns.domain.scalars import TenantId
    from agentruns.runtime.deployment import Deployment
    from agentruns.runtime.shutdown import ShutdownSignal
    from agentruns.runtime.worker import AgentWorker
    from agentruns.runtime.worker_options import AgentWorkerOptions

LISTEN_URL_VARIABLE: Final = "AGENTRUNS_LISTEN_URL"
_MOST_SLOTS: Final = 64
_LONGEST_DRAIN: Final = 300.0


@click.command(cls=Command)
@app_option(required=True, help="The deployment whose graphs are run.")
@click.option(
    "--tenant",
    "tenants",
    type=TENANT,
    multiple=True,
    metavar="T",
    help="Tenant whose runs are driven; by default every tenant that has some, also one that comes later.",
)
@click.option(
    "--slots", type=click.IntRange(1, _MOST_SLOTS), default=4, show_default=True, help="Runs that are driven at once."
)
@click.option(
    "--drain",
    type=click.FloatRange(0.0, _LONGEST_DRAIN),
    default=30.0,
    show_default=True,
    help="Seconds that running nodes get after the first SIGTERM or SIGINT; the second one stops them.",
)
@click.option(
    "--health",
    type=ADDRESS,
    metavar="[HOST:]PORT",
    help="Answer HTTP probes of /live and /ready here; on the loopback address unless a host is named.",
)
@click.pass_context
def worker(
    context: click.Context,
    /,
    *,
    deployment: Deployment,
    tenants: tuple[TenantId, ...],
    slots: int,
    drain: float,
    health: tuple[str, int] | None,
) -> None:
    """Drive runs until told to stop.

    AGENTRUNS_LISTEN_URL names a direct connection for wake-ups, where the database's own ends at a pooler.
    """
    from agentruns.cli import connection  # noqa: PLC0415 - the help needs none of this
    from agentruns.runtime.worker_options import AgentWorkerOptions  # noqa: PLC0415 - see above

    settings = settings_of(context)
    output = Output(settings)
    listen_url = os.environ.get(LISTEN_URL_VARIABLE) or None
    options = AgentWorkerOptions(slots=slots, drain_timeout=timedelta(seconds=drain), listen_url=listen_url)
    with connection.database(settings, output) as url:
        if database_url_text(settings) is None:
            _refuse_data_that_may_be_lost()
        is_stopped = asyncio.run(
            _work(url, deployment, tenants, settings=settings, options=options, output=output, health=health)
        )
    context.exit(STOPPED if is_stopped else 0)


async def _work(
    url: URL,
    deployment: Deployment,
    tenants: tuple[TenantId, ...],
    *,
    settings: Settings,
    options: AgentWorkerOptions,
    output: Output,
    health: tuple[str, int] | None,
) -> bool:
    """Work until a signal; answer whether running nodes were stopped by a second one."""
    from agentruns.cli.worker_display import display_of  # noqa: PLC0415 - the help needs none of this
    from agentruns.runtime.shutdown import ShutdownSignal  # noqa: PLC0415 - see above
    from agentruns.store.options import StoreOptions  # noqa: PLC0415 - see above

    shutdown = ShutdownSignal()
    seen = _listen(shutdown, output)
    store_options = StoreOptions(schema=settings.schema, settings=connection_settings())
    worker: AgentWorker | None = None
    async with (
        _answering(health, lambda: worker, output),
        deployment.open(url, tenant=tenants or None, options=store_options) as app,
    ):
        named = "every tenant" if app.tenants is None else ", ".join(map(str, app.tenants))
        output.say(f"Working for {named}; slots: {options.slots}, graphs: {len(app.graphs.definitions)}")
        display = display_of(output, clock=app.store.clock, shutdown=shutdown)
        worker = app.make_worker(options, on_event=display.on_event)
        async with display.showing(worker):
            await worker.run(shutdown)
    output.say("All leases are given back")
    return len(seen) > 1


@asynccontextmanager
async def _answering(
    address: tuple[str, int] | None, worker_of: Callable[[], AgentWorker | None], output: Output
) -> AsyncIterator[None]:
    """Answer probes where they were asked for, from before the database is opened until everything is given back."""
    if address is None:
        yield
        return
    from agentruns.runtime.health_endpoint import HealthEndpoint  # noqa: PLC0415 - only where it is asked for
    from agentruns.runtime.worker_health import WorkerHealth, WorkerStatus  # noqa: PLC0415 - see above

    def health() -> WorkerHealth:
        worker = worker_of()
        return WorkerHealth(status=WorkerStatus.STARTING) if worker is None else worker.health

    host, port = address
    async with HealthEndpoint(health, host=host, port=port) as endpoint:
        output.say(f"Health: http://{endpoint.address}/live and /ready")
        yield


def _listen(shutdown: ShutdownSignal, output: Output) -> list[signal.Signals]:
    """Drain at the first signal, stop at the second; the signals that came are collected."""
    loop = asyncio.get_running_loop()
    seen: list[signal.Signals] = []

    def handle(number: signal.Signals) -> None:
        seen.append(number)
        if len(seen) == 1:
            output.say(f"{number.name}: nothing further is started; a second signal stops what runs")
            shutdown.drain()
        else:
            shutdown.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handle, number)
    return seen


def _refuse_data_that_may_be_lost() -> None:
    """Refuse an embedded server that has run without durability: what it acknowledged may be gone."""
    from agentruns.operations.embedded import EmbeddedServer  # noqa: PLC0415 - only without a URL

    status = EmbeddedServer().status()
    if not status.is_durable:
        bound = "a directory whose server has always been durable"
        raise InvalidOptionError(option="data_dir", reason="not_durable", value=str(status.data_dir), bound=bound)
