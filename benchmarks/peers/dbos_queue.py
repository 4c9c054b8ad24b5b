"""DBOS through its queue: workflows of three steps are enqueued, an instance in the same process executes them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from attrs import define, evolve, field

from benchmarks.measure import Clock, Figure, measured, measured_in_threads
from benchmarks.peers import dbos_steps
from benchmarks.peers.dbos_client import Enqueued
from benchmarks.peers.dbos_steps import QUEUE, WATCH, DbosSteps
from benchmarks.place import Place
from benchmarks.workload import ARTICLES

#: How often a result is asked for that is not durable yet.
_POLL: Final = 0.02


@define
class DbosQueue:
    """An instance that executes what is enqueued, and the handles that it has given."""

    steps: DbosSteps
    _handles: dict[str, Any] = field(factory=dict)

    async def run_all(self, orders: Sequence[Enqueued], *, callers: int) -> Figure:
        """Enqueue coroutines from the event loop; once the last ones run, read every result."""

        async def begin() -> None:
            await measured(orders, self._enqueue_async, callers=callers)

        async def read() -> Figure:
            return await measured(orders, self._read_async, callers=callers)

        return await _ended(len(orders), begin, read)

    async def run_all_in_threads(self, orders: Sequence[Enqueued], *, callers: int) -> Figure:
        """Do the same with plain functions, from threads."""

        async def begin() -> None:
            measured_in_threads(orders, self._enqueue, callers=callers)

        async def read() -> Figure:
            return measured_in_threads(orders, self._read, callers=callers)

        return await _ended(len(orders), begin, read)

    async def wait_for(self, work: Enqueued) -> float:
        """Enqueue a workflow, and give the seconds until its first step began."""
        WATCH.expect(1)
        began = time.perf_counter()
        await self._enqueue_async(work)
        await WATCH.all_answered()
        await self._read_async(work)
        return WATCH.began_at - began

    def _enqueue(self, work: Enqueued) -> None:
        from dbos import DBOS, SetWorkflowID  # noqa: PLC0415 - only who measures it needs it

        with SetWorkflowID(work.workflow_id):
            self._handles[work.workflow_id] = DBOS.enqueue_workflow(QUEUE, self.steps.plain, work.order)

    async def _enqueue_async(self, work: Enqueued) -> None:
        from dbos import DBOS, SetWorkflowID  # noqa: PLC0415 - only who measures it needs it

        enqueue: Any = DBOS.enqueue_workflow_async
        with SetWorkflowID(work.workflow_id):
            self._handles[work.workflow_id] = await enqueue(QUEUE, self.steps.asynchronous, work.order)

    def _read(self, work: Enqueued) -> None:
        assert self._handles[work.workflow_id].get_result(polling_interval_sec=_POLL) == ARTICLES

    async def _read_async(self, work: Enqueued) -> None:
        assert await self._handles[work.workflow_id].get_result(polling_interval_sec=_POLL) == ARTICLES


async def _ended(count: int, begin: Callable[[], Any], read: Callable[[], Any]) -> Figure:
    """Nobody asks for results while workflows run: that would be so many statements more."""
    clock = Clock()
    WATCH.expect(count)
    await begin()
    await WATCH.all_answered()
    figure: Figure = await read()
    return evolve(figure, seconds=clock.seconds, processor_seconds=clock.processor_seconds)


@asynccontextmanager
async def opened(place: Place, *, callers: int, polling_interval: float) -> AsyncIterator[DbosQueue]:
    """Launch an instance that listens to a queue without limits, and register the queue."""
    from dbos import DBOS  # noqa: PLC0415 - only who measures it needs it

    async with dbos_steps.opened(place, callers=callers, listens=True) as steps:
        await DBOS.register_queue_async(QUEUE, polling_interval_sec=polling_interval, on_conflict="always_update")
        yield DbosQueue(steps)
