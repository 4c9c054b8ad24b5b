"""Keep what is known of a worker's health fresh, and tell when it changes."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from agentruns.errors import AgentRunsError
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.worker_events import HealthChanged, WorkerObserver
from agentruns.runtime.worker_health import HealthRecord, WorkerStatus

#: Seconds without an answer after which the database is asked: a worker whose slots are full claims nothing.
QUIET: Final = 10.0
#: Between two looks, between two questions without an answer, and for one of them, in seconds.
LOOK: Final = 0.5
AGAIN: Final = 2.0
PATIENCE: Final = 5.0
#: What the other events of a worker do not tell.
_TOLD: Final = (WorkerStatus.READY, WorkerStatus.DEGRADED, WorkerStatus.UNAVAILABLE)


class HealthWatch:
    """Ask the database where no claim does, as long as the block lasts.

    A question without an answer changes nothing by itself: that the last answer grows old does.
    """

    def __init__(self, store: AgentRunStore, record: HealthRecord, observer: WorkerObserver | None) -> None:
        self._store = store
        self._record = record
        self._observer = observer
        self._told = record.health
        self._asks_at = 0.0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._watch(), name="agentruns:health_watch")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            self._tell()
            silence = self._record.silence
            if silence is not None and silence >= QUIET and time.monotonic() >= self._asks_at:
                await self._ask()
            await asyncio.sleep(LOOK)

    async def _ask(self) -> None:
        with suppress(AgentRunsError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self._store.ask_time()
            self._record.answered_a_question()
        self._asks_at = time.monotonic() + AGAIN

    def _tell(self) -> None:
        health = self._record.health
        if health == self._told or health.status not in _TOLD:
            return
        self._told = health
        if self._observer is not None:
            self._observer.tell(HealthChanged(health=health))
