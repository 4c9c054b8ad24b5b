"""Run nodes that are plain functions in daemon threads, a bounded number at once."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

from agentruns.errors import DeploymentError

T = TypeVar("T")


class NodeThreads:
    """Lend threads to nodes. A thread cannot be killed, so one whose node never ends is not available again.

    The threads are daemons: a node that hangs does not keep the process from exiting.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._busy = 0

    def check_available(self) -> None:
        """Refuse when every thread is held.

        Raises:
            DeploymentError: ``node_threads_exhausted``; restart the process.
        """
        if self._busy >= self._limit:
            raise DeploymentError(reason="node_threads_exhausted")

    async def run(self, call: Callable[[], T]) -> T:
        """Run ``call`` in a thread with a copy of this context, and wait for what it returns or raises."""
        self.check_available()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def settle(value: T | None, error: BaseException | None) -> None:
            self._busy -= 1
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(value)  # type: ignore[arg-type]  # the value of a call that did not raise

        def work() -> None:
            value: T | None = None
            failure: BaseException | None = None
            try:
                value = context.run(call)
            except BaseException as error:  # noqa: BLE001 - it is raised again in the loop
                failure = _carried(error)
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, value, failure)

        self._busy += 1
        threading.Thread(target=work, name="agentruns-node", daemon=True).start()
        return await answer


def _carried(error: BaseException) -> BaseException:
    """Keep ``StopIteration`` from being lost in a future, which refuses it."""
    return RuntimeError("a node raised StopIteration") if isinstance(error, StopIteration) else error
