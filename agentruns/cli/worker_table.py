"""What ``agentruns worker`` shows on a terminal: what runs now, what came of the rest, and how the worker is."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from attrs import define, field
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.driven_runs import DrivenRun
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_events import DriveEnded, RunClaimed, WorkerEvent
from agentruns.runtime.worker_health import WorkerHealth, WorkerStatus

_LOOKS_PER_SECOND: Final = 2
#: What stands above and below the rows.
_OTHER_LINES: Final = 7
_COLORS: Final = {
    WorkerStatus.READY: "green",
    WorkerStatus.DEGRADED: "yellow",
    WorkerStatus.DRAINING: "yellow",
    WorkerStatus.UNAVAILABLE: "red",
}
_ENDS: Final = {
    AgentLoopOutcome.SUCCEEDED: "succeeded",
    AgentLoopOutcome.FAILED: "failed",
    AgentLoopOutcome.CANCELLATION_CONFIRMED: "cancelled",
    AgentLoopOutcome.WAITING: "waiting",
}
_GIVEN_BACK: Final = "given back"
_WORDS: Final = (*_ENDS.values(), _GIVEN_BACK)


@define
class WorkerTotals:
    """Count what a worker has claimed, and what came of it.

    Attributes:
        claimed: leases.
        ended: drives, by the status that they left the run in, or given back.
    """

    claimed: int = 0
    ended: Counter[str] = field(factory=Counter)

    def take(self, event: WorkerEvent) -> None:
        """Count an event."""
        if isinstance(event, RunClaimed):
            self.claimed += 1
        elif isinstance(event, DriveEnded):
            self.ended[_GIVEN_BACK if event.outcome is None else _ENDS.get(event.outcome, _GIVEN_BACK)] += 1

    @property
    def words(self) -> str:
        """All counts in one line."""
        return ", ".join([f"claimed {self.claimed}", *(f"{word} {self.ended[word]}" for word in _WORDS)])


class WorkerTable:
    """Show a table that changes in place, and let all that is printed meanwhile stand above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._totals = WorkerTotals()
        self._shown: RenderableType = ""

    def on_event(self, event: WorkerEvent) -> None:
        """Count an event."""
        self._totals.take(event)

    @asynccontextmanager
    async def showing(self, worker: AgentWorker) -> AsyncIterator[None]:
        """Show the worker as long as the block lasts; how it ended stays on the screen."""
        self._look(worker)
        looking = asyncio.create_task(self._look_on(worker))
        # A thread draws what the loop has looked at last, so that a terminal that stands still holds up no run.
        live = Live(
            console=self._console,
            get_renderable=lambda: self._shown,
            refresh_per_second=_LOOKS_PER_SECOND,
            redirect_stdout=sys.stdout.isatty(),
        )
        try:
            with live:
                try:
                    yield
                finally:
                    looking.cancel()
                    self._look(worker)
        finally:
            await asyncio.gather(looking, return_exceptions=True)

    async def _look_on(self, worker: AgentWorker) -> None:
        while True:
            self._look(worker)
            await asyncio.sleep(1 / _LOOKS_PER_SECOND)

    def _look(self, worker: AgentWorker) -> None:
        room = max(1, self._console.size.height - _OTHER_LINES)
        self._shown = picture(worker.health, self._totals, worker.drives, room=room)


def picture(health: WorkerHealth, totals: WorkerTotals, drives: tuple[DrivenRun, ...], *, room: int) -> RenderableType:
    """Draw a worker, with at most ``room`` of its runs."""
    reason = f" ({health.reason})" if health.reason else ""
    state = Text.assemble((f"{health.status.value}{reason}", _COLORS.get(health.status, "")), f": {totals.words}")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("tenant", "run", "graph", "nodes", "since", "epoch"):
        # An id that is cut in two can be copied by nobody.
        table.add_column(column, overflow="fold", no_wrap=column in ("run", "since", "epoch"))
    for driven in drives[:room]:
        table.add_row(*map(Text, _cells(driven)))
    more = [Text(f"and {len(drives) - room} more")] if len(drives) > room else []
    return Group(state, table, *more) if drives else state


def _cells(driven: DrivenRun) -> tuple[str, ...]:
    graph = "-" if driven.graph is None else f"{driven.graph.name.text} {driven.graph.version.text}"
    return (
        driven.tenant_id.text,
        driven.run_id.text,
        graph,
        ", ".join(node_id.text for node_id in driven.nodes) or "-",
        str(timedelta(seconds=int(driven.age.total_seconds()))),
        str(driven.epoch.value),
    )
