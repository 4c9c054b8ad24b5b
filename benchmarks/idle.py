"""How long a run waits for an idle worker: from before its submission until its first node begins."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from attrs import define, field, frozen
from rich.console import Console
from rich.table import Table
from sqlalchemy import URL

from agentruns import (
    AgentSubmissionKey,
    AgentWorkerOptions,
    Deployment,
    Finish,
    GraphBuilder,
    GraphNodeContext,
    OpenDeployment,
)
from benchmarks.place import OURS, place

_TENANT: Final = "idle"
_ANY: Final = {"type": "object"}
#: Longer and shorter than an interval of polling, so that submissions fall anywhere in it.
_PAUSES: Final = (0.05, 0.35)
_PATIENCE: Final = 60.0

#: The cases, and how the worker of each finds what is ready.
_CASES: Final = {
    "told (LISTEN)": AgentWorkerOptions(slots=4),
    "polling every 200 ms": AgentWorkerOptions(slots=4, listens=False),
}


@define
class Starts:
    """Hold the only node, and tell when it began."""

    deployment: Deployment = field(factory=lambda: Deployment(issuer="https://example.com/", subject="idle"))
    graph: GraphBuilder = field(factory=lambda: GraphBuilder("idle", "1.0.0", input=_ANY, state=_ANY, output=_ANY))
    _began: asyncio.Future[float] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.deployment.add(self.graph)
        self.graph.node(entry=True, terminal=True)(self.begin)

    async def begin(self, _context: GraphNodeContext) -> Finish:
        """Note the time."""
        self._began.set_result(time.perf_counter())
        return Finish({})

    async def wait_for(self, submitting: OpenDeployment) -> float:
        """Submit a run from another store than the worker's, and give the seconds until its node began."""
        self._began = asyncio.get_running_loop().create_future()
        request = submitting.request(self.graph, input={})
        began = time.perf_counter()
        await submitting.runs.submit(AgentSubmissionKey.generate(), request)
        async with asyncio.timeout(_PATIENCE):
            return await self._began - began


@frozen(kw_only=True)
class Waiting:
    """The times of one case, in seconds."""

    median: float
    p99: float

    @classmethod
    def of(cls, times: Sequence[float]) -> Waiting:
        """Sum up the times of single runs."""
        return cls(median=statistics.median(times), p99=statistics.quantiles(times, n=100, method="inclusive")[-1])


async def measure(base: URL, *, runs: int) -> dict[str, Waiting]:
    """Measure each case on a server that runs; there is one run at a time, and nothing else."""
    async with place(base) as here:
        return {name: await _measured(here.url(OURS), options, runs) for name, options in _CASES.items()}


async def _measured(url: URL, options: AgentWorkerOptions, runs: int) -> Waiting:
    starts = Starts()
    async with _opened(starts, url) as submitting, _opened(starts, url) as working, working.worker(options):
        await asyncio.sleep(1)
        for _ in range(5):  # prepared statements and caches
            await starts.wait_for(submitting)
        times = []
        for _ in range(runs):
            await asyncio.sleep(random.uniform(*_PAUSES))  # noqa: S311 - not a secret
            times.append(await starts.wait_for(submitting))
    return Waiting.of(times)


@asynccontextmanager
async def _opened(starts: Starts, url: URL) -> AsyncIterator[OpenDeployment]:
    async with starts.deployment.open(url, tenant=_TENANT) as opened:
        yield opened


def show(found: dict[str, Waiting]) -> None:
    """Write the table."""
    table = Table(title="from submission to the first node, idle worker")
    for column in ("the worker is", "median ms", "p99 ms"):
        table.add_column(column, justify="left" if column == "the worker is" else "right", no_wrap=True)
    for name, each in found.items():
        table.add_row(name, f"{1000 * each.median:.1f}", f"{1000 * each.p99:.1f}")
    Console().print(table)
