"""The law that a run is what its journal says: its whole history folded, and every row held against the fold."""

from __future__ import annotations

from functools import partial
from typing import Final

from attrs import define, field

from agentruns.domain.admission_reader import AdmissionReader
from agentruns.domain.digests import Digest
from agentruns.domain.graph.definition import CompiledGraph
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.ledger.state import RunState
from agentruns.domain.scalars import TenantId
from agentruns.errors import CorruptDataError, ExecutableGraphUnavailableError
from agentruns.operations.audit.findings import Finding
from agentruns.operations.audit.law import Batch
from agentruns.operations.audit.laws.derived import derived, ids_of
from agentruns.operations.audit.laws.recorded import RecordedFold, recorded_graph
from agentruns.operations.audit.scope import Key
from agentruns.operations.audit.snapshot import Snapshot
from agentruns.runtime.driver.options import GraphReplayLimits
from agentruns.runtime.driver.threads import NodeThreads
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.replay_fold import RunFold
from agentruns.runtime.replay_reading import HistoryReading, read_window
from agentruns.runtime.replay_windows import ReadingBounds
from agentruns.store.journal import RunHistory, Window
from agentruns.store.unit_of_work import UnitOfWork

#: Definitions that are kept decoded; runs of a tenant share few of them.
_KEPT: Final = 64
_LIMIT: Final = GraphReplayLimits().maximum_barrier_result_bytes


@define
class FoldLaw:
    """Fold each run of a batch. Without its application states are taken as recorded and user schemas are not asked.

    Attributes:
        executables: graphs of an application; those are folded with their own reducers and schemas.
        unproven: how many runs were folded without.
    """

    executables: ExecutableGraphRegistry | None = None
    label: str = "LED-1"
    sentence: str = "the fold of all events gives the run row and every row of the run"
    unproven: int = 0
    _admissions: AdmissionReader = field(factory=AdmissionReader, init=False)
    _threads: NodeThreads = field(factory=partial(NodeThreads, 1, name="agentruns-audit"), init=False)
    _definitions: dict[tuple[TenantId, Digest], CompiledGraph] = field(factory=dict, init=False)

    async def find(self, snapshot: Snapshot, batch: Batch) -> list[Finding]:
        """Fold the runs of the batch, one after the other; the first thing that contradicts is the finding of a run."""
        found = [await self._of_run(snapshot, key) for key, _ in batch.runs]
        return [each for each in found if each is not None]

    async def _of_run(self, snapshot: Snapshot, key: Key) -> Finding | None:
        fold: RunFold | None = None
        try:
            tenant_id, run_id = ids_of(key)
            seed, window = RunState.empty(tenant_id, run_id), Window()
            history = await read_window(snapshot, seed, window)
            fold = await self._begun(snapshot, seed, history)
            await self._folded(snapshot, fold, window, history)
        except CorruptDataError as error:
            at = f"sequence={fold.sequence + 1}" if fold is not None and "." not in error.component else ""
            return derived(error, key, label=self.label, law=self.sentence, at=at)
        except ExecutableGraphUnavailableError as error:
            return self._unavailable(error, key)
        return None

    async def _begun(self, snapshot: Snapshot, seed: RunState, history: RunHistory) -> RunFold:
        pinned = history.run["graph_definition_digest"]
        if pinned is None:
            raise CorruptDataError(component="runs.graph_definition_digest")
        installed = self._installed(Digest(pinned))
        if installed is not None:
            return RunFold(seed, installed, self._admissions.read, _LIMIT)
        self.unproven += 1
        graph, reducer = recorded_graph(await self._definition(snapshot, seed.tenant_id, Digest(pinned)))
        return RecordedFold(seed, graph, self._admissions.read, _LIMIT, reducer=reducer)

    async def _folded(self, snapshot: Snapshot, fold: RunFold, window: Window, history: RunHistory) -> None:
        reading = HistoryReading(store=snapshot, threads=self._threads, bounds=ReadingBounds(), fold=fold)
        if window.brought(history):
            await reading.add(history.rows, window)
        else:
            history = await reading.follow(history)
        fold.finish(history)

    def _installed(self, digest: Digest) -> ExecutableGraph | None:
        if self.executables is None:
            return None
        try:
            return self.executables.resolve(digest)
        except ExecutableGraphUnavailableError:
            return None

    async def _definition(self, snapshot: Snapshot, tenant_id: TenantId, digest: Digest) -> CompiledGraph:
        named = tenant_id, digest
        if named not in self._definitions:
            found = await snapshot.read(partial(_definition, tenant_id, digest))
            if found is None:
                raise CorruptDataError(component="row", reason="graph_definitions")
            if len(self._definitions) >= _KEPT:
                self._definitions.pop(next(iter(self._definitions)))
            self._definitions[named] = found
        return self._definitions[named]

    def _unavailable(self, error: ExecutableGraphUnavailableError, key: Key) -> Finding:
        """Say that a run cannot be read: that is a finding, and no reason to stop."""
        return Finding(
            label=self.label,
            law=self.sentence,
            tenant_id=key[0],
            run_id=key[1],
            table="runs",
            found=f"a run that cannot be folded here ({error.reason})",
            wanted="one that can",
        )


def _definition(tenant_id: TenantId, digest: Digest, work: UnitOfWork) -> CompiledGraph | None:
    return work.graphs.find(tenant_id, digest)
