"""Read a run's record and fold it: what a drive, or an audit, knows before anything of the run is executed."""

from __future__ import annotations

import time
from typing import Final

from attrs import evolve, frozen

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.digests import Digest
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.ids import RunId
from agentruns.domain.ledger.state import RunState
from agentruns.domain.scalars import TenantId
from agentruns.errors import CorruptDataError
from agentruns.runtime.driver.computing import computing_threads
from agentruns.runtime.driver.options import GraphReplayLimits
from agentruns.runtime.driver.report import GraphReplayReport
from agentruns.runtime.driver.threads import NodeThreads
from agentruns.runtime.kept_runs import KeptRun, KeptRuns
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.replay_fold import RunFold
from agentruns.runtime.replay_reading import HistoryReading, read_window
from agentruns.runtime.replay_windows import ReadingBounds
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.telemetry.drives import observed_replay
from agentruns.store.journal import RunHistory, Window
from agentruns.store.mapping import StoredValue

_NO_LIMIT: Final = 2**62


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
    """Fold the records of runs. Reading executes no node and changes nothing.

    Args:
        kept: what was folded before and need not be folded again; without it every reading begins at event 1.
        limits: what is held at once of a superstep.
        bounds: how much of a long history is read at once. The state does not depend on it.
        threads: for large folds; without them the reader has its own.
    """

    def __init__(
        self,
        store: AgentRunStore,
        executables: ExecutableGraphRegistry,
        *,
        kept: KeptRuns | None = None,
        limits: GraphReplayLimits | None = None,
        bounds: ReadingBounds | None = None,
        threads: NodeThreads | None = None,
    ) -> None:
        self._store = store
        self._executables = executables
        self._kept = kept
        self._limit = (limits or GraphReplayLimits()).maximum_barrier_result_bytes
        self._bounds = bounds or ReadingBounds()
        self._threads = threads or computing_threads()

    async def read(self, tenant_id: TenantId, run_id: RunId, *, history: RunHistory | None = None) -> ReplayedRun:
        """Read and verify everything up to the head, or what came after the part that was kept.

        A fold of more than 64 KiB runs in a thread; reducers and validators are called there.

        Args:
            tenant_id: of the run.
            run_id: of the run.
            history: all of it, where a statement has just brought it; it stands for the first one here.

        Raises:
            RunNotFoundError: the tenant has no such run.
            ExecutableGraphUnavailableError: this process lacks the run's graph, or cannot fold it now.
            CorruptDataError: the record contradicts itself; ``component`` says where.
            StaleHeadError: ``recovery``; more was written meanwhile than could be followed.
        """
        with observed_replay(tenant_id, run_id) as observed:
            began = time.monotonic()
            kept = None if self._kept is None else self._kept.find(tenant_id, run_id)
            replayed = None if kept is None else await self._read_after(kept, history, began)
            if replayed is None:
                replayed = await self._read_all(tenant_id, run_id, history, began)
            self.keep(replayed.state, replayed.graph, replayed.intent)
            return observed.ended_with(replayed)

    def keep(self, state: RunState, graph: ExecutableGraph, intent: AgentAdmissionIntent) -> None:
        """Take a state that this process has folded, or committed, as what is known of its run."""
        if self._kept is not None:
            self._kept.keep(state, graph, intent)

    def forget(self, tenant_id: TenantId, run_id: RunId) -> None:
        """Read a run from event 1 the next time."""
        if self._kept is not None:
            self._kept.forget(tenant_id, run_id)

    async def _read_after(self, kept: KeptRun, history: RunHistory | None, began: float) -> ReplayedRun | None:
        """Fold what came after the kept head; ``None`` when anything disagrees, and then all is read from event 1."""
        reading = self._reading(kept.state, kept.graph, kept.intent)
        sequence = kept.head.sequence.value
        window = Window(
            after_sequence=sequence - 1,
            first_superstep=kept.state.superstep.value,
            with_base=True,
            maximum_events=self._bounds.short_events,
            maximum_bytes=min(self._bounds.maximum_bytes, reading.fold.room),
        )
        is_whole = history is not None
        history = history or await reading.read(window)
        is_whole = is_whole or window.brought(history)
        known = history if is_whole else await reading.read(_base_of(window))
        if not kept.agrees_with(list(known.rows)) or self._executables.resolve(kept.graph.digest) is not kept.graph:
            return None
        try:
            if is_whole:
                await reading.add(kept.later_than(history.rows), evolve(window, after_sequence=sequence))
            else:
                history = await reading.follow(history)
            return _replayed(reading.fold, history, began)
        except CorruptDataError:
            # The kept part is no evidence: what is wrong is for a reading from the beginning to say.
            return None

    async def _read_all(
        self, tenant_id: TenantId, run_id: RunId, history: RunHistory | None, began: float
    ) -> ReplayedRun:
        window = Window(
            maximum_events=self._bounds.short_events, maximum_bytes=min(self._bounds.maximum_bytes, self._limit)
        )
        seed, is_whole = RunState.empty(tenant_id, run_id), history is not None
        if history is None:
            history = await read_window(self._store, seed, window)
            is_whole = window.brought(history)
        reading = self._reading(seed, self._graph_of(seed, history), None)
        if is_whole:
            await reading.add(history.rows, window)
        else:
            history = await reading.follow(history)
        return _replayed(reading.fold, history, began)

    def _graph_of(self, seed: RunState, history: RunHistory) -> ExecutableGraph:
        digest = history.run["graph_definition_digest"]
        component = "runs.graph_definition_digest"
        if digest is None:
            raise CorruptDataError(tenant_id=seed.tenant_id, run_id=seed.run_id, component=component)
        with StoredValue(seed.tenant_id, seed.run_id, component):
            pinned = Digest(digest)
        return self._executables.resolve(pinned)

    def _reading(self, state: RunState, graph: ExecutableGraph, intent: AgentAdmissionIntent | None) -> HistoryReading:
        fold = RunFold(state, graph, self._executables.admissions.read, self._limit, intent)
        return HistoryReading(store=self._store, threads=self._threads, bounds=self._bounds, fold=fold)


def _replayed(fold: RunFold, history: RunHistory, began: float) -> ReplayedRun:
    intent = fold.finish(history)
    report = fold.report(duration=time.monotonic() - began)
    return ReplayedRun(state=fold.state, graph=fold.graph, intent=intent, history=history, report=report)


def _base_of(window: Window) -> Window:
    """What a kept part is compared with: the event at its head, and the checkpoint that it stands on."""
    return evolve(
        window,
        until_sequence=window.after_sequence + 1,
        last_superstep=window.first_superstep,
        maximum_events=_NO_LIMIT,
        maximum_bytes=_NO_LIMIT,
    )
