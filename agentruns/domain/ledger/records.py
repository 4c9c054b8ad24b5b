"""The parts of a run's state."""

from __future__ import annotations

from bisect import bisect_left
from enum import Enum, unique
from typing import Self

from attrs import field, frozen

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import Digest
from agentruns.domain.failure import Failure
from agentruns.domain.graph.bindings import InvocationKind, InvocationStatus
from agentruns.domain.graph.nodes import ReadyNodes
from agentruns.domain.identity import PrincipalIdentity
from agentruns.domain.ids import AttemptId, CheckpointId, InvocationId, WaitId
from agentruns.domain.ledger.effects import ToolEffect
from agentruns.domain.ledger.outcomes import StoredOutcome
from agentruns.domain.numbers import InvocationNumber, JournalSequence
from agentruns.domain.scalars import NodeId
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.tool import ToolRisk
from agentruns.domain.waits import InterruptKind, InterruptRegistration, TimerKind, WaitClass, WaitRegistration


@frozen(kw_only=True)
class AdmissionFacts:
    """Hold what the admission pinned."""

    admission_digest: Digest
    submission_digest: Digest
    graph_digest: Digest
    input_digest: Digest
    policy_digest: Digest
    admitted_at: Timestamp
    deadline: Timestamp


@frozen(kw_only=True)
class CurrentCheckpoint:
    """Hold the checkpoint that the run stands on.

    Attributes:
        sequence: of the event that names it.
    """

    checkpoint_id: CheckpointId
    digest: Digest
    state_digest: Digest
    state: BoundedJson = field(repr=False)
    ready_nodes: ReadyNodes
    sequence: JournalSequence

    def is_ready(self, node_id: NodeId) -> bool:
        """Tell whether the node is one of the ready ones."""
        ids = self.ready_nodes.ids
        place = bisect_left(ids, node_id)
        return place < len(ids) and ids[place] == node_id


@unique
class AttemptStatus(Enum):
    """Say how far an attempt of a node has come."""

    EXECUTING = "executing"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@frozen(kw_only=True)
class NodeAttempt:
    """Hold the last attempt of a ready node.

    Attributes:
        attempt: 1..64.
        epoch: under which it was started.
        sequence: of its start.
        retry_not_before: from when the node may be started again; only after a failure that advises it.
    """

    node_id: NodeId
    attempt: int
    attempt_id: AttemptId
    epoch: int
    started_at: Timestamp
    sequence: JournalSequence
    status: AttemptStatus
    result_digest: Digest | None = None
    failure: Failure | None = field(default=None, repr=False)
    retry_not_before: Timestamp | None = None

    def is_executing_under(self, epoch: int) -> bool:
        """Tell whether it is under way and was started under that epoch."""
        return self.status is AttemptStatus.EXECUTING and self.epoch == epoch


@frozen(kw_only=True)
class OutstandingWait:
    """Hold a registered wait that nothing has settled, without what it asks.

    Attributes:
        position: among the waits of its barrier, from 0.
        digest: of the registration.
    """

    wait_id: WaitId
    wait_class: WaitClass
    kind: InterruptKind | TimerKind
    position: int
    due_at: Timestamp | None = None
    expires_at: Timestamp | None = None
    action_digest: Digest | None = None
    principal: PrincipalIdentity | None = field(default=None, repr=False)
    scopes: ScopeSet = field(factory=ScopeSet.of, repr=False)
    digest: Digest

    @classmethod
    def of(cls, registration: WaitRegistration, position: int) -> Self:
        """Take what a registration says."""
        if isinstance(registration, InterruptRegistration):
            return cls(
                wait_id=registration.wait_id,
                wait_class=WaitClass.INTERRUPT,
                kind=registration.kind,
                position=position,
                expires_at=registration.expires_at,
                action_digest=registration.action_digest,
                principal=registration.principal,
                scopes=registration.scopes,
                digest=registration.digest,
            )
        return cls(
            wait_id=registration.wait_id,
            wait_class=WaitClass.TIMER,
            kind=registration.kind,
            position=position,
            due_at=registration.due_at,
            digest=registration.digest,
        )

    def is_expired(self, instant: Timestamp) -> bool:
        """Tell whether it can no longer be resolved. Equality is expired."""
        return self.expires_at is not None and self.expires_at <= instant


@unique
class WaitSettlement(Enum):
    """Say what settled a wait."""

    RESOLVED = "resolved"
    FIRED = "fired"
    ABANDONED = "abandoned"


@frozen(kw_only=True)
class SettledWait:
    """Hold a settled wait of the barrier that made the current checkpoint.

    Attributes:
        position: among the waits of its barrier, from 0.
        sequence: of the event that settled it.
        resolution_digest: there exactly when it was resolved.
    """

    wait_id: WaitId
    how: WaitSettlement
    position: int
    sequence: JournalSequence
    resolution_digest: Digest | None = None


@frozen(kw_only=True)
class InvocationFacts:
    """Hold a call of this superstep.

    Attributes:
        risk: of a tool.
        number: of its last event, from 0.
        attempt_ids: in their order.
        epoch: under which it was prepared or last started.
        body_digest: of what ended it.
        effect: of a tool's error.
        retry_not_before: from when it may start again.
        changed_at: instant of its last event.
    """

    invocation_id: InvocationId
    kind: InvocationKind
    node_id: NodeId
    intent_digest: Digest
    risk: ToolRisk | None = None
    number: InvocationNumber
    status: InvocationStatus
    attempt_ids: tuple[AttemptId, ...] = ()
    epoch: int
    body_digest: Digest | None = None
    effect: ToolEffect | None = None
    retry_not_before: Timestamp | None = None
    changed_at: Timestamp

    @property
    def is_open(self) -> bool:
        """Whether it stands in the way of every end of the run."""
        return self.status in (InvocationStatus.EXECUTING, InvocationStatus.UNKNOWN)


@frozen(kw_only=True)
class CancellationFacts:
    """Hold why and when the end of the run was requested."""

    digest: Digest
    failure: Failure = field(repr=False)
    requested_at: Timestamp
    by_deadline: bool


@frozen(kw_only=True)
class OutcomeFacts:
    """Hold how the run ended.

    Attributes:
        kind: a terminal status.
        completed_at: instant of the terminal event.
    """

    kind: RunStatus
    digest: Digest
    completed_at: Timestamp
    body: StoredOutcome = field(repr=False)
