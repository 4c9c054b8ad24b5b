"""Explain a run, with what only this process's graphs can tell."""

from __future__ import annotations

from attrs import evolve

from agentruns.domain.explanation.explanation import RunExplanation
from agentruns.domain.explanation.facts import ObservedRun
from agentruns.domain.explanation.rules import explained
from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.errors import AgentRunsError, BarrierRejectedError
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.replay import RunReader
from agentruns.runtime.store import AgentRunStore


class RunExplainer:
    """Say why runs do not progress.

    Args:
        store: where the runs are.
        executables: graphs of this process.
    """

    def __init__(self, store: AgentRunStore, executables: ExecutableGraphRegistry) -> None:
        self._store = store
        self._digests = frozenset(executables.graph_digests)
        self._reader = RunReader(store, executables)

    async def explain(self, tenant_id: TenantId, run_id: RunId) -> RunExplanation:
        """Explain a run from its rows.

        Only where every node of a run that nobody holds has succeeded, and still it stands at their superstep, the
        record is read as a worker would read it: whether its results can be joined is for the graph's reducer to say.
        """
        run, conditions = await self._store.read(lambda work: work.explanations.seen(tenant_id, run_id))
        if conditions is not None and run.may_have_ended_its_superstep and self._has_graph_of(run):
            conditions = evolve(conditions, rejection=await self._rejection(run))
        return explained(run, conditions, graph_digests=self._digests)

    def _has_graph_of(self, run: ObservedRun) -> bool:
        return run.graph is not None and run.graph.digest in self._digests

    async def _rejection(self, run: ObservedRun) -> str | None:
        """Try to join the results of the superstep; what else is wrong with the run is for a load to say."""
        try:
            replayed = await self._reader.read(run.tenant_id, run.run_id)
            state = replayed.state
            ready = () if state.checkpoint is None else state.checkpoint.ready_nodes
            if state.superstep.value == run.superstep and state.results.keys() == set(ready):
                state.barrier(replayed.graph)
        except BarrierRejectedError as error:
            return error.reason
        except (AgentRunsError, MemoryError):
            return None
        return None
