"""What every drive of a driver shares, and the steps that need more than one of its parts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, TypeVar

from attrs import evolve, frozen

from agentruns.domain.digests import plain_digest
from agentruns.domain.failure_codes import NODE_INVALID_RESULT
from agentruns.domain.failure_details import reason_details
from agentruns.domain.graph.barrier import BarrierPlan
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.results import NodeResult, WaitControl
from agentruns.domain.ids import QuarantineId, WaitId
from agentruns.domain.lease import RunFence
from agentruns.domain.ledger.findings import quarantine_cause, quarantine_component
from agentruns.domain.ledger.state import RunState
from agentruns.domain.ledger.superstep import Completion, SuperstepDraft
from agentruns.domain.quarantine import Quarantine
from agentruns.domain.scalars import NodeId
from agentruns.errors import CorruptDataError, InvariantError, LeaseLostError, RunQuarantinedError, StaleHeadError
from agentruns.runtime.committer import RunCommitter
from agentruns.runtime.driver.completions import failed_attempt
from agentruns.runtime.driver.computing import computed
from agentruns.runtime.driver.ending import SuccessAtOnce
from agentruns.runtime.driver.loop_watch import LoopWatch
from agentruns.runtime.driver.node_task import NodeTask
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.runtime.driver.threads import NodeThreads
from agentruns.runtime.replay import ReplayedRun, RunReader
from agentruns.runtime.result_limit import check_result_bytes, result_bytes, state_bytes
from agentruns.runtime.settled_waits import read_settled
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.telemetry.counts import run_quarantined
from agentruns.store.journal import RunHistory
from agentruns.store.run_owner import check_owner
from agentruns.store.waits import WaitLookup

T = TypeVar("T")


@frozen(kw_only=True, eq=False)
class DriveParts:
    """Hold the parts that drives share.

    Attributes:
        threads: for nodes.
        computing: for what the driver itself computes from large documents.
        success: gives what a run ends with in the commit of its last completion.
    """

    store: AgentRunStore
    reader: RunReader
    committer: RunCommitter
    threads: NodeThreads
    computing: NodeThreads
    watch: LoopWatch
    options: DurableGraphDriverOptions
    success: SuccessAtOnce | None

    async def read(self, fence: RunFence, *, history: RunHistory | None = None) -> ReplayedRun:
        """Fold the run's record; one that contradicts itself isolates the run under the live fence.

        Raises:
            RunQuarantinedError: the record does not verify, or somebody isolated the run; nothing of it was executed.
            LeaseLostError: the fence is not the live one; nothing was written, whatever the record says.
            RunNotRunnableError: somebody has ended the run.
        """
        replayed = await self.isolating(fence, self.reader.read(fence.tenant_id, fence.run_id, history=history))
        check_owner(fence, replayed.history)
        return replayed

    async def isolating(self, fence: RunFence, work: Coroutine[Any, Any, T]) -> T:
        """Do what may find that the run's record contradicts itself, and isolate the run under the live fence if so.

        Raises:
            RunQuarantinedError: it does, or somebody isolated the run.
            LeaseLostError: the fence is not the live one; nothing was written, whatever the record says.
        """
        try:
            return await work
        except CorruptDataError as error:
            finding = error
        raise await self._quarantine(fence, finding)

    async def planned(self, state: RunState, graph: ExecutableGraph) -> BarrierPlan:
        """Plan a barrier, if the results that it is planned from are not more than this process holds at once.

        Raises:
            BarrierRejectedError: the run fails.
            CorruptDataError: what the results stand on contradicts the graph: to be done under :meth:`isolating`.
            ExecutableGraphUnavailableError: ``result_limit``, or this process cannot plan it now.
        """
        size = result_bytes(state.results.values())
        check_result_bytes(
            graph.digest,
            superstep=state.superstep.value,
            size=size,
            limit=self.options.replay.maximum_barrier_result_bytes,
        )
        return await self.computed(partial(state.barrier, graph), size=size + state_bytes(state))

    async def computed(self, call: Callable[[], T], *, size: int) -> T:
        """Compute something from ``size`` bytes beside the event loop, if they are many."""
        return await computed(call, size=size, threads=self.computing)

    async def _quarantine(self, fence: RunFence, finding: CorruptDataError) -> RunQuarantinedError:
        head, component = await self.store.observe_version(fence), quarantine_component(finding)
        quarantine = Quarantine(
            quarantine_id=QuarantineId.generate(),
            cause=quarantine_cause(finding),
            component=component,
            evidence_digest=plain_digest(component.encode("ascii")),
            expected_head=head.digest,
            epoch=fence.epoch,
        )
        answer = await self.store.run(
            lambda work: work.quarantines.add_claimed(fence, head=head, quarantine=quarantine)
        )
        word = "stale_fence" if answer is None else answer.word
        if word in ("done", "quarantined"):
            mine = quarantine.quarantine_id if word == "done" else None
            if mine is not None:
                run_quarantined(quarantine.cause)
            named = None if mine is None else component
            return RunQuarantinedError(
                tenant_id=fence.tenant_id, run_id=fence.run_id, quarantine_id=mine, component=named
            )
        if word == "head":
            raise StaleHeadError(tenant_id=fence.tenant_id, run_id=fence.run_id, reason="recovery")
        reason = word if word in ("no_lease", "expired") else "stale_fence"
        raise LeaseLostError(tenant_id=fence.tenant_id, run_id=fence.run_id, reason=reason)

    def begun(self, graph: ExecutableGraph, state: RunState, batch: Sequence[NodeId]) -> list[NodeTask]:
        """Begin to call the code of nodes that a drive has started."""
        seconds = self.options.node_execution_timeout.total_seconds()
        read_waits = partial(read_settled, self.store, state)
        return [
            NodeTask(graph, state, node_id, seconds=seconds, read_waits=read_waits, threads=self.threads)
            for node_id in batch
        ]

    def check_threads(self, graph: ExecutableGraph, batch: Sequence[NodeId]) -> None:
        """Refuse to start a node that needs a thread when nodes that never ended hold all of them.

        Raises:
            DeploymentError: ``node_threads_exhausted``.
        """
        if not graph.threaded.isdisjoint(batch):
            self.threads.check_available()

    async def without_reused_waits(self, draft: SuperstepDraft) -> SuperstepDraft:
        """Turn results that bring a wait id which the run has used before into failed attempts.

        The statement that refused the commit does not say which ids these are, and a state holds no earlier ones.

        Raises:
            InvariantError: ``wait_id``; the run has used none of them.
        """
        ids = tuple(wait_id for completion in draft.completions for wait_id in _wait_ids(completion))
        lookup = WaitLookup(tenant_id=draft.state.tenant_id, run_id=draft.state.run_id, wait_ids=ids)
        (rows,) = await self.store.read(lambda work: work.waits.find([lookup]))
        used = {wait_id for wait_id, row in zip(ids, rows, strict=True) if row is not None}
        if not used:
            raise InvariantError(reason="wait_id")
        return evolve(draft, completions=tuple(_without(used, completion) for completion in draft.completions))


def _wait_ids(completion: Completion) -> tuple[WaitId, ...]:
    body = completion.body
    if not isinstance(body, NodeResult) or not isinstance(body.control, WaitControl):
        return ()
    return tuple(wait.wait_id for wait in body.control.waits)


def _without(used: AbstractSet[WaitId], completion: Completion) -> Completion:
    if used.isdisjoint(_wait_ids(completion)):
        return completion
    body = failed_attempt(NODE_INVALID_RESULT, details=reason_details("wait_id_reused"))
    return evolve(completion, body=body)
