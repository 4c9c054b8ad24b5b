"""Runs brought somewhere by the rules of the fold: every status that a run can have, without a database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final, Protocol

from attrs import define, field

from agentruns.domain.artifacts import AgentArtifacts
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.results import (
    ContinueControl,
    NodeControl,
    NodeFailure,
    NodeResult,
    TerminalControl,
    Unchanged,
    WaitControl,
)
from agentruns.domain.ids import AttemptId, CheckpointId, EventId
from agentruns.domain.ledger.drafts import (
    BarrierIds,
    CancellationDraft,
    CancellationRequestDraft,
    Completion,
    DraftedCommit,
    FailureDraft,
    FiringDraft,
    Start,
    SuccessDraft,
    SuperstepDraft,
    WaitDraft,
)
from agentruns.domain.ledger.outcomes import CancellationRequest, StoredCancellation, StoredFailure, StoredSuccess
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import FencingEpoch
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scalars import JournalEventKind, NodeId
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.usage import BudgetUsage
from agentruns.domain.waits import NodeWait
from agentruns.errors import InvariantError
from agentruns.testing import samples

#: Of the worker that drives every story.
EPOCH: Final = FencingEpoch(1)
#: What a run that succeeds gives, and used.
OUTPUT: Final = BoundedJson.of({"answer": 42})
USAGE: Final = BudgetUsage.of(graph_steps=2, input_bytes=64, output_bytes=64)


class Draft(Protocol):
    """Build a commit at a stamp."""

    def build(self, stamp: Timestamp, /) -> DraftedCommit:
        """Give the commit."""
        ...


@define
class Story:
    """Bring a run of a graph ``a`` to ``b`` somewhere, commit by commit; ``a`` may wait and ``b`` ends.

    Attributes:
        state: where the run stands.
        commits: what led there from the admission, which is not among them.
    """

    graph: ExecutableGraph
    state: RunState
    commits: list[DraftedCommit] = field(factory=list)

    def append(self, draft: Draft) -> None:
        """Build a commit a millisecond after the head."""
        if self.state.head is None:
            raise InvariantError(reason="seed")
        commit = draft.build(self.state.head.recorded_at.plus_micros(1_000))
        self.commits.append(commit)
        self.state = commit.state

    def start(self, node: str) -> None:
        """Start the next attempt of a node."""
        starts = (Start(node_id=NodeId(node), event_id=EventId.generate(), attempt_id=AttemptId.generate()),)
        self.append(SuperstepDraft(state=self.state, graph=self.graph, epoch=EPOCH, starts=starts))

    def complete(self, node: str, body: NodeResult | NodeFailure, *, goes_on: bool = False) -> None:
        """End the attempt of a node; with ``goes_on`` the next superstep begins."""
        done = (Completion(node_id=NodeId(node), event_id=EventId.generate(), body=body),)
        ids = BarrierIds(event_id=EventId.generate(), checkpoint_id=CheckpointId.generate()) if goes_on else None
        self.append(SuperstepDraft(state=self.state, graph=self.graph, epoch=EPOCH, completions=done, barrier=ids))

    def drive(self) -> None:
        """Node a is over, node b begins."""
        self.start("a")
        self.complete("a", result(ContinueControl()), goes_on=True)
        self.start("b")

    def succeed(self) -> None:
        """End the run with its output."""
        self.drive()
        self.complete("b", result(TerminalControl(output=OUTPUT)))
        outcome = StoredSuccess(output=OUTPUT, artifacts=AgentArtifacts(), usage=USAGE)
        self.append(
            SuccessDraft(
                state=self.state,
                graph=self.graph,
                epoch=EPOCH,
                event_id=EventId.generate(),
                checkpoint_id=CheckpointId.generate(),
                outcome=outcome,
            )
        )

    def fail(self) -> None:
        """End the run by a failure of node a."""
        self.start("a")
        self.complete("a", NodeFailure(failure=samples.failure(), usage=BudgetUsage.zero()))
        outcome = StoredFailure(failure=samples.failure(), usage=USAGE)
        event_id = EventId.generate()
        self.append(FailureDraft(state=self.state, graph=self.graph, epoch=EPOCH, event_id=event_id, outcome=outcome))

    def wait(self) -> None:
        """Let node a wait for an interrupt and a timer that is due at once."""
        self.start("a")
        request = JournalPayload(
            schema=samples.schema_reference("anything"), kind=JournalEventKind("ask"), data=BoundedJson.of(1)
        )
        waits = (
            NodeWait.interrupt("approval", request=request, expires_in=timedelta(hours=1)),
            NodeWait.timer(due_in=timedelta(0)),
        )
        self.complete("a", result(WaitControl(waits=waits)))
        self.append(
            WaitDraft(
                state=self.state,
                graph=self.graph,
                epoch=EPOCH,
                event_id=EventId.generate(),
                checkpoint_id=CheckpointId.generate(),
            )
        )

    def fire(self) -> None:
        """Settle the timer."""
        timer = self.state.waits[-1].wait_id
        self.append(FiringDraft(state=self.state, event_id=EventId.generate(), wait_id=timer))

    def request_cancellation(self) -> None:
        """Ask for the end of the run."""
        request = CancellationRequest(failure=samples.cancellation())
        self.append(CancellationRequestDraft(state=self.state, event_id=EventId.generate(), request=request))

    def confirm(self) -> None:
        """End the run as it was asked to."""
        outcome = StoredCancellation(usage=USAGE)
        self.append(CancellationDraft(state=self.state, epoch=EPOCH, event_id=EventId.generate(), outcome=outcome))


def result(control: NodeControl) -> NodeResult:
    """Decide what follows and leave the state alone."""
    return NodeResult(state_change=Unchanged(), control=control, bindings=(), usage=BudgetUsage.zero())


def _cancel(story: Story) -> None:
    story.drive()
    story.request_cancellation()
    story.confirm()


def _cancelling(story: Story) -> None:
    story.drive()
    story.request_cancellation()


def _cancelling_from_wait(story: Story) -> None:
    story.wait()
    story.request_cancellation()


def _waiting_for_one(story: Story) -> None:
    story.wait()
    story.fire()


#: By name: how the run gets there, and its status. Who stores the run isolates the ``quarantined`` one.
STORIES: Final[Mapping[str, tuple[Callable[[Story], None], RunStatus]]] = {
    "fresh": (lambda _story: None, RunStatus.ACTIVE),
    "between": (Story.drive, RunStatus.ACTIVE),
    "quarantined": (Story.drive, RunStatus.ACTIVE),
    "waiting": (Story.wait, RunStatus.WAITING),
    "waiting_for_one": (_waiting_for_one, RunStatus.WAITING),
    "cancelling": (_cancelling, RunStatus.CANCELLATION_REQUESTED),
    "cancelling_from_wait": (_cancelling_from_wait, RunStatus.CANCELLATION_REQUESTED),
    "cancelled": (_cancel, RunStatus.CANCELLED),
    "succeeded": (Story.succeed, RunStatus.SUCCEEDED),
    "failed": (Story.fail, RunStatus.FAILED),
}
