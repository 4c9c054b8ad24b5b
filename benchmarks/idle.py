"""Idle workers: how long a run waits for one, what they cost, and what it costs a submission to tell them of it."""

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
    StoreOptions,
)
from benchmarks import idle_cost, notifying
from benchmarks.peers import dbos_queue
from benchmarks.place import OURS, Place, place

_TENANT: Final = "idle"
_OTHERS: Final = "others"
_ANY: Final = {"type": "object"}
#: Longer and shorter than an interval of polling, so that submissions fall anywhere in it.
_PAUSES: Final = (0.1, 1.2)
_PATIENCE: Final = 60.0
#: Seconds between two looks of DBOS into a queue, by default.
_DBOS_POLLS: Final = 1.0

#: The cases, and how the worker of each finds what is ready.
_TOLD: Final = "told (LISTEN)"
_CASES: Final = {
    _TOLD: AgentWorkerOptions(slots=4),
    "polling every second": AgentWorkerOptions(slots=4, listens=False),
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


@frozen(kw_only=True)
class Sizes:
    """How much is measured.

    Attributes:
        runs: that wait for a worker, one at a time.
        workers: that are idle at once.
        seconds: for which idle workers are watched.
        rounds: of submissions with and without notifications.
        submits: in a round.
        callers: at once.
    """

    runs: int = 100
    workers: int = 50
    seconds: int = 30
    rounds: int = 8
    submits: int = 800
    callers: int = 16


@frozen(kw_only=True)
class Idle:
    """What was measured."""

    waiting: dict[str, Waiting]
    costs: list[idle_cost.IdleCost]
    submitting: dict[str, notifying.Submitting]


async def measure(base: URL, sizes: Sizes) -> Idle:
    """Measure on a server that runs and has nothing else to do."""
    async with place(base) as here:
        url = here.url(OURS)
        waiting = {name: await _measured(url, options, sizes.runs) for name, options in _CASES.items()}
        costs = await idle_cost.measure(
            here, lambda *options: _worker(url, *options), workers=sizes.workers, seconds=sizes.seconds
        )
        return Idle(waiting=waiting, costs=costs, submitting=await _submitting(url, sizes))


@asynccontextmanager
async def _worker(url: URL, options: AgentWorkerOptions, store: StoreOptions) -> AsyncIterator[None]:
    async with _opened(Starts(), url, store) as working, working.worker(options):
        yield


async def _submitting(url: URL, sizes: Sizes) -> dict[str, notifying.Submitting]:
    """Submit beside a worker that listens and serves another tenant: it hears of every run, and claims none."""
    starts, others = Starts(), Starts()
    async with (
        others.deployment.open(url, tenant=_OTHERS) as working,
        working.worker(AgentWorkerOptions(slots=4)),
        _opened(starts, url) as telling,
        _opened(starts, url, StoreOptions(notifies=False)) as silent,
    ):
        await asyncio.sleep(1)
        return await notifying.measure(
            {"tells": telling, "is silent": silent},
            starts.graph,
            rounds=sizes.rounds,
            submits=sizes.submits,
            callers=sizes.callers,
        )


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


async def measure_waiting(here: Place, runs: int) -> Waiting:
    """Measure how long runs wait for an idle worker that listens."""
    return await _measured(here.url(OURS), _CASES[_TOLD], runs)


async def measure_dbos(here: Place, runs: int) -> Waiting:
    """Measure the same for an idle DBOS that looks into its queue as often as it does by default."""
    times = []
    async with dbos_queue.opened(here, callers=4, polling_interval=_DBOS_POLLS) as peer:
        for number, work in enumerate(peer.steps.orders(range(2 + runs))):
            await asyncio.sleep(random.uniform(*_PAUSES))  # noqa: S311 - not a secret
            seconds = await peer.wait_for(work)
            if number >= 2:  # before, its thread for the queue begins
                times.append(seconds)
    return Waiting.of(times)


@asynccontextmanager
async def _opened(starts: Starts, url: URL, options: StoreOptions | None = None) -> AsyncIterator[OpenDeployment]:
    async with starts.deployment.open(url, tenant=_TENANT, options=options) as opened:
        yield opened


def show(found: Idle) -> None:
    """Write the tables."""
    _show_waiting(found.waiting)
    idle_cost.show(found.costs)
    notifying.show(found.submitting)


def _show_waiting(found: dict[str, Waiting]) -> None:
    table = Table(title="from submission to the first node, idle worker")
    for column in ("the worker is", "median ms", "p99 ms"):
        table.add_column(column, justify="left" if column == "the worker is" else "right", no_wrap=True)
    for name, each in found.items():
        table.add_row(name, f"{1000 * each.median:.1f}", f"{1000 * each.p99:.1f}")
    Console().print(table)
