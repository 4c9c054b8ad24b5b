"""Execute the nodes of one committed batch, and commit each canonical prefix as it is complete."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, unique
from typing import Final

from agentruns.runtime.driver.node_task import NodeTask
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.runtime.driver.report import GraphDriveReport
from agentruns.runtime.shutdown import ShutdownSignal

_log: Final = logging.getLogger("agentruns.runtime.driver")

#: A complete prefix of a batch waits this long for more of it: a long sibling holds back nobody but those after it.
_PREFIX_WAIT: Final = 0.1


@unique
class BatchEnd(Enum):
    """Say how a batch ended."""

    FINISHED = "finished"
    STOPPED = "stopped"
    CANCELLED = "cancelled"


class BatchExecution:
    """Watch the nodes of a batch: first event wins.

    Attributes:
        tasks: those whose completion is not committed yet, in the order of their nodes.
    """

    def __init__(
        self,
        tasks: Sequence[NodeTask],
        *,
        options: DurableGraphDriverOptions,
        report: GraphDriveReport,
        commit_prefix: Callable[[Sequence[NodeTask]], Awaitable[bool]],
    ) -> None:
        self.tasks = list(tasks)
        self._started = list(tasks)
        self._abandoned: list[NodeTask] = []
        self._options = options
        self._report = report
        self._commit_prefix = commit_prefix
        self._prefix_since: float | None = None

    async def run(self, shutdown: ShutdownSignal, cancellation: Awaitable[None]) -> BatchEnd:
        """Wait for all nodes; a shutdown that stops, or a cancellation, ends the batch before."""
        stopping = asyncio.ensure_future(shutdown.wait_stopping())
        cancelling = asyncio.ensure_future(cancellation)
        try:
            return await self._watch(stopping, cancelling)
        finally:
            stopping.cancel()
            cancelling.cancel()
            await asyncio.gather(stopping, cancelling, return_exceptions=True)
            await self._abort()

    async def _watch(self, stopping: asyncio.Future[None], cancelling: asyncio.Future[None]) -> BatchEnd:
        while running := [task for task in self._started if task.end is None]:
            watched = {stopping, cancelling, *(task.task for task in running)}
            await asyncio.wait(watched, timeout=self._patience(running), return_when=asyncio.FIRST_COMPLETED)
            self._raise_what_no_node_may_swallow()
            if stopping.done():
                return BatchEnd.STOPPED
            if cancelling.done():
                cancelling.result()
                await self._grace()
                return BatchEnd.CANCELLED
            await self._time_out()
            if not await self._offer_prefix():
                return BatchEnd.CANCELLED
        return BatchEnd.FINISHED

    def _patience(self, running: Sequence[NodeTask]) -> float:
        """Wait until the next deadline of a node, or until a complete prefix has waited long enough."""
        patience = min(task.context.time_left for task in running)
        if self._prefix_since is not None:
            patience = min(patience, self._prefix_since + _PREFIX_WAIT - time.monotonic())
        return max(0.0, patience)

    def _raise_what_no_node_may_swallow(self) -> None:
        """Pass on what is no ``Exception``, a cancellation by others too: no completion is written for it."""
        for task in self._started:
            if task.task.done() and task.end is None:
                task.task.result()

    async def _time_out(self) -> None:
        for task in self._started:
            if task.end is None and task.context.time_left <= 0:
                task.time_out()
                await self._abort_one(task)

    async def _offer_prefix(self) -> bool:
        """Commit the ended nodes before the first one that still runs, once they have waited a little."""
        prefix = self._prefix()
        if not prefix or len(prefix) == len(self.tasks):
            return True
        now = time.monotonic()
        self._prefix_since = self._prefix_since or now
        if now < self._prefix_since + _PREFIX_WAIT:
            return True
        self._prefix_since = None
        goes_on = await self._commit_prefix(prefix)
        self.tasks = self.tasks[len(prefix) :]
        return goes_on

    def _prefix(self) -> list[NodeTask]:
        prefix: list[NodeTask] = []
        for task in self.tasks:
            if task.end is None:
                break
            prefix.append(task)
        return prefix

    async def _grace(self) -> None:
        """Let nodes that were asked to end do so by themselves."""
        running = [task for task in self._started if task.end is None]
        for task in running:
            task.context.signal()
        if running:
            grace = self._options.cancellation_grace_period.total_seconds()
            await asyncio.wait([task.task for task in running], timeout=grace)

    async def _abort(self) -> None:
        running = [task for task in self._started if not task.task.done() and task not in self._abandoned]
        await asyncio.gather(*(self._abort_one(task) for task in running))

    async def _abort_one(self, task: NodeTask) -> None:
        if await task.abort(wait=self._options.task_abort_wait.total_seconds()):
            return
        self._abandoned.append(task)
        self._report.abandoned_nodes.append(str(task.context.node_id))
        _log.warning(
            "a node did not end when it was aborted",
            extra={"run_id": str(task.context.run_id), "node_id": str(task.context.node_id)},
        )
