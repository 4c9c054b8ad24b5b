"""A run's journal in memory: what is durable of a simulated run, and nothing else."""

from __future__ import annotations

import json

from attrs import define, field

from agentruns.domain.digests import Digest
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.ids import RunId
from agentruns.domain.ledger.bodies import RESOLUTION, BodyRow
from agentruns.domain.ledger.drafts import DraftedCommit
from agentruns.domain.ledger.event import Event, JournalHead
from agentruns.domain.ledger.records import OutstandingWait, WaitSettlement
from agentruns.domain.ledger.state import RunState
from agentruns.domain.scalars import TenantId
from agentruns.domain.waits import WaitRegistration, read_registration
from agentruns.errors import StaleHeadError
from agentruns.runtime.settled_waits import SettledRunWait
from agentruns.testing.histories import as_stored, bodies_of


@define
class MemoryJournal:
    """Keep the events and bodies of one run as a reader finds them.

    Attributes:
        events: as they are read: they know nothing of what they were made from.
        bodies: each body that an event names.
        ready: the ready nodes of each checkpoint, by superstep.
        attempt_ids: of all starts.
    """

    tenant_id: TenantId
    run_id: RunId
    events: list[Event] = field(factory=list)
    bodies: dict[Digest, BodyRow] = field(factory=dict)
    ready: dict[int, list[str]] = field(factory=dict)
    attempt_ids: set[str] = field(factory=set)
    _folded: list[RunState] = field(factory=list)

    @property
    def head(self) -> JournalHead | None:
        """The last event; ``None`` before the admission."""
        return self.events[-1].head if self.events else None

    def append(self, commit: DraftedCommit) -> None:
        """Take a commit that was planned at the head.

        Raises:
            StaleHeadError: ``journal``; it was planned at another one.
        """
        if commit.before.head != self.head:
            raise StaleHeadError(tenant_id=self.tenant_id, run_id=self.run_id, reason="journal")
        self.events.extend(as_stored(event) for event in commit.events)
        self.bodies.update(bodies_of(commit))
        self.attempt_ids |= {start.attempt_id.text for start in commit.starts}
        if commit.checkpoint is not None:
            self.ready[commit.checkpoint.superstep.value] = json.loads(commit.checkpoint.ready)

    def fold(self, graph: ExecutableGraph) -> RunState:
        """Read the run as a worker does that has read it before: what is new is folded, by the same rules."""
        state = self._folded[-1] if self._folded else RunState.empty(self.tenant_id, self.run_id)
        known = 0 if state.head is None else state.head.sequence.value
        for event in self.events[known:]:
            state = state.apply(event, self.bodies, graph)
        self._folded = [state]
        return state

    def refold(self, graph: ExecutableGraph) -> RunState:
        """Read the run as a worker does that has never seen it."""
        self._folded = []
        return self.fold(graph)

    def registration(self, wait: OutstandingWait) -> WaitRegistration:
        """Read what a wait asks for."""
        return read_registration(self.bodies[wait.digest].data)

    def settled(self, state: RunState) -> tuple[SettledRunWait, ...]:
        """Read how the waits were settled that led into a state."""
        return tuple(
            SettledRunWait(
                wait_id=wait.wait_id,
                how=wait.how,
                resolution=RESOLUTION.read(self.bodies[wait.resolution_digest])
                if wait.how is WaitSettlement.RESOLVED and wait.resolution_digest is not None
                else None,
            )
            for wait in state.settled
        )
