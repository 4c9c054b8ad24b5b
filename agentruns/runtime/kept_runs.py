"""Keep what this worker has folded itself, so that the next drive folds only what came after."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from attrs import define, field, frozen

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.ids import RunId
from agentruns.domain.ledger.event import JournalHead
from agentruns.domain.ledger.rows import CheckpointRow
from agentruns.domain.ledger.state import RunState
from agentruns.domain.scalars import TenantId
from agentruns.store.journal import HistoryRow

MAXIMUM_RUNS: Final = 10_000
MAXIMUM_BYTES: Final = 64 * 1024 * 1024
#: What a state weighs besides its bodies.
_OVERHEAD: Final = 4096


@frozen(kw_only=True)
class KeptRun:
    """A run as far as this process has folded it. It saves work and is no evidence: whatever disagrees drops it.

    Attributes:
        size: bytes that it holds, about.
    """

    state: RunState
    graph: ExecutableGraph
    intent: AgentAdmissionIntent
    head: JournalHead
    size: int = field(init=False)

    @size.default
    def _weight(self) -> int:
        checkpoint = self.state.checkpoint
        results = sum(len(result.canonical) for result in self.state.results.values())
        return _OVERHEAD + len(self.intent.canonical) + results + (len(checkpoint.state.data) if checkpoint else 0)

    def agrees_with(self, rows: list[HistoryRow]) -> bool:
        """Tell whether the event at the kept head and the row of the current checkpoint are as they were."""
        sequence, row = self.head.sequence.value, CheckpointRow.of(self.state)
        digests = [each.digest for each in rows if each.source == "event" and each.sequence == sequence]
        checkpoints = [
            (each.id, each.digest, each.second_body, each.body)
            for each in rows
            if each.source == "checkpoint" and each.superstep == row.superstep.value
        ]
        kept = (row.checkpoint_id.text, row.digest.raw, row.ready, row.state)
        return digests == [self.head.digest.raw] and checkpoints == [kept]

    def later_than(self, rows: Iterable[HistoryRow]) -> list[HistoryRow]:
        """Leave out the rows of supersteps that were folded before: a history that is whole has them, too."""
        first, sequence = self.state.superstep.value, self.head.sequence.value
        return [
            each
            for each in rows
            if each.superstep is None
            or each.superstep > first
            or (each.superstep == first and each.sequence > sequence)
        ]


@define
class KeptRuns:
    """The runs of one driver; the least recently used are let go beyond the bounds. Never stored, never shared."""

    maximum_runs: int = MAXIMUM_RUNS
    maximum_bytes: int = MAXIMUM_BYTES
    _kept: OrderedDict[tuple[TenantId, RunId], KeptRun] = field(factory=OrderedDict, init=False)
    _size: int = field(default=0, init=False)

    def keep(self, state: RunState, graph: ExecutableGraph, intent: AgentAdmissionIntent) -> None:
        """Keep a run at its head; one that is over is let go."""
        key = (state.tenant_id, state.run_id)
        self.forget(*key)
        if state.head is None or state.status.is_terminal:
            return
        kept = self._kept[key] = KeptRun(state=state, graph=graph, intent=intent, head=state.head)
        self._size += kept.size
        while len(self._kept) > self.maximum_runs or self._size > self.maximum_bytes:
            _, dropped = self._kept.popitem(last=False)
            self._size -= dropped.size

    def find(self, tenant_id: TenantId, run_id: RunId) -> KeptRun | None:
        """Give a run as far as it is known."""
        return self._kept.get((tenant_id, run_id))

    def forget(self, tenant_id: TenantId, run_id: RunId) -> None:
        """Let a run go."""
        dropped = self._kept.pop((tenant_id, run_id), None)
        if dropped is not None:
            self._size -= dropped.size
