"""One run that a test drives by hand, commit by commit, without a database."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from attrs import define, evolve, field, frozen

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import JsonTree
from agentruns.domain.digests import Digest
from agentruns.domain.failure import Failure, RetryAdvice, SafeAfter
from agentruns.domain.graph.bindings import settled_bindings
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.results import ContinueControl, NodeControl, NodeFailure, NodeResult, Unchanged, Update
from agentruns.domain.ids import AttemptId, CheckpointId, EventId
from agentruns.domain.kept import KeptBytes
from agentruns.domain.ledger.bodies import NO_BODIES, BodyRow
from agentruns.domain.ledger.commit import CommitBuilder, DraftedCommit
from agentruns.domain.ledger.counting import usage_with_output
from agentruns.domain.ledger.data import EventData
from agentruns.domain.ledger.drafts import (
    AdmissionDraft,
    BarrierIds,
    CancellationDraft,
    CancellationRequestDraft,
    Completion,
    FailureDraft,
    Start,
    SuccessDraft,
    SuperstepDraft,
    WaitDraft,
)
from agentruns.domain.ledger.event import Event
from agentruns.domain.ledger.outcomes import CancellationRequest, StoredCancellation, StoredFailure, StoredSuccess
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import DurationMillis, FencingEpoch
from agentruns.domain.scalars import NodeId
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import AgentRunsError, CorruptDataError, InvariantError
from agentruns.testing.histories import BEGIN, as_stored, sample_request
from agentruns.testing.samples import cancellation, failure, sample_id


@frozen(kw_only=True)
class Refusal:
    """Hold how one illegal event is refused.

    Attributes:
        component: the rule that a stored one breaks.
        reason: what of the rule.
        error: what one that is being built raises.
        superstep: that the finding names.
    """

    component: str
    reason: str
    error: AgentRunsError
    superstep: int | None = None

    def is_fault(self, component: str, reason: str = "") -> bool:
        """Tell whether that rule is broken, one that no caller of the library could have broken."""
        stated = f"{component}:{reason}" if reason else component
        is_fault = isinstance(self.error, InvariantError) and self.error.reason == stated
        return is_fault and (self.component, self.reason) == (component, reason)


def rows_of(*records: KeptBytes) -> dict[Digest, BodyRow]:
    """Give the rows of bodies that are being written."""
    return {record.digest: BodyRow.of(record) for record in records}


@define
class ScriptedRun:
    """Drive a run of a graph. Every method appends one legal commit and gives it.

    Attributes:
        graph: the run's.
        now: the database's clock; tests move it.
        epoch: of the live fence; tests raise it.
        commits: all of them, the admission first.
    """

    graph: ExecutableGraph
    now: Timestamp = BEGIN
    epoch: FencingEpoch = FencingEpoch(1)  # noqa: RUF009  # immutable
    commits: list[DraftedCommit] = field(factory=list)
    numbers: count[int] = field(factory=lambda: count(1000))

    def __attrs_post_init__(self) -> None:
        self.commits.append(AdmissionDraft.of(sample_request(self.graph), self.graph).build(self.now))

    @property
    def state(self) -> RunState:
        """The run after the last commit."""
        return self.commits[-1].state

    def start(self, node: str) -> DraftedCommit:
        """Start the next attempt of a node."""
        start = Start(node_id=NodeId(node), event_id=self.event_id(), attempt_id=self.attempt_id())
        return self._keep(self._superstep(starts=(start,)).build(self.now))

    def complete(
        self,
        node: str,
        control: NodeControl | None = None,
        *,
        update: JsonTree = None,
        usage: BudgetUsage | None = None,
    ) -> DraftedCommit:
        """End a node's attempt well; by default it continues and leaves the state as it is."""
        result = NodeResult(
            state_change=Unchanged() if update is None else Update(data=BoundedJson.of(update)),
            control=control or ContinueControl(),
            bindings=settled_bindings(NodeId(node), self.state.invocations),
            usage=usage or BudgetUsage.zero(),
        )
        return self._complete(node, result)

    def fail_attempt(
        self, node: str, *, retry_after: int | None = None, because: Failure | None = None
    ) -> DraftedCommit:
        """End a node's attempt badly; ``retry_after`` milliseconds it may be repeated."""
        advice: RetryAdvice | None = None if retry_after is None else SafeAfter(delay=DurationMillis(retry_after))
        reason = failure(retry_advice=advice) if because is None else because
        return self._complete(node, NodeFailure(failure=reason, usage=BudgetUsage.zero()))

    def run_node(self, node: str, control: NodeControl | None = None, *, update: JsonTree = None) -> DraftedCommit:
        """Start a node and end it well."""
        self.start(node)
        return self.complete(node, control, update=update)

    def go_on(self) -> DraftedCommit:
        """Begin the next superstep."""
        barrier = BarrierIds(event_id=self.event_id(), checkpoint_id=self.checkpoint_id())
        return self._keep(self._superstep(barrier=barrier).build(self.now))

    def suspend(self) -> DraftedCommit:
        """Let the run wait."""
        draft = WaitDraft(
            state=self.state,
            graph=self.graph,
            epoch=self.epoch,
            event_id=self.event_id(),
            checkpoint_id=self.checkpoint_id(),
        )
        return self._keep(draft.build(self.now))

    def succeed(self) -> DraftedCommit:
        """End the run with its output."""
        output = self.state.barrier(self.graph).output or BoundedJson.of(None)
        draft = SuccessDraft(
            state=self.state,
            graph=self.graph,
            epoch=self.epoch,
            event_id=self.event_id(),
            checkpoint_id=self.checkpoint_id(),
            outcome=StoredSuccess(output=output, artifacts=(), usage=usage_with_output(self.state.usage, output)),
        )
        return self._keep(draft.build(self.now))

    def fail(self, *, by_worker: bool = True) -> DraftedCommit:
        """End the run by a failure."""
        draft = FailureDraft(
            state=self.state,
            graph=self.graph,
            epoch=self.epoch if by_worker else None,
            event_id=self.event_id(),
            outcome=StoredFailure(failure=failure(), usage=self.state.usage),
        )
        return self._keep(draft.build(self.now))

    def request_cancellation(self) -> DraftedCommit:
        """Ask for the end of the run."""
        request = CancellationRequest(failure=cancellation())
        draft = CancellationRequestDraft(state=self.state, event_id=self.event_id(), request=request)
        return self._keep(draft.build(self.now))

    def confirm_cancellation(self) -> DraftedCommit:
        """End the run as was requested."""
        outcome = StoredCancellation(usage=self.state.usage)
        draft = CancellationDraft(state=self.state, epoch=self.epoch, event_id=self.event_id(), outcome=outcome)
        return self._keep(draft.build(self.now))

    def append(self, data: EventData, bodies: Mapping[Digest, BodyRow] = NO_BODIES, *, epoch: int) -> DraftedCommit:
        """Append any event, legal or refused."""
        builder = CommitBuilder(before=self.state, graph=self.graph, epoch=epoch, stamp=self.now)
        builder.append(self.event_id(), data, bodies)
        return self._keep(builder.finish())

    def refusal(
        self,
        data: EventData,
        bodies: Mapping[Digest, BodyRow] = NO_BODIES,
        *,
        epoch: int = 1,
        graph: ExecutableGraph | None = None,
    ) -> Refusal:
        """Say how an event is refused that would follow, both when it is stored and while it is being built.

        Raises:
            AssertionError: it is legal, or the state changed.
        """
        state, event, before = self.state, self.event(data, epoch=epoch), evolve(self.state)
        stored = {digest: evolve(row, record=None) for digest, row in bodies.items()}
        try:
            state.apply(as_stored(event), stored, graph or self.graph)
        except CorruptDataError as error:
            found = error
        else:
            raise AssertionError("a stored event is legal")
        try:
            state.extend(event, bodies, graph or self.graph)
        except AgentRunsError as error:
            refusal = error
        else:
            raise AssertionError("an event that is being built is legal")
        assert state == before  # noqa: S101  # the method is an assertion
        return Refusal(component=found.component, reason=found.reason, error=refusal, superstep=found.superstep)

    def event(self, data: EventData, *, epoch: int) -> Event:
        """Make the event that would follow, legal or not."""
        return Event.following(
            self.state.head,
            tenant_id=self.state.tenant_id,
            run_id=self.state.run_id,
            event_id=self.event_id(),
            recorded_at=self.now,
            epoch=epoch,
            data=data,
        )

    def event_id(self) -> EventId:
        """Give an id that no other event has."""
        return sample_id(EventId, next(self.numbers))

    def attempt_id(self) -> AttemptId:
        """Give an id that no other attempt has."""
        return sample_id(AttemptId, next(self.numbers))

    def checkpoint_id(self) -> CheckpointId:
        """Give an id that no other checkpoint has."""
        return sample_id(CheckpointId, next(self.numbers))

    def _complete(self, node: str, body: NodeResult | NodeFailure) -> DraftedCommit:
        completion = Completion(node_id=NodeId(node), event_id=self.event_id(), body=body)
        return self._keep(self._superstep(completions=(completion,)).build(self.now))

    def _superstep(
        self,
        *,
        completions: tuple[Completion, ...] = (),
        barrier: BarrierIds | None = None,
        starts: tuple[Start, ...] = (),
    ) -> SuperstepDraft:
        return SuperstepDraft(
            state=self.state,
            graph=self.graph,
            epoch=self.epoch,
            completions=completions,
            barrier=barrier,
            starts=starts,
        )

    def _keep(self, commit: DraftedCommit) -> DraftedCommit:
        self.commits.append(commit)
        return commit
