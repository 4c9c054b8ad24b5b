"""What it costs a submission that listening workers are told of it: with and without, in turn, in one run."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from typing import Final

from attrs import frozen
from rich.console import Console
from rich.table import Table

from agentruns import AgentSubmissionKey, GraphBuilder, OpenDeployment

#: Submissions of a round that count nowhere: statements are prepared, and caches filled.
_UNCOUNTED: Final = 20


@frozen(kw_only=True)
class Submitting:
    """How one store submits.

    Attributes:
        alone: median of the milliseconds of one submission, with one caller.
        together: submissions in a second with many callers, the median of the rounds.
    """

    alone: float
    together: float


async def measure(
    stores: dict[str, OpenDeployment], graph: GraphBuilder, *, rounds: int, submits: int, callers: int
) -> dict[str, Submitting]:
    """Let the stores take turns, each round in another order."""
    alone: dict[str, list[float]] = {name: [] for name in stores}
    together: dict[str, list[float]] = {name: [] for name in stores}
    for app in stores.values():
        await _alone(app, graph, _UNCOUNTED)
    for number in range(rounds):
        names = list(stores) if number % 2 else list(reversed(stores))
        for name in names:
            alone[name] += await _alone(stores[name], graph, submits // 4)
            together[name].append(await _together(stores[name], graph, submits, callers))
    return {name: _summed_up(alone[name], together[name]) for name in stores}


def _summed_up(alone: Sequence[float], together: Sequence[float]) -> Submitting:
    return Submitting(alone=1000 * statistics.median(alone), together=statistics.median(together))


async def _alone(app: OpenDeployment, graph: GraphBuilder, count: int) -> list[float]:
    times = []
    for _ in range(count):
        request = app.request(graph, input={})
        began = time.perf_counter()
        await app.runs.submit(AgentSubmissionKey.generate(), request)
        times.append(time.perf_counter() - began)
    return times


async def _together(app: OpenDeployment, graph: GraphBuilder, count: int, callers: int) -> float:
    waiting = [app.request(graph, input={}) for _ in range(count)]

    async def call() -> None:
        while waiting:
            await app.runs.submit(AgentSubmissionKey.generate(), waiting.pop())

    began = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(callers)))
    return count / (time.perf_counter() - began)


def show(found: dict[str, Submitting]) -> None:
    """Write the table, and what being told costs."""
    table = Table(title="what it costs a submission that workers are told")
    for column in ("the store", "alone, median ms", "together, 1/s"):
        table.add_column(column, justify="left" if column == "the store" else "right", no_wrap=True)
    for name, each in found.items():
        table.add_row(name, f"{each.alone:.2f}", f"{each.together:,.0f}")
    Console().print(table)
