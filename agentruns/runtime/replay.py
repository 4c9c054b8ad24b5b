"""Read a run's record and fold it: what a drive, or an audit, knows before anything of the run is executed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import Final

from attrs import evolve, frozen

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.digests import Digest
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.ids import RunId
from agentruns.domain.ledger.bodies import Bodies
from agentruns.domain.ledger.state import RunState
from agentruns.domain.scalars import TenantId
from agentruns.errors import CorruptDataError, RunNotFoundError
from agentruns.runtime.driver.report import GraphReplayReport
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.replay_rows import (
    bodies_of,
    check_row_set,
    check_run_row,
    event_of,
    intent_of,
    rows_by_sequence,
)
from agentruns.runtime.store import AgentRunStore
from agentruns.store.journal import HistoryRow, RunHistory, Window
from agentruns.store.unit_of_work import UnitOfWork

#: Supersteps that one window of a long history holds.
_SUPERSTEPS: Final = 64


@frozen(kw_only=True)
class ReplayedRun:
    """A run as its record says it is.

    Attributes:
        state: the fold at the head.
        graph: the executable graph that the run is pinned to.
        intent: what was admitted.
        history: the run row as it was read last, with the clock.
    """

    state: RunState
    graph: ExecutableGraph
    intent: AgentAdmissionIntent
    history: RunHistory
    report: GraphReplayReport


class RunReader:
    """Fold the records of runs. Reading executes no node and changes nothing."""

    def __init__(self, store: AgentRunStore, executables: ExecutableGraphRegistry) -> None:
        self._store = store
        self._executables = executables

    async def read(self, tenant_id: TenantId, run_id: RunId) -> ReplayedRun:
        """Read and verify everything up to the head.

        Raises:
            RunNotFoundError: the tenant has no such run.
            ExecutableGraphUnavailableError: this process lacks the run's graph, or cannot fold it now.
            CorruptDataError: the record contradicts itself; ``component`` says where.
        """
        began = time.monotonic()
        history = await self._window(tenant_id, run_id, Window())
        graph_digest = history.run["graph_definition_digest"]
        if graph_digest is None:
            raise CorruptDataError(tenant_id=tenant_id, run_id=run_id, component="runs.graph_definition_digest")
        fold = _Fold(RunState.empty(tenant_id, run_id), self._executables.resolve(Digest(graph_digest)))
        if history.rows or history.event_count == 0:
            fold.add(history.rows, Window())
        else:
            history = await self._long(fold)
        return fold.finished(history, seconds=time.monotonic() - began)

    async def _long(self, fold: _Fold) -> RunHistory:
        """Read a long history in windows of whole supersteps; below the head only moving columns change.

        The last window has no end, so with its run row it is one snapshot of everything that the others left.
        """
        tenant_id, run_id = fold.state.tenant_id, fold.state.run_id
        while True:
            steps = await self._store.run(partial(_supersteps, tenant_id, run_id, fold.next_superstep))
            window = _window_after(fold, steps)
            history = await self._window(tenant_id, run_id, window)
            fold.add(history.rows, window)
            if len(steps) <= _SUPERSTEPS:
                return history

    async def _window(self, tenant_id: TenantId, run_id: RunId, window: Window) -> RunHistory:
        history = await self._store.run(lambda work: work.journal.read(tenant_id, run_id, window))
        if history is None:
            raise RunNotFoundError(tenant_id=tenant_id, id=run_id)
        self._store.clock.observe(history.now)
        return history


_NO_LIMIT: Final = 2**62


def _supersteps(tenant_id: TenantId, run_id: RunId, first: int, work: UnitOfWork) -> tuple[tuple[int, int], ...]:
    return work.journal.supersteps(tenant_id, run_id, first=first, limit=_SUPERSTEPS + 1)


def _window_after(fold: _Fold, steps: tuple[tuple[int, int], ...]) -> Window:
    """Cut after a whole superstep: its events end where the next one's checkpoint was written."""
    after = fold.sequence
    if len(steps) <= _SUPERSTEPS:
        return Window(
            after_sequence=after,
            first_superstep=fold.current_superstep,
            maximum_events=_NO_LIMIT,
            maximum_bytes=_NO_LIMIT,
        )
    last_superstep, until = steps[-1]
    return Window(
        after_sequence=after,
        until_sequence=until,
        first_superstep=fold.current_superstep,
        last_superstep=last_superstep,
        maximum_events=_NO_LIMIT,
        maximum_bytes=_NO_LIMIT,
    )


class _Fold:
    """Carry the state through windows, and hold every row against the event that it was written with."""

    def __init__(self, state: RunState, graph: ExecutableGraph) -> None:
        self.state = state
        self.graph = graph
        self.intent: AgentAdmissionIntent | None = None
        self._report = GraphReplayReport()

    @property
    def sequence(self) -> int:
        """The last event that was folded."""
        return 0 if self.state.head is None else self.state.head.sequence.value

    @property
    def current_superstep(self) -> int:
        """The superstep whose rows a window begins with."""
        return self.state.superstep.value

    @property
    def next_superstep(self) -> int:
        """The first superstep whose checkpoint has not been folded."""
        return 0 if self.state.head is None else self.state.superstep.value + 1

    def add(self, rows: Iterable[HistoryRow], window: Window) -> None:
        """Fold the events of a window."""
        by_sequence = rows_by_sequence(self.state, rows, window)
        found = [row for group in by_sequence.values() for row in group]
        if self.intent is None:
            self.intent = intent_of(self.state, found)
        bodies = bodies_of(found, intent=self.intent)
        self._report = evolve(self._report, windows=self._report.windows + 1)
        for sequence in sorted(by_sequence):
            self._step(by_sequence[sequence], bodies, self.intent)

    def _step(self, rows: list[HistoryRow], bodies: Bodies, intent: AgentAdmissionIntent) -> None:
        state = self.state
        event = event_of(state, rows)
        self.state = state.apply(event, bodies, self.graph)
        check_row_set(state, event, self.state, rows, intent)
        self._count(rows)

    def _count(self, rows: list[HistoryRow]) -> None:
        report = self._report
        sources = [row.source for row in rows]
        self._report = evolve(
            report,
            events_verified=report.events_verified + 1,
            supersteps_replayed=report.supersteps_replayed + ("checkpoint" in sources and "admission" not in sources),
            attempts_verified=report.attempts_verified + sources.count("attempt"),
            results_verified=report.results_verified + sources.count("result"),
            bytes_verified=report.bytes_verified + sum(len(row.body or b"") for row in rows),
        )

    def finished(self, history: RunHistory, *, seconds: float) -> ReplayedRun:
        """Compare the run row, the cache of the fold, with what was folded."""
        if self.intent is None:
            raise CorruptDataError(
                tenant_id=self.state.tenant_id, run_id=self.state.run_id, component="agent_admissions.body"
            )
        check_run_row(self.state, history, self.intent)
        return ReplayedRun(
            state=self.state,
            graph=self.graph,
            intent=self.intent,
            history=history,
            report=evolve(self._report, duration=seconds),
        )
