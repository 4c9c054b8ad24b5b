"""What every drive of a driver shares, and the two steps that need more than one of its parts."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from attrs import evolve, frozen

from agentruns.domain.digests import plain_digest
from agentruns.domain.failure_codes import NODE_INVALID_RESULT
from agentruns.domain.failure_details import reason_details
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.results import NodeResult, WaitControl
from agentruns.domain.ids import QuarantineId
from agentruns.domain.lease import RunFence
from agentruns.domain.ledger.findings import quarantine_cause
from agentruns.domain.ledger.superstep import Completion, SuperstepDraft
from agentruns.domain.quarantine import Quarantine
from agentruns.domain.scalars import NodeId
from agentruns.errors import CorruptDataError, LeaseLostError, RunQuarantinedError, StaleHeadError
from agentruns.runtime.committer import RunCommitter
from agentruns.runtime.driver.completions import failed_attempt
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.runtime.driver.report import GraphDriveReport
from agentruns.runtime.driver.threads import NodeThreads
from agentruns.runtime.replay import ReplayedRun, RunReader
from agentruns.runtime.store import AgentRunStore


@frozen(kw_only=True, eq=False)
class DriveParts:
    """Hold the parts of a drive.

    Attributes:
        report: of this drive alone; all else is shared.
    """

    store: AgentRunStore
    reader: RunReader
    committer: RunCommitter
    threads: NodeThreads
    options: DurableGraphDriverOptions
    report: GraphDriveReport

    async def read(self, fence: RunFence) -> ReplayedRun:
        """Fold the run's record; one that contradicts itself isolates the run under the live fence.

        Raises:
            RunQuarantinedError: the record does not verify; nothing of the run was executed for it.
            LeaseLostError: the same, but the fence is gone, so nothing was written.
        """
        try:
            replayed = await self.reader.read(fence.tenant_id, fence.run_id)
        except CorruptDataError as error:
            finding = error
        else:
            self.report.replay = replayed.report
            return replayed
        raise await self._quarantine(fence, finding)

    async def _quarantine(self, fence: RunFence, finding: CorruptDataError) -> RunQuarantinedError:
        seen = await self.store.observe(fence)
        quarantine = Quarantine(
            quarantine_id=QuarantineId.generate(),
            cause=quarantine_cause(finding),
            component=finding.component,
            evidence_digest=plain_digest(finding.component.encode("ascii")),
            expected_head=seen.head.digest,
            epoch=fence.epoch,
        )
        answer = await self.store.run(
            lambda work: work.quarantines.add_claimed(fence, head=seen.head, quarantine=quarantine)
        )
        word = "stale_fence" if answer is None else answer.word
        if word in ("done", "quarantined"):
            mine = quarantine.quarantine_id if word == "done" else None
            return RunQuarantinedError(tenant_id=fence.tenant_id, run_id=fence.run_id, quarantine_id=mine)
        if word == "head":
            raise StaleHeadError(tenant_id=fence.tenant_id, run_id=fence.run_id, reason="recovery")
        reason = word if word in ("no_lease", "expired") else "stale_fence"
        raise LeaseLostError(tenant_id=fence.tenant_id, run_id=fence.run_id, reason=reason)

    def check_threads(self, graph: ExecutableGraph, batch: Sequence[NodeId]) -> None:
        """Refuse to start a node that needs a thread when nodes that never ended hold all of them.

        Raises:
            DeploymentError: ``node_threads_exhausted``.
        """
        if any(not inspect.iscoroutinefunction(graph.executors[node_id].execute) for node_id in batch):
            self.threads.check_available()


def without_reused_waits(draft: SuperstepDraft) -> SuperstepDraft:
    """Turn results that bring a wait id which the run has used before into failed attempts."""
    return evolve(draft, completions=tuple(_without_waits(completion) for completion in draft.completions))


def _without_waits(completion: Completion) -> Completion:
    if not isinstance(completion.body, NodeResult) or not isinstance(completion.body.control, WaitControl):
        return completion
    body = failed_attempt(NODE_INVALID_RESULT, details=reason_details("wait_id_reused"))
    return evolve(completion, body=body)
