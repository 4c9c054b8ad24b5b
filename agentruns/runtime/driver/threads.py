"""Run nodes that are plain functions in daemon threads, a bounded number at once."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from agentruns.errors import DeploymentError

T = TypeVar("T")


class NodeThreads:
    """Lend threads to nodes; who comes when all are lent waits for one.

    A thread cannot be killed, so one whose node was given up is not available before the node ends by itself. The
    threads are daemons: a node that hangs does not keep the process from exiting.
    """

    def __init__(self, limit: int, *, name: str = "agentruns-node") -> None:
        self._limit = limit
        self._name = name
        self._held = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._abandoned: set[asyncio.Future[object]] = set()

    @property
    def are_exhausted(self) -> bool:
        """Whether every thread is held by a node that was given up."""
        return len(self._abandoned) >= self._limit

    def check_available(self) -> None:
        """Refuse when every thread is held by a node that was given up.

        Raises:
            DeploymentError: ``node_threads_exhausted``; restart the process.
        """
        if self.are_exhausted:
            raise _exhausted()

    def abandon(self, ending: asyncio.Future[object]) -> None:
        """Give up a node that runs in a thread, until it ends. With the last thread, nobody waits for one any more."""
        self._abandoned.add(ending)
        ending.add_done_callback(self._abandoned.discard)
        while self.are_exhausted and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(_exhausted())

    async def start(self, call: Callable[[], object]) -> asyncio.Future[object]:
        """Run ``call`` in a thread with a copy of this context, and give what it returns or raises once it has.

        Raises:
            DeploymentError: ``node_threads_exhausted``; no thread is left to wait for, and nothing was called.
        """
        await self._hold()
        loop = asyncio.get_running_loop()
        ending: asyncio.Future[object] = loop.create_future()
        context = contextvars.copy_context()

        def settle(value: object, error: BaseException | None) -> None:
            self._let_go()
            if error is None:
                ending.set_result(value)
            else:
                ending.set_exception(error)
                ending.exception()  # nobody may be left who looks

        def work() -> None:
            value: object = None
            failure: BaseException | None = None
            try:
                value = context.run(call)
            except BaseException as error:  # noqa: BLE001 - it is raised again in the loop
                failure = _carried(error)
            with suppress(RuntimeError):  # the loop has been closed meanwhile, and nobody waits any more
                loop.call_soon_threadsafe(settle, value, failure)

        threading.Thread(target=work, name=self._name, daemon=True).start()
        return ending

    async def _hold(self) -> None:
        """Take a thread, in the order of asking."""
        if self._held < self._limit:
            self._held += 1
            return
        self.check_available()
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            # Given up in the same moment as it was this one's turn: then it is the next one's.
            if not turn.cancelled() and turn.exception() is None:
                self._let_go()
            raise

    def _let_go(self) -> None:
        """Hand a thread on to who has waited longest for one."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._held -= 1


def _exhausted() -> DeploymentError:
    return DeploymentError(reason="node_threads_exhausted")


def _carried(error: BaseException) -> BaseException:
    """Keep ``StopIteration`` from being lost in a future, which refuses it."""
    return RuntimeError("a node raised StopIteration") if isinstance(error, StopIteration) else error
