"""Carry the state of a run through the windows of its history."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import define, field

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.ledger.bodies import Bodies
from agentruns.domain.ledger.event import Event
from agentruns.domain.ledger.state import RunState
from agentruns.errors import CorruptDataError
from agentruns.runtime.driver.report import GraphReplayReport
from agentruns.runtime.replay_rows import (
    EventRows,
    bodies_of,
    check_row_set,
    check_run_row,
    check_settlements,
    event_of,
    intent_of,
    rows_by_sequence,
)
from agentruns.runtime.result_limit import check_result_bytes, result_bytes
from agentruns.store.journal import HistoryRow, RunHistory, Window


@define
class RunFold:
    """Fold window after window, and hold every row against the event that it was written with.

    Attributes:
        state: after the last event that was folded; the seed, or what is known of the run.
        decode: reads the body of an admission.
        maximum_result_bytes: of the results of one superstep.
        intent: what was admitted, once it is known.
    """

    state: RunState
    graph: ExecutableGraph
    decode: Callable[[bytes], AgentAdmissionIntent]
    maximum_result_bytes: int
    intent: AgentAdmissionIntent | None = None
    _prefix_sequence: int | None = field(init=False)
    _results: int = field(init=False)
    _largest: int = field(init=False)
    _windows: int = field(default=0, init=False)
    _events: int = field(default=0, init=False)
    _supersteps: int = field(default=0, init=False)
    _attempts: int = field(default=0, init=False)
    _completions: int = field(default=0, init=False)
    _bytes: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._prefix_sequence = self.sequence or None
        self._results = self._largest = result_bytes(self.state.results.values())

    @property
    def sequence(self) -> int:
        """The last event that was folded; 0 before the first."""
        return 0 if self.state.head is None else self.state.head.sequence.value

    @property
    def superstep(self) -> int:
        """The superstep that the next event belongs to."""
        return self.state.superstep.value

    @property
    def room(self) -> int:
        """What the results of the current superstep may still weigh."""
        return self.maximum_result_bytes - self._results

    def check_results(self, size: int) -> None:
        """Refuse to fetch the results of the current superstep when together they are larger than the limit."""
        check_result_bytes(self.graph.digest, superstep=self.superstep, size=size, limit=self.maximum_result_bytes)

    def add(self, rows: Iterable[HistoryRow], window: Window) -> None:
        """Fold the events of a window.

        Raises:
            CorruptDataError: the record contradicts itself.
            ExecutableGraphUnavailableError: this process cannot say, or the results of a superstep are too large.
        """
        found = list(rows)
        by_sequence = rows_by_sequence(self.state, found, window)
        if self.intent is None:
            self.intent = intent_of(self.state, found, self.decode)
        bodies = bodies_of(self.state, found, intent=self.intent)
        self._windows += 1
        self._bytes += _resolution_bytes(found, window)
        for sequence in sorted(by_sequence):
            self._step(by_sequence[sequence], bodies, self.intent)

    def _step(self, rows: EventRows, bodies: Bodies, intent: AgentAdmissionIntent) -> None:
        state = self.state
        event = event_of(state, rows)
        self._weigh(rows.beside)
        self.state = state.apply(event, bodies, self.graph)
        check_row_set(state, event, self.state, rows.beside, intent)
        check_settlements(event, self.state, rows.settled)
        self._count(event, rows.beside)
        if self.state.superstep != state.superstep:
            self._results = 0

    def _weigh(self, rows: list[HistoryRow]) -> None:
        self._results += sum(
            len(row.body or b"") for row in rows if row.source == "result" and row.status == "succeeded"
        )
        self.check_results(self._results)
        self._largest = max(self._largest, self._results)

    def _count(self, event: Event, rows: list[HistoryRow]) -> None:
        sources = [row.source for row in rows]
        self._events += 1
        self._supersteps += "checkpoint" in sources and "admission" not in sources
        self._attempts += sources.count("attempt")
        self._completions += sources.count("result")
        self._bytes += len(event.data) + sum(len(row.body or b"") for row in rows)

    def finish(self, history: RunHistory) -> AgentAdmissionIntent:
        """Compare the run row, the cache of the fold, with what was folded, and give what was admitted."""
        if self.intent is None:
            raise CorruptDataError(
                tenant_id=self.state.tenant_id, run_id=self.state.run_id, component="agent_admissions.body"
            )
        check_run_row(self.state, history, self.intent)
        return self.intent

    def report(self, *, duration: float) -> GraphReplayReport:
        """Say what has been folded, and how long it took."""
        return GraphReplayReport(
            events_verified=self._events,
            supersteps_replayed=self._supersteps,
            attempts_verified=self._attempts,
            results_verified=self._completions,
            bytes_verified=self._bytes,
            windows=self._windows,
            maximum_barrier_result_bytes=self._largest,
            prefix_sequence=self._prefix_sequence,
            superstep=self.superstep,
            duration=duration,
        )


def _resolution_bytes(rows: Iterable[HistoryRow], window: Window) -> int:
    """Add up what answers weigh: a wait's row stands with its registration, which may be of an earlier window."""
    return sum(
        len(row.second_body or b"")
        for row in rows
        if row.source == "wait" and row.number is not None and window.holds(row.number)
    )
