"""What ``agentruns worker`` writes where a program reads: one JSON object for each event."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, redirect_stdout
from queue import SimpleQueue
from typing import Final

from agentruns.runtime.clock import DatabaseClock
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_events import (
    DriveEnded,
    HealthChanged,
    RunClaimed,
    RunsSupervised,
    WorkerDraining,
    WorkerEvent,
    WorkerStarted,
    WorkerStopped,
)

_log: Final = logging.getLogger("agentruns.cli.worker")

#: Lines that a slow reader may be behind; what comes then is counted and left out.
MAXIMUM_BEHIND: Final = 10_000
#: Seconds in which the reader may take the last lines.
_PATIENCE: Final = 5.0


#: What each event is called.
KINDS: Final[dict[type, str]] = {
    WorkerStarted: "worker_started",
    RunClaimed: "run_claimed",
    DriveEnded: "drive_ended",
    RunsSupervised: "runs_supervised",
    HealthChanged: "health_changed",
    WorkerDraining: "worker_draining",
    WorkerStopped: "worker_stopped",
}
LOST: Final = "events_lost"


def members_of(event: WorkerEvent) -> dict[str, object]:
    """Give the members of an event's line: ids, counts and codes."""
    members: dict[str, object]
    match event:
        case WorkerStarted():
            tenants = None if event.tenants is None else [tenant_id.text for tenant_id in event.tenants]
            members = {"tenants": tenants, "graphs": event.graph_count, "slots": event.slots}
        case RunClaimed():
            members = _run(event)
        case DriveEnded():
            members = {**_run(event), **_end(event)}
        case RunsSupervised():
            members = _settled(event)
        case HealthChanged():
            members = {"health": event.health.status.value, "reason": event.health.reason}
        case WorkerDraining():
            members = {"running": event.running}
        case WorkerStopped():
            members = {"error": event.error}
    return members


def _run(event: RunClaimed | DriveEnded) -> dict[str, object]:
    return {"tenant_id": event.tenant_id.text, "run_id": event.run_id.text, "epoch": event.epoch.value}


def _end(event: DriveEnded) -> dict[str, object]:
    return {
        "outcome": None if event.outcome is None else event.outcome.value,
        "error": event.error,
        "reason": event.reason,
        "seconds": round(event.duration.total_seconds(), 6),
    }


def _settled(event: RunsSupervised) -> dict[str, object]:
    return {
        "tenant_id": event.tenant_id.text,
        "cancellations_requested": event.cancellations_requested,
        "runs_failed": event.runs_failed,
        "timers_fired": event.timers_fired,
        "errors": event.error_count,
    }


class EventLines:
    """Write a line for each event, and let what nodes print go to standard error meanwhile.

    A thread writes, so that a reader who stops reading holds up no run. A reader who goes away drains the worker.

    Args:
        clock: whose time stands in the lines.
        shutdown: of the worker.
        descriptor: where the lines go.
    """

    def __init__(self, clock: DatabaseClock, shutdown: ShutdownSignal, *, descriptor: int) -> None:
        self._clock = clock
        self._shutdown = shutdown
        self._descriptor = descriptor
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        #: Since the last line.
        self._lost = 0
        self._is_read = True

    def on_event(self, event: WorkerEvent) -> None:
        """Hand the event's line over to the thread."""
        if self._lines.qsize() >= MAXIMUM_BEHIND:
            self._lost += 1
        elif self._is_read:
            self._tell_of_lost()
            self._lines.put(self._line(KINDS[type(event)], members_of(event)))

    def _tell_of_lost(self) -> None:
        """Say where lines are missing, in their place."""
        if self._lost:
            self._lines.put(self._line(LOST, {"count": self._lost}))
            self._lost = 0

    @asynccontextmanager
    async def showing(self, worker: AgentWorker) -> AsyncIterator[None]:
        """Write as long as the block lasts.

        Raises:
            BrokenPipeError: the reader has gone.
        """
        del worker  # what it tells is all
        sys.stdout.flush()
        thread = threading.Thread(target=self._write, name="agentruns-events", daemon=True)
        thread.start()
        try:
            with redirect_stdout(sys.stderr):
                yield
        finally:
            self._tell_of_lost()
            self._lines.put(None)
            await asyncio.to_thread(thread.join, _PATIENCE)
        if not self._is_read:
            raise BrokenPipeError

    def _line(self, kind: str, members: dict[str, object]) -> str:
        return json.dumps({"event": kind, "at": str(self._clock.stamp()), **members}) + "\n"

    def _write(self) -> None:
        has_failed = False
        while (line := self._lines.get()) is not None:
            try:
                self._write_whole(line.encode("ascii"))
            except BrokenPipeError:
                self._is_read = False
                self._shutdown.drain()
                return
            except OSError as error:
                # Such as a full disk: it costs lines, and no run.
                if not has_failed:
                    _log.warning("an event cannot be written", extra={"error": errno.errorcode.get(error.errno or 0)})
                has_failed = True

    def _write_whole(self, data: bytes) -> None:
        """Write past the stream's buffer: whoever ends the process must not have to wait for its lock."""
        while data:
            data = data[os.write(self._descriptor, data) :]
