"""What one commit of a run writes, put together event by event at a stamp."""

from __future__ import annotations

from attrs import define, field, frozen

from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.ids import EventId, WaitId
from agentruns.domain.ledger.bodies import NO_BODIES, Bodies
from agentruns.domain.ledger.data import EventData
from agentruns.domain.ledger.event import Event
from agentruns.domain.ledger.rows import (
    AdmissionRow,
    CheckpointRow,
    OutcomeRow,
    ResultRow,
    RunProjection,
    SettlementRow,
    StartRow,
    WaitRow,
)
from agentruns.domain.ledger.state import RunState
from agentruns.domain.timestamps import Timestamp


@frozen(kw_only=True)
class DraftedCommit:
    """Hold a commit that is ready to be sent: legal at the head of ``before``, and leading to ``state``.

    Attributes:
        before: the state at whose head the commit stands.
        state: after it.
        recorded_at: the stamp.
        events: at least one.
        starts: rows of attempts that are started.
        results: rows of attempts that are completed.
        checkpoint: of the successor, if there is a barrier; of superstep 0 in an admission.
        waits: that are registered.
        settlements: of waits that were outstanding.
        outcome: of the run, or of the request to cancel it.
        admission: only in an admission.
        gate: the latest retry gate of the starts: the database's clock must have reached it.
        wait_ids: what the results of completions will register; the run must not have used them before.
    """

    before: RunState
    state: RunState
    recorded_at: Timestamp
    events: tuple[Event, ...]
    starts: tuple[StartRow, ...] = ()
    results: tuple[ResultRow, ...] = ()
    checkpoint: CheckpointRow | None = None
    waits: tuple[WaitRow, ...] = ()
    settlements: tuple[SettlementRow, ...] = ()
    outcome: OutcomeRow | None = None
    admission: AdmissionRow | None = None
    gate: Timestamp | None = None
    wait_ids: tuple[WaitId, ...] = ()

    @property
    def projection(self) -> RunProjection:
        """The columns of the run row after the commit."""
        return RunProjection.of(self.state)

    @property
    def is_transition(self) -> bool:
        """Whether the lifecycle moves."""
        return self.state.revision != self.before.revision


@define(kw_only=True)
class CommitBuilder:
    """Append events to a state, each of them by the rules, and collect what they are written with."""

    before: RunState
    graph: ExecutableGraph | None
    epoch: int
    stamp: Timestamp
    state: RunState = field(init=False)
    events: list[Event] = field(init=False, factory=list)
    starts: list[StartRow] = field(init=False, factory=list)
    results: list[ResultRow] = field(init=False, factory=list)
    waits: list[WaitRow] = field(init=False, factory=list)
    settlements: list[SettlementRow] = field(init=False, factory=list)
    checkpoint: CheckpointRow | None = field(init=False, default=None)
    outcome: OutcomeRow | None = field(init=False, default=None)
    admission: AdmissionRow | None = field(init=False, default=None)
    gate: Timestamp | None = field(init=False, default=None)
    wait_ids: list[WaitId] = field(init=False, factory=list)

    @state.default
    def _start(self) -> RunState:
        return self.before

    def append(self, event_id: EventId, data: EventData, bodies: Bodies = NO_BODIES) -> Event:
        """Append one event.

        Raises:
            RefusedError: a rule says no.
        """
        state = self.state
        event = Event.following(
            state.head,
            tenant_id=state.tenant_id,
            run_id=state.run_id,
            event_id=event_id,
            recorded_at=self.stamp,
            epoch=self.epoch,
            data=data,
        )
        self.state = state.extend(event, bodies, self.graph)
        self.events.append(event)
        return event

    def finish(self) -> DraftedCommit:
        """Give the commit."""
        return DraftedCommit(
            before=self.before,
            state=self.state,
            recorded_at=self.stamp,
            events=tuple(self.events),
            starts=tuple(self.starts),
            results=tuple(self.results),
            checkpoint=self.checkpoint,
            waits=tuple(self.waits),
            settlements=tuple(self.settlements),
            outcome=self.outcome,
            admission=self.admission,
            gate=self.gate,
            wait_ids=tuple(self.wait_ids),
        )
