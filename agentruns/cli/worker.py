"""``agentruns worker``."""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import click

from agentruns.cli.app import load_app
from agentruns.cli.failures import STOPPED
from agentruns.cli.options import Settings, database_url_text, settings_of
from agentruns.cli.output import Output
from agentruns.cli.root import Command
from agentruns.errors import InvalidOptionError

if TYPE_CHECKING:
    from sqlalchemy import URL

    from agentruns.runtime.deployment import Deployment
    from agentruns.runtime.shutdown import ShutdownSignal
    from agentruns.runtime.worker import AgentWorkerOptions

_MOST_SLOTS: Final = 64
_LONGEST_DRAIN: Final = 300.0


@click.command(cls=Command)
@click.option(
    "--app",
    "deployment",
    metavar="MODULE:NAME",
    callback=load_app,
    required=True,
    help="The deployment whose graphs are run.",
)
@click.option(
    "--tenant", "tenants", multiple=True, help="Tenant whose runs are driven; by default all that have the graphs."
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
@click.pass_context
def worker(context: click.Context, deployment: Deployment, tenants: tuple[str, ...], slots: int, drain: float) -> None:
    """Drive runs until told to stop."""
    from agentruns.cli import connection  # noqa: PLC0415 - the help needs none of this
    from agentruns.runtime.worker import AgentWorkerOptions  # noqa: PLC0415 - see above

    settings = settings_of(context)
    output = Output(settings)
    options = AgentWorkerOptions(slots=slots, drain_timeout=timedelta(seconds=drain))
    with connection.database(settings, output) as url:
        if database_url_text(settings) is None:
            _refuse_data_that_may_be_lost()
        is_stopped = asyncio.run(_work(url, deployment, tenants, settings=settings, options=options, output=output))
    context.exit(STOPPED if is_stopped else 0)


async def _work(
    url: URL,
    deployment: Deployment,
    tenants: tuple[str, ...],
    *,
    settings: Settings,
    options: AgentWorkerOptions,
    output: Output,
) -> bool:
    """Work until a signal; answer whether running nodes were stopped by a second one."""
    from agentruns.runtime.shutdown import ShutdownSignal  # noqa: PLC0415 - the help needs none of this
    from agentruns.store.options import StoreOptions  # noqa: PLC0415 - see above

    shutdown = ShutdownSignal()
    seen = _listen(shutdown, output)
    store_options = StoreOptions(schema=settings.schema)
    async with deployment.open(url, tenant=tenants or None, options=store_options) as app:
        named = ", ".join(map(str, app.tenants))
        output.say(f"Working for {named}; slots: {options.slots}, graphs: {len(app.graphs.definitions)}")
        await app.make_worker(options).run(shutdown)
    output.say("All leases are given back")
    return len(seen) > 1


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
