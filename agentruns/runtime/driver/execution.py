"""Execute the nodes of one committed batch, and commit each canonical prefix as it is complete."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from enum import Enum, unique
from typing import Any, Final

from agentruns.runtime.driver.node_task import NodeTask
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.runtime.driver.report import GraphDriveReport
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.telemetry.counts import node_abandoned

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
        self._aborts: dict[NodeTask, asyncio.Task[None]] = {}
        self._options = options
        self._report = report
        self._commit_prefix = commit_prefix
        self._prefix_since: float | None = None
        self._has_changed: asyncio.Event

    async def run(self, shutdown: ShutdownSignal, cancellation: Callable[[], Coroutine[Any, Any, None]]) -> BatchEnd:
        """Wait for all nodes; a shutdown that stops, or a cancellation, ends the batch before."""
        try:
            await asyncio.sleep(0)
            if all(task.end is not None for task in self._started):
                # Who waits for nothing has ended in one turn of the event loop, and need not be watched.
                return BatchEnd.STOPPED if shutdown.is_stopping else BatchEnd.FINISHED
            return await self._watched(shutdown, cancellation())
        finally:
            await self._abort()

    async def _watched(self, shutdown: ShutdownSignal, cancellation: Coroutine[Any, Any, None]) -> BatchEnd:
        self._has_changed = asyncio.Event()
        cancelling = asyncio.ensure_future(cancellation)
        for each in (cancelling, *(task.task for task in self._started if task.end is None)):
            each.add_done_callback(self._note)
        with shutdown.waking(self._has_changed, stops=True):
            try:
                return await self._watch(shutdown, cancelling)
            finally:
                cancelling.cancel()
                await asyncio.gather(cancelling, return_exceptions=True)

    def _note(self, _ended: asyncio.Future[Any]) -> None:
        self._has_changed.set()

    async def _watch(self, shutdown: ShutdownSignal, cancelling: asyncio.Future[None]) -> BatchEnd:
        while running := self._running():
            if not await self._offer_prefix():
                return await self._grace(shutdown)
            await self._change(self._patience(running))
            self._check()
            if shutdown.is_stopping:
                return BatchEnd.STOPPED
            if cancelling.done():
                cancelling.result()
                return await self._grace(shutdown)
            self._time_out()
        return BatchEnd.FINISHED

    def _running(self) -> list[NodeTask]:
        return [task for task in self._started if task.end is None and task not in self._aborts]

    async def _change(self, patience: float) -> None:
        """Wait until a node, a shutdown or a cancellation has something to say, or for as long as nobody has."""
        timer = asyncio.get_running_loop().call_later(patience, self._has_changed.set)
        try:
            await self._has_changed.wait()
        finally:
            timer.cancel()
        # Whatever set it is to be seen already, and is looked at next.
        self._has_changed.clear()

    def _patience(self, running: Sequence[NodeTask]) -> float:
        """Wait until the next deadline of a node, or until a complete prefix has waited long enough."""
        patience = self._until_deadline(running)
        if self._prefix_since is not None:
            patience = min(patience, self._prefix_since + _PREFIX_WAIT - time.monotonic())
        return max(0.0, patience)

    def _until_deadline(self, running: Sequence[NodeTask]) -> float:
        return min(task.life.time_left for task in running)

    def _check(self) -> None:
        """Pass on what a node met that is not its own. One that is aborted has its end, or was never called."""
        for task in self._started:
            if task not in self._aborts:
                task.check()

    def _time_out(self) -> None:
        """Fix the end of nodes whose deadline has passed. Nobody waits for their aborts while others run."""
        for task in self._running():
            if task.life.time_left <= 0:
                task.time_out()
                self._begin_abort(task)

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

    async def _grace(self, shutdown: ShutdownSignal) -> BatchEnd:
        """Let nodes that are asked to end do so by themselves; their deadlines and a stop hold on.

        What still waits for a thread has nothing to end.
        """
        for task in self._running():
            if task.life.has_begun:
                task.life.signal()
            else:
                self._begin_abort(task)
        ends_at = time.monotonic() + self._options.cancellation_grace_period.total_seconds()
        while (running := self._running()) and not shutdown.is_stopping and (left := ends_at - time.monotonic()) > 0:
            await self._change(min(left, self._until_deadline(running)))
            self._check()
            self._time_out()
        return BatchEnd.STOPPED if shutdown.is_stopping else BatchEnd.CANCELLED

    async def _abort(self) -> None:
        """Return when every node has ended or is abandoned; together they are waited for no longer than one."""
        for task in self._started:
            if not task.task.done():
                self._begin_abort(task)
        if self._aborts:
            await asyncio.gather(*self._aborts.values())

    def _begin_abort(self, task: NodeTask) -> None:
        if task not in self._aborts:
            self._aborts[task] = asyncio.create_task(self._abort_one(task))

    async def _abort_one(self, task: NodeTask) -> None:
        if await task.abort(wait=self._options.task_abort_wait.total_seconds()):
            return
        self._report.abandoned_nodes.append(str(task.context.node_id))
        node_abandoned(task.context.node_id)
        _log.warning(
            "a node did not end when it was aborted",
            extra={"run_id": str(task.context.run_id), "node_id": str(task.context.node_id)},
        )
