"""A worker of the demo, in a process of its own: ``python -m agentruns.cli.demo_worker TENANT SCHEMA [HELD_NODE]``.

It writes a line for each node that it enters, and works until its standard input ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Final

from agentruns.cli.demo_agent import Entered, triage_agent
from agentruns.cli.failures import report
from agentruns.cli.options import DATABASE_URL_VARIABLE, Format
from agentruns.runtime.context import GraphNodeContext
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.store.options import StoreOptions

#: Of the worker that is killed: short, so that nobody waits long for the next one to be allowed to take over.
LEASE: Final = timedelta(seconds=3)
_POLL: Final = timedelta(milliseconds=100)


def announcing(held: str | None) -> Entered:
    """Tell the parent which node begins; in its first attempt the held one goes no further."""

    async def entered(context: GraphNodeContext) -> None:
        with suppress(OSError):  # a parent that has gone is noticed by the end of standard input
            print(context.node_id, context.attempt, flush=True)  # noqa: T201 - the parent reads it
        if str(context.node_id) == held and context.attempt == 1:
            await asyncio.Event().wait()

    return entered


async def work(url: str, *, tenant: str, schema: str, held: str | None) -> None:
    """Drive the tenant's runs until standard input ends."""
    agent = triage_agent(announcing(held))
    lease = StoreOptions().lease_duration if held is None else LEASE
    options = StoreOptions(schema=schema, lease_duration=lease, pool_size=4)
    driver_options = DurableGraphDriverOptions(lease_renewal_interval=lease / 6).with_parallel_node_limit(2)
    async with agent.deployment.open(url, tenant=tenant, options=options) as app:
        worker = app.make_worker(AgentWorkerOptions(slots=1, poll_interval=_POLL), driver_options=driver_options)
        shutdown = ShutdownSignal()
        threading.Thread(target=_stop_at_end, args=(shutdown,), daemon=True).start()
        await worker.run(shutdown)


def _stop_at_end(shutdown: ShutdownSignal) -> None:
    """Stop when nobody holds the other end of standard input any more."""
    sys.stdin.buffer.read()
    shutdown.stop()


def main(arguments: list[str]) -> int:
    """Work, and say in one sentence why it did not work."""
    tenant, schema, *held = arguments
    url = os.environ[DATABASE_URL_VARIABLE]
    try:
        asyncio.run(work(url, tenant=tenant, schema=schema, held=held[0] if held else None))
    except Exception as error:  # noqa: BLE001 - whatever it was, one sentence
        return report(error, Format.TABLE)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
