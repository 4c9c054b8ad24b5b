"""Let a number of callers work through a list, each taking the next item when its last call has been answered."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from attrs import evolve, frozen

Item = TypeVar("Item")


@frozen(kw_only=True)
class Figure:
    """One measurement.

    Attributes:
        calls: how many calls were answered.
        seconds: from the first call to the last answer.
        median: of the time from a call to its answer, in seconds; ``p95``: of the slowest twentieth the fastest.
    """

    calls: int
    seconds: float
    median: float
    p95: float

    @property
    def rate(self) -> float:
        """Calls answered in a second."""
        return self.calls / self.seconds

    def of_sets(self, size: int) -> Figure:
        """Count each of the ``size`` items that every call was for."""
        return evolve(self, calls=size * self.calls)


async def measured(
    items: Sequence[Item], call: Callable[[Item], Awaitable[object]], *, callers: int, warm_up: int = 0
) -> Figure:
    """Call once for each item, and take the time of all but the first ``warm_up``."""
    await _worked_through(items[:warm_up], call, callers)
    times: list[float] = []

    async def timed(item: Item) -> None:
        began = time.perf_counter()
        await call(item)
        times.append(time.perf_counter() - began)

    began = time.perf_counter()
    await _worked_through(items[warm_up:], timed, callers)
    return figure(times, time.perf_counter() - began)


def figure(times: Sequence[float], seconds: float) -> Figure:
    """Sum up the times of single calls."""
    return Figure(
        calls=len(times),
        seconds=seconds,
        median=statistics.median(times),
        p95=statistics.quantiles(times, n=20, method="inclusive")[-1],
    )


def middle(figures: Sequence[Figure]) -> Figure:
    """Choose the round of the middle rate."""
    return sorted(figures, key=lambda each: each.rate)[len(figures) // 2]


async def _worked_through(items: Sequence[Item], call: Callable[[Item], Awaitable[object]], callers: int) -> None:
    left = iter(items)

    async def caller() -> None:
        for item in left:
            await call(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(caller())
