"""The drives of a worker: each is one run's affair, and whatever goes wrong with it leaves the others alone."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from agentruns.errors import AgentRunsError
from agentruns.runtime.agent_loop import AgentLoopOutcome, DurableAgentLoop
from agentruns.runtime.driven_runs import DrivenRun, driven_runs
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.worker_events import DriveEnd, WorkerDraining, WorkerObserver, drive_ended, run_claimed

_log: Final = logging.getLogger("agentruns.runtime.worker")


class WorkerDrives:
    """Drive runs side by side, and hold every drive until it has ended.

    Args:
        loop: drives a run.
        observer: told of each that begins and ends.
        ended: called when one has ended.
    """

    def __init__(self, loop: DurableAgentLoop, observer: WorkerObserver | None, *, ended: Callable[[], None]) -> None:
        self._loop = loop
        self._observer = observer
        self._has_ended = ended
        self._driving: dict[asyncio.Task[DriveEnd], HeldLease] = {}
        #: How those that nobody cancelled have ended: by outcome, or by the class of the error.
        self.ends = Counter[AgentLoopOutcome | str]()

    def __len__(self) -> int:
        return len(self._driving)

    @property
    def runs(self) -> tuple[DrivenRun, ...]:
        """What is driven at this moment, the run that was claimed first before the others."""
        return driven_runs(self._driving.values(), self._loop.executing_nodes)

    def start(self, held: HeldLease, shutdown: ShutdownSignal) -> None:
        """Begin to drive a run that was claimed."""
        task = asyncio.create_task(self._drive(held, shutdown), name=f"agentruns:{held.fence.run_id}")
        self._driving[task] = held
        task.add_done_callback(self._ended)
        if self._observer is not None:
            self._observer.tell(run_claimed(held))

    async def drain(self, shutdown: ShutdownSignal, *, timeout: timedelta) -> None:  # noqa: ASYNC109 - an option's value
        """Let nodes finish for so long, then stop them; return when every lease is given back."""
        if self._observer is not None:
            self._observer.tell(WorkerDraining(running=len(self)))
        if self._driving:
            await asyncio.wait(set(self._driving), timeout=timeout.total_seconds())
        shutdown.stop()
        if self._driving:
            await asyncio.wait(set(self._driving))

    async def abandon(self) -> None:
        """Cancel the drives that nobody would wait for any more; each gives its lease back."""
        for task in self._driving:
            task.cancel()
        if self._driving:
            await asyncio.wait(set(self._driving))

    def _ended(self, task: asyncio.Task[DriveEnd]) -> None:
        held = self._driving.pop(task)
        self._has_ended()
        # Looked at, or asyncio would log it with all that it says.
        end = asyncio.CancelledError() if task.cancelled() else task.exception() or task.result()
        if not task.cancelled():
            self.ends[end if isinstance(end, AgentLoopOutcome) else type(end).__name__] += 1
        if self._observer is not None:
            self._observer.tell(drive_ended(held, end))

    async def _drive(self, held: HeldLease, shutdown: ShutdownSignal) -> DriveEnd:
        """Drive one run, and say how that ended or with which error."""
        about = {"run_id": str(held.fence.run_id)}
        try:
            return (await self._loop.run(held, shutdown)).outcome
        except AgentRunsError as error:
            _log.warning("a run was given back", extra={**about, "error": type(error).__name__})
            return error
        except Exception as error:  # noqa: BLE001 - one run's fault is no fault of the others
            told = "a run was given back after a fault of the library"
            _log.exception(told, extra={**about, "error": type(error).__name__})
            return error
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            told = "a run was given back after its node raised what is no failure"
            _log.error(told, extra={**about, "error": type(error).__name__})
            raise
