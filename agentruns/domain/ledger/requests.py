"""The commits of the control plane: an admission, a request to cancel, what settles a wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from attrs import field, frozen

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import Digest
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.ids import CheckpointId, EventId, WaitId
from agentruns.domain.ledger.bodies import BodyRow
from agentruns.domain.ledger.checkpoint import Checkpoint, state_digest
from agentruns.domain.ledger.commit import CommitBuilder, DraftedCommit
from agentruns.domain.ledger.data import AgentAdmitted, CancellationRequested, InterruptResolved, TimerFired
from agentruns.domain.ledger.kinds import EventKind
from agentruns.domain.ledger.outcomes import CancellationRequest
from agentruns.domain.ledger.rows import AdmissionRow, CheckpointRow, OutcomeRow, SettlementRow
from agentruns.domain.ledger.state import RunState
from agentruns.domain.submission import DurableAgentAdmissionRequest
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.waits import WaitResolution


@frozen(kw_only=True)
class AdmissionDraft:
    """Begin a run. All but the event's envelope and the run row is ready before the clock is known."""

    intent: AgentAdmissionIntent
    submission_digest: Digest
    event_id: EventId
    checkpoint_id: CheckpointId
    initial_state: BoundedJson = field(repr=False)
    graph: ExecutableGraph
    data: AgentAdmitted = field(init=False, eq=False)

    @data.default
    def _pinned(self) -> AgentAdmitted:
        intent, graph = self.intent, self.graph
        checkpoint = Checkpoint.initial(
            self.checkpoint_id,
            graph_digest=graph.digest,
            entry_nodes=graph.definition.entry_nodes,
            state_digest=state_digest(self.initial_state.data),
        )
        return AgentAdmitted(
            admission_digest=intent.digest,
            submission_digest=self.submission_digest,
            checkpoint_digest=checkpoint.digest,
            graph_digest=graph.digest,
            input_digest=intent.request.input.digest,
            policy_digest=intent.authority.policy_digest,
        )

    @classmethod
    def of(cls, request: DurableAgentAdmissionRequest, graph: ExecutableGraph) -> Self:
        """Take what a caller submits."""
        return cls(
            intent=request.intent,
            submission_digest=request.submission_digest,
            event_id=request.admission_event_id,
            checkpoint_id=request.initial_checkpoint_id,
            initial_state=request.initial_state.data,
            graph=graph,
        )

    def build(self, stamp: Timestamp) -> DraftedCommit:
        """Build the commit at a stamp.

        Raises:
            AgentAdmissionRejectedError: ``deadline``.
            ExecutableGraphUnavailableError: this process cannot validate the state.
        """
        intent = self.intent
        seed = RunState.empty(intent.provenance.tenant_id, intent.provenance.run_id)
        builder = CommitBuilder(before=seed, graph=self.graph, epoch=0, stamp=stamp)
        bodies = {
            self.data.admission_digest: BodyRow.of(intent),
            self.data.checkpoint_digest: BodyRow.of_state(self.checkpoint_id, self.initial_state),
        }
        event = builder.append(self.event_id, self.data, bodies)
        builder.checkpoint = CheckpointRow.of(builder.state)
        agent = intent.provenance.agent.capability
        builder.admission = AdmissionRow(
            body=intent.canonical,
            admission_digest=self.data.admission_digest,
            submission_digest=self.submission_digest,
            agent_name=str(agent.name),
            agent_version=str(agent.version),
            sequence=event.sequence,
        )
        return builder.finish()


@frozen(kw_only=True)
class CancellationRequestDraft:
    """Ask for the end of a run, whose state may be made from the ends of its evidence.

    Attributes:
        by_deadline: because the deadline has come, not because somebody asked.
    """

    state: RunState
    event_id: EventId
    request: CancellationRequest
    by_deadline: bool = False

    def build(self, stamp: Timestamp) -> DraftedCommit:
        """Build the commit at a stamp.

        Raises:
            RunNotRunnableError: the run is over, or its end is requested already.
        """
        state, request = self.state, self.request
        builder = CommitBuilder(before=state, graph=None, epoch=0, stamp=stamp)
        data = CancellationRequested(
            kind=EventKind.DEADLINE_CANCELLATION_REQUESTED if self.by_deadline else EventKind.CANCELLATION_REQUESTED,
            superstep=state.superstep,
            revision=state.revision.next(),
            request_digest=request.digest,
            abandoned=abandoned(state),
        )
        event = builder.append(self.event_id, data, {request.digest: BodyRow.of(request)})
        builder.outcome = OutcomeRow(
            kind="cancellation", body=request.canonical, digest=request.digest, sequence=event.sequence
        )
        builder.settlements.extend(settlements(builder))
        return builder.finish()


@frozen(kw_only=True)
class ResolutionDraft:
    """Settle an interrupt by an answer."""

    state: RunState
    event_id: EventId
    wait_id: WaitId
    resolution: WaitResolution

    def build(self, stamp: Timestamp) -> DraftedCommit:
        """Build the commit at a stamp.

        Raises:
            NotFoundError: the run has no such interrupt.
            WaitAlreadySettledError: it is over.
            ResolverNotPermittedError: the resolver is another one, or lacks scopes.
        """
        builder = CommitBuilder(before=self.state, graph=None, epoch=0, stamp=stamp)
        resolution = self.resolution
        data = InterruptResolved(
            wait_id=self.wait_id, revision=self.state.revision.next(), resolution_digest=resolution.digest
        )
        builder.append(self.event_id, data, {resolution.digest: BodyRow.of(resolution)})
        builder.settlements.extend(settlements(builder, resolution))
        return builder.finish()


@frozen(kw_only=True)
class FiringDraft:
    """Settle a timer that is due."""

    state: RunState
    event_id: EventId
    wait_id: WaitId

    def build(self, stamp: Timestamp) -> DraftedCommit:
        """Build the commit at a stamp.

        Raises:
            NotFoundError: the run has no such timer.
            WaitAlreadySettledError: it is over.
        """
        builder = CommitBuilder(before=self.state, graph=None, epoch=0, stamp=stamp)
        builder.append(self.event_id, TimerFired(wait_id=self.wait_id, revision=self.state.revision.next()))
        builder.settlements.extend(settlements(builder))
        return builder.finish()


def abandoned(state: RunState) -> tuple[WaitId, ...]:
    """Name the waits that an end abandons: all outstanding ones, in order."""
    return tuple(wait.wait_id for wait in state.waits)


def settlements(builder: CommitBuilder, resolution: WaitResolution | None = None) -> Iterator[SettlementRow]:
    """Say what moves in the rows of the waits that the commit settles."""
    known = {wait.wait_id for wait in builder.before.settled}
    for wait in builder.state.settled:
        if wait.wait_id not in known:
            yield SettlementRow(
                wait_id=wait.wait_id,
                status=wait.how,
                settled_sequence=wait.sequence,
                resolution=None if resolution is None else resolution.canonical,
                resolution_digest=wait.resolution_digest,
            )
