"""How ``agentruns worker`` shows its work: lines for programs, a table on a terminal, and a few words otherwise."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from agentruns.cli.output import Output
from agentruns.cli.worker_lines import EventLines
from agentruns.cli.worker_table import WorkerTable
from agentruns.runtime.clock import DatabaseClock
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_events import HealthChanged, WorkerEvent
from agentruns.runtime.worker_health import WorkerStatus


class WorkerDisplay(Protocol):
    """Show a worker to whoever looks."""

    def on_event(self, event: WorkerEvent) -> None:
        """Take an event of the worker."""
        ...

    def showing(self, worker: AgentWorker) -> AbstractAsyncContextManager[None]:
        """Show it as long as the block lasts."""
        ...


class FewWords:
    """Say when the worker's health changes, once it has been ready; a person reads the rest in the record."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._is_ready = True

    def on_event(self, event: WorkerEvent) -> None:
        """Say what changed."""
        if not isinstance(event, HealthChanged):
            return
        was_ready, self._is_ready = self._is_ready, event.health.status is WorkerStatus.READY
        if not (was_ready and self._is_ready):
            reason = f" ({event.health.reason})" if event.health.reason else ""
            self._output.say(f"Health: {event.health.status.value}{reason}")

    @asynccontextmanager
    async def showing(self, worker: AgentWorker) -> AsyncIterator[None]:
        """Show nothing besides."""
        del worker
        yield


def display_of(output: Output, *, clock: DatabaseClock, shutdown: ShutdownSignal) -> WorkerDisplay:
    """Choose by who reads: the format that was asked for, and whether standard error is a terminal."""
    if output.is_json:
        return EventLines(clock, shutdown, descriptor=sys.stdout.fileno())
    return WorkerTable(output.progress) if output.is_watched else FewWords(output)
