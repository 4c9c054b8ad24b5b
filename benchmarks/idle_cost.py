"""What idle workers cost their server: statements, and time that its processes compute."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Final, TypeAlias

from attrs import frozen
from rich.console import Console
from rich.table import Table

from agentruns import AgentWorkerOptions, StoreOptions
from benchmarks.place import OURS, Place

#: Opens a store, and lets a worker work with it as long as the block lasts.
OpenWorker: TypeAlias = Callable[[AgentWorkerOptions, StoreOptions], AbstractAsyncContextManager[Any]]

#: By default a process has up to sixteen connections; an idle one needs one, and one to listen on.
_STORE: Final = StoreOptions(pool_size=2)
#: Seconds after which every statement of a worker's beginning is over, and its connections have told their statistics.
_SETTLED: Final = 12.0

_STATEMENTS: Final = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1"


@frozen(kw_only=True)
class IdleCost:
    """What some idle workers cost, beyond a server that nobody uses.

    Attributes:
        workers: each with a store and connections of its own.
        statements: of one worker in a second.
        computing: share of one processor that the server's processes take for all of them.
    """

    workers: int
    statements: float
    computing: float


async def measure(here: Place, open_worker: OpenWorker, *, workers: int, seconds: float) -> list[IdleCost]:
    """Measure one idle worker, and many of them."""
    nobody = await _cost(here, seconds)
    found = []
    for count in (1, workers):
        async with AsyncExitStack() as stack:
            for _ in range(count):
                await stack.enter_async_context(open_worker(AgentWorkerOptions(slots=4), _STORE))
            await asyncio.sleep(min(_SETTLED, seconds))
            statements, computing = await _cost(here, seconds)
        found.append(
            IdleCost(
                workers=count, statements=(statements - nobody[0]) / count, computing=max(0.0, computing - nobody[1])
            )
        )
    return found


async def _cost(here: Place, seconds: float) -> tuple[float, float]:
    """Give statements and computing time in a second, of everybody who uses the database."""
    loop = asyncio.get_running_loop()
    began, statements, computed = loop.time(), await _statements(here), await here.server_seconds()
    await asyncio.sleep(seconds)
    passed = loop.time() - began
    return (await _statements(here) - statements) / passed, (await here.server_seconds() - computed) / passed


async def _statements(here: Place) -> int:
    return int(await here.watcher.fetchval(_STATEMENTS, OURS))


def show(found: list[IdleCost]) -> None:
    """Write the table."""
    table = Table(title="what idle workers cost the server")
    for column in ("workers", "statements/s each", "of one processor, all together"):
        table.add_column(column, justify="right", no_wrap=True)
    for each in found:
        table.add_row(str(each.workers), f"{each.statements:.2f}", f"{100 * each.computing:.1f} %")
    Console().print(table)
