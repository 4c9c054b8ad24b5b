"""DBOS: a workflow of three steps, each of them recorded before the next one begins."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final
from uuid import uuid4

from attrs import define, field, frozen

from benchmarks.peers.dbos_client import Enqueued, url_of
from benchmarks.place import Place
from benchmarks.workload import ARTICLES, order

#: In which a listening instance finds what to do.
QUEUE: Final = "steps"

_NAME: Final = "orders"
_LOOK: Final = 0.005

_Order = dict[str, Any]


@frozen(kw_only=True)
class DbosSteps:
    """The two forms of the workflow: of plain functions, for a thread, and of coroutines, for the event loop."""

    plain: Callable[[_Order], int]
    asynchronous: Callable[[_Order], Awaitable[int]]

    def orders(self, numbers: Iterable[int]) -> list[Enqueued]:
        """Build what the workflows are given."""
        return [Enqueued(workflow_id=str(uuid4()), order=order(number)) for number in numbers]

    def run(self, work: Enqueued) -> None:
        """Run a workflow in this thread, under an id of the caller's."""
        from dbos import SetWorkflowID  # noqa: PLC0415 - only who measures it needs it

        with SetWorkflowID(work.workflow_id):
            assert self.plain(work.order) == ARTICLES

    async def run_async(self, work: Enqueued) -> None:
        """Run a workflow in the event loop; what DBOS does with the database runs in the loop's threads."""
        from dbos import SetWorkflowID  # noqa: PLC0415 - only who measures it needs it

        with SetWorkflowID(work.workflow_id):
            assert await self.asynchronous(work.order) == ARTICLES


@define
class Watch:
    """Note when first steps begin, and when enough workflows have come to the last one, in whatever thread they run."""

    began_at: float = 0.0
    _left: int = 0
    _lock: threading.Lock = field(factory=threading.Lock)
    _done: threading.Event = field(factory=threading.Event)

    def expect(self, count: int) -> None:
        """Begin to count."""
        self._left = count
        self._done.clear()

    async def all_answered(self) -> None:
        """Return when as many workflows as were expected have come to their last step."""
        while not self._done.is_set():  # noqa: ASYNC110 - it happens in other threads
            await asyncio.sleep(_LOOK)

    def begin(self) -> None:
        """Note the time of a first step."""
        self.began_at = time.perf_counter()

    def answer(self) -> None:
        """Count a last step."""
        with self._lock:
            self._left -= 1
            if not self._left:
                self._done.set()


#: The workflows are registered once in a process, and so there is one that watches them.
WATCH: Final = Watch()


@asynccontextmanager
async def opened(place: Place, *, callers: int, listens: bool = False) -> AsyncIterator[DbosSteps]:
    """Launch an instance with a connection for each caller; its threads end with it, those of the event loop too.

    One that listens executes what is enqueued in ``QUEUE``, which somebody has to register.
    """
    from dbos import DBOS  # noqa: PLC0415 - only who measures it needs it

    steps = _registered()
    DBOS(
        config={
            "name": _NAME,
            "system_database_url": url_of(place),
            "sys_db_pool_size": callers,
            "enable_otlp": False,
            "log_level": "ERROR",
        }
    )
    DBOS.listen_queues([QUEUE] if listens else [])
    DBOS.launch()
    try:
        yield steps
    finally:
        DBOS.destroy()
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(callers))


@cache
def _registered() -> DbosSteps:
    """Register the workflows, once in a process."""
    from dbos import DBOS  # noqa: PLC0415 - only who measures it needs it

    return DbosSteps(plain=_plain(DBOS), asynchronous=_asynchronous(DBOS))


def _plain(dbos: Any) -> Callable[[_Order], int]:
    collect, check, answer = dbos.step()(_collect), dbos.step()(_check), dbos.step()(_answer)

    @dbos.workflow(name="fulfil")  # type: ignore[untyped-decorator]  # the peer need not be there
    def fulfil(ordered: _Order) -> int:
        check(collect(ordered))
        return answer(ordered)  # type: ignore[no-any-return]  # as above

    return fulfil  # type: ignore[no-any-return]  # as above


def _asynchronous(dbos: Any) -> Callable[[_Order], Awaitable[int]]:
    @dbos.step(name="collect_async")  # type: ignore[untyped-decorator]  # as above
    async def collect(ordered: _Order) -> str:
        return _collect(ordered)

    @dbos.step(name="check_async")  # type: ignore[untyped-decorator]  # as above
    async def check(collected: str) -> str:
        return _check(collected)

    @dbos.step(name="answer_async")  # type: ignore[untyped-decorator]  # as above
    async def answer(ordered: _Order) -> int:
        return _answer(ordered)

    @dbos.workflow(name="fulfil_async")  # type: ignore[untyped-decorator]  # as above
    async def fulfil(ordered: _Order) -> int:
        await check(await collect(ordered))
        return await answer(ordered)  # type: ignore[no-any-return]  # as above

    return fulfil  # type: ignore[no-any-return]  # as above


def _collect(ordered: _Order) -> str:
    WATCH.begin()
    return f"order {ordered['order']}"


def _check(collected: str) -> str:
    return f"{collected} is complete"


def _answer(ordered: _Order) -> int:
    WATCH.answer()
    return sum(line["count"] for line in ordered["lines"])
