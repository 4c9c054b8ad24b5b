"""Run nodes that are plain functions in daemon threads, a bounded number at once."""

from __future__ import annotations

import asyncio
import contextvars
import threading
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

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._free = asyncio.Semaphore(limit)
        self._abandoned: set[asyncio.Future[object]] = set()

    def check_available(self) -> None:
        """Refuse when every thread is held by a node that was given up.

        Raises:
            DeploymentError: ``node_threads_exhausted``; restart the process.
        """
        if len(self._abandoned) >= self._limit:
            raise DeploymentError(reason="node_threads_exhausted")

    def abandon(self, ending: asyncio.Future[object]) -> None:
        """Give up a node that runs in a thread, until it ends."""
        self._abandoned.add(ending)
        ending.add_done_callback(self._abandoned.discard)

    async def start(self, call: Callable[[], object]) -> asyncio.Future[object]:
        """Run ``call`` in a thread with a copy of this context, and give what it returns or raises once it has."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        ending: asyncio.Future[object] = loop.create_future()
        context = contextvars.copy_context()

        def settle(value: object, error: BaseException | None) -> None:
            self._free.release()
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

        threading.Thread(target=work, name="agentruns-node", daemon=True).start()
        return ending


def _carried(error: BaseException) -> BaseException:
    """Keep ``StopIteration`` from being lost in a future, which refuses it."""
    return RuntimeError("a node raised StopIteration") if isinstance(error, StopIteration) else error
