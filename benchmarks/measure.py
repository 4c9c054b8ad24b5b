"""Let a number of callers work through a list, each taking the next item when its last call has been answered."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from attrs import evolve, field, frozen

Item = TypeVar("Item")


@frozen(kw_only=True)
class Figure:
    """One measurement.

    Attributes:
        calls: how many calls were answered.
        seconds: from the first call to the last answer.
        processor_seconds: of this process, all threads together; other work on the machine changes it little.
        median: of the time from a call to its answer, in seconds; ``p95``: of the slowest twentieth the fastest.
        server_seconds: of the server's processes, where it was asked for.
    """

    calls: int
    seconds: float
    processor_seconds: float
    median: float
    p95: float
    server_seconds: float | None = None

    @property
    def rate(self) -> float:
        """Calls answered in a second."""
        return self.calls / self.seconds

    @property
    def processor_time(self) -> float:
        """Seconds that this process computed for one call."""
        return self.processor_seconds / self.calls

    @property
    def work(self) -> float | None:
        """Seconds that this process and the server computed for one call."""
        if self.server_seconds is None:
            return None
        return (self.processor_seconds + self.server_seconds) / self.calls

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

    clock = Clock()
    await _worked_through(items[warm_up:], timed, callers)
    return clock.figure(times)


def measured_in_threads(
    items: Sequence[Item], call: Callable[[Item], object], *, callers: int, warm_up: int = 0
) -> Figure:
    """Do the same with a thread for each caller; the event loop stands still meanwhile."""
    times: list[float] = []

    def timed(item: Item) -> None:
        began = time.perf_counter()
        call(item)
        times.append(time.perf_counter() - began)

    with ThreadPoolExecutor(callers) as threads:
        _worked_through_in_threads(items[:warm_up], call, threads, callers)
        clock = Clock()
        _worked_through_in_threads(items[warm_up:], timed, threads, callers)
        return clock.figure(times)


@frozen
class Clock:
    """Begin to measure when it is made."""

    _began: float = field(factory=time.perf_counter, init=False)
    _used: float = field(factory=time.process_time, init=False)

    @property
    def seconds(self) -> float:
        """Give the time since."""
        return time.perf_counter() - self._began

    @property
    def processor_seconds(self) -> float:
        """Give how long this process has computed since."""
        return time.process_time() - self._used

    def figure_of_one(self) -> Figure:
        """Sum up the single call since."""
        seconds = self.seconds
        used = self.processor_seconds
        return Figure(calls=1, seconds=seconds, processor_seconds=used, median=seconds, p95=seconds)

    def figure(self, times: Sequence[float]) -> Figure:
        """Sum up the times of single calls, and how long all of them took together."""
        return Figure(
            calls=len(times),
            seconds=self.seconds,
            processor_seconds=self.processor_seconds,
            median=statistics.median(times),
            p95=statistics.quantiles(times, n=20, method="inclusive")[-1],
        )


def summed(figures: Sequence[Figure], *, each: int) -> Figure:
    """Put single calls together that others came between; every one of them was for ``each`` items."""
    return Figure(
        calls=each * len(figures),
        seconds=sum(one.seconds for one in figures),
        processor_seconds=sum(one.processor_seconds for one in figures),
        median=statistics.median(one.seconds for one in figures),
        p95=statistics.quantiles([one.seconds for one in figures], n=20, method="inclusive")[-1],
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


def _worked_through_in_threads(
    items: Sequence[Item], call: Callable[[Item], object], threads: ThreadPoolExecutor, callers: int
) -> None:
    left = iter(items)

    def caller() -> None:
        for item in left:
            call(item)

    for done in [threads.submit(caller) for _ in range(callers)]:
        done.result()
