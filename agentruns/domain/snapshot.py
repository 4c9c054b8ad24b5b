"""The public view of a run: what was verified on reading, and nothing private."""

from __future__ import annotations

from attrs import field, frozen

from agentruns.domain.digests import Digest
from agentruns.domain.identity import GraphReference
from agentruns.domain.ids import RunId
from agentruns.domain.members import check_members
from agentruns.domain.numbers import RunRevision
from agentruns.domain.outcome import AgentRunTerminalOutcome, SucceededOutcome
from agentruns.domain.result import AgentResultProvenance
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import InvalidValueError


@frozen(kw_only=True)
class RunObservation:
    """Name a state of a run's lifecycle: the same observation, the same lifecycle."""

    run_id: RunId
    revision: RunRevision


@frozen(kw_only=True)
class AgentRunSnapshot:
    """Show a run to its caller.

    Attributes:
        provenance: which run of which agent it is.
        graph: the exact graph that it is pinned to.
        admission_digest: of what was admitted.
        admitted_at: instant of the admission.
        revision: number of lifecycle transitions so far, at least 1.
        status: any but ``pending``.
        changed_at: instant of the last transition.
        quarantined: somebody has to look at the run before it goes on. May become true without a new revision.
        outcome: how it ended, once it is over.
    """

    provenance: AgentResultProvenance
    graph: GraphReference
    admission_digest: Digest
    admitted_at: Timestamp
    revision: RunRevision
    status: RunStatus
    changed_at: Timestamp
    quarantined: bool
    outcome: AgentRunTerminalOutcome | None = field(metadata={"nullable": True})

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if self.status is RunStatus.PENDING:
            raise _refused("pending_atomic_admission")
        if int(self.revision) == 0:
            raise _refused("zero_revision")
        if self.changed_at < self.admitted_at:
            raise _refused("clock_regression")
        self._check_outcome()

    def _check_outcome(self) -> None:
        """Check the outcome against the rest. Its failure's category was checked when it was made."""
        outcome = self.outcome
        expected = self.status.value if self.status.is_terminal else None
        if (None if outcome is None else outcome.kind) != expected:
            raise _refused("outcome_status_mismatch")
        if outcome is None:
            return
        if outcome.completed_at != self.changed_at:
            raise _refused("completion_time_mismatch")
        if isinstance(outcome, SucceededOutcome) and outcome.result.provenance != self.provenance:
            raise _refused("result_provenance_mismatch")

    @property
    def observation(self) -> RunObservation:
        """What was seen of the lifecycle. Quarantine is outside it."""
        return RunObservation(run_id=self.provenance.run_id, revision=self.revision)


def _refused(reason: str) -> InvalidValueError:
    return InvalidValueError(type_name="AgentRunSnapshot", reason=reason)
