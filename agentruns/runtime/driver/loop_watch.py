"""Notice from outside when the event loop does not run, and say which node holds it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Final

from attrs import frozen

from agentruns.runtime.driver.node_task import NodeTask
from agentruns.runtime.driver.report import GraphDriveReport, LoopStall
from agentruns.runtime.telemetry.counts import loop_blocked

_log: Final = logging.getLogger("agentruns.runtime.driver")

#: Looks at the loop within the time after which it counts as blocked.
_LOOKS: Final = 4


@frozen(eq=False)
class WatchedBatch:
    """A batch that executes, and the report of its drive."""

    report: GraphDriveReport
    tasks: Sequence[NodeTask]


class LoopWatch:
    """Watch the loop of a driver while nodes of it execute: a lease is renewed by that loop alone.

    A thread looks, because a blocked loop cannot. It warns once for each stall; its length is known when the loop runs
    again, and goes into the report of every drive that it held up. The thread ends with its watch.

    Args:
        threshold: seconds for which the loop may stand still; a third of a lease.
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._pause = threshold / _LOOKS
        self._watched: set[WatchedBatch] = set()
        self._is_watching = threading.Event()
        self._beaten_at = 0.0
        self._culprits: tuple[str, ...] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, report: GraphDriveReport, tasks: Sequence[NodeTask]) -> WatchedBatch:
        """Watch while a batch executes, until :meth:`end`.

        Args:
            report: of the drive.
            tasks: of the batch; all its nodes are named when none of them holds the loop.
        """
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            looking = (weakref.ref(self), self._is_watching, self._pause)
            threading.Thread(target=_look, args=looking, name="agentruns-loop-watch", daemon=True).start()
            weakref.finalize(self, self._is_watching.set)
        watched, is_first = WatchedBatch(report, tasks), not self._watched
        if is_first:
            self._beaten_at = time.monotonic()
        self._watched.add(watched)
        if is_first:
            self._is_watching.set()
        if self._timer is None:
            self._timer = self._loop.call_later(self._pause, _beat, weakref.ref(self))
        return watched

    @property
    def executing(self) -> tuple[NodeTask, ...]:
        """The nodes whose end is not known yet, of all drives; to be asked on the loop."""
        return tuple(task for each in self._watched for task in each.tasks if task.end is None)

    def end(self, watched: WatchedBatch) -> None:
        """Watch a batch no more."""
        self._settle()
        self._watched.discard(watched)
        if not self._watched:
            self._is_watching.clear()

    def beat(self) -> None:
        """Show that the loop runs."""
        self._timer = None
        self._settle()
        if self._watched and self._loop is not None:
            self._timer = self._loop.call_later(self._pause, _beat, weakref.ref(self))

    def _settle(self) -> None:
        """Take a stall that is over into the reports, and count from here."""
        now = time.monotonic()
        if self._culprits is not None:
            stall = LoopStall(nodes=self._culprits, seconds=now - self._beaten_at)
            loop_blocked(stall.nodes, stall.seconds)
            for watched in self._watched:
                watched.report.loop_stalls.append(stall)
            self._culprits = None
        self._beaten_at = now

    def look(self) -> None:
        """Warn of a stall, from the thread."""
        late = time.monotonic() - self._beaten_at
        if late >= self._threshold and self._culprits is None and self._is_watching.is_set():
            self._warn(late)

    def _warn(self, late: float) -> None:
        nodes_of = {task.task: task.context.node_id.text for each in set(self._watched) for task in each.tasks}
        current = None if self._loop is None else asyncio.current_task(self._loop)
        culprit = None if current is None else nodes_of.get(current)
        nodes = tuple(sorted(nodes_of.values())) if culprit is None else (culprit,)
        self._culprits = nodes
        _log.warning(
            "the event loop is blocked, so that leases are not renewed: make the node a plain function",
            extra={"nodes": ", ".join(nodes), "seconds": round(late, 3)},
        )


def _beat(watch: weakref.ref[LoopWatch]) -> None:
    """Beat, unless the watch is gone: a loop that stands still would keep it."""
    if (watched := watch()) is not None:
        watched.beat()


def _look(watch: weakref.ref[LoopWatch], is_watching: threading.Event, pause: float) -> None:
    """Look again and again, until the watch is gone; it is not held while there is nothing to see."""
    while True:
        is_watching.wait()
        time.sleep(pause)
        watched = watch()
        if watched is None:
            return
        watched.look()
        del watched
