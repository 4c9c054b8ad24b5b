"""Execute one started node, and say how it ended."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, Final, TypeAlias

from attrs import frozen

from agentruns.domain.graph.executable import GraphNodeExecutor
from agentruns.domain.graph.returns import TakenReturn, take_return
from agentruns.errors import InvalidValueError
from agentruns.runtime.context import GraphNodeContext
from agentruns.runtime.driver.threads import NodeThreads


@frozen
class Returned:
    """The node returned a value; its bytes were taken at once, so what happens to it later changes nothing."""

    value: TakenReturn


@frozen
class Refused:
    """The node returned what no node may return; the reason is one of a closed set."""

    reason: str


@frozen
class Raised:
    """The node raised."""

    error: BaseException


@frozen
class TimedOut:
    """The node did not end before its deadline."""


#: How a node ended.
NodeEnd: TypeAlias = Returned | Refused | Raised | TimedOut


#: Held strongly until they end: a task without other references may be collected in flight.
_ABANDONED: Final[set[asyncio.Future[Any]]] = set()


class NodeTask:
    """Hold the task of a node strongly until it has ended.

    Attributes:
        context: what the node sees.
        end: how it ended, once it has.
    """

    def __init__(self, executor: GraphNodeExecutor, context: GraphNodeContext, threads: NodeThreads) -> None:
        self.context = context
        self.end: NodeEnd | None = None
        self._executor = executor
        self._threads = threads
        self._thread: asyncio.Future[object] | None = None
        name = f"agentruns:{context.run_id}:{context.superstep}:{context.node_id}"
        self.task = asyncio.create_task(self._run(), name=name)

    async def _run(self) -> None:
        try:
            self._settle(_taken(await self._execute()))
        except asyncio.CancelledError as error:
            if self.task.cancelling():
                raise
            # The node raised it by itself: a failed attempt, and no cancellation of anything.
            self._settle(Raised(error))
        except Exception as error:  # noqa: BLE001 - whatever user code raises is a failed attempt
            self._settle(Raised(error))

    async def _execute(self) -> object:
        execute = self._executor.execute
        if inspect.iscoroutinefunction(execute):
            return await execute(self.context)
        self._thread = await self._threads.start(lambda: execute(self.context))
        return await asyncio.shield(self._thread)

    def time_out(self) -> None:
        """Fix the end of a node whose deadline has passed; what it does later changes nothing."""
        self._settle(TimedOut())

    def _settle(self, end: NodeEnd) -> None:
        if self.end is None:
            self.end = end

    async def abort(self, *, wait: float) -> bool:
        """Signal and cancel the node, and wait for it a little.

        Returns:
            Whether it ended; otherwise it is abandoned, and whatever it returns is dropped.
        """
        self.context.signal()
        self.task.cancel()
        ending: set[asyncio.Future[Any]] = {self.task}
        if self._thread is not None:
            ending.add(self._thread)
        _, running = await asyncio.wait(ending, timeout=wait)
        for each in running:
            self._abandon(each)
        return not running

    def _abandon(self, ending: asyncio.Future[Any]) -> None:
        _ABANDONED.add(ending)
        ending.add_done_callback(_ABANDONED.discard)
        if ending is self._thread:
            self._threads.abandon(ending)


def _taken(value: object) -> Returned | Refused:
    try:
        return Returned(take_return(value))
    except InvalidValueError as error:
        return Refused(error.reason)
