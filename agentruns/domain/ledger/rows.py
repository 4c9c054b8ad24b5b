"""The rows that events are written with, as pure values; the store puts them into tables."""

from __future__ import annotations

from typing import Self

from attrs import field, frozen

from agentruns.domain.digests import Digest
from agentruns.domain.ids import AttemptId, CheckpointId, WaitId
from agentruns.domain.ledger.checkpoint import ready_column
from agentruns.domain.ledger.event import JournalHead
from agentruns.domain.ledger.records import WaitSettlement
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import JournalSequence, RunRevision, Superstep
from agentruns.domain.scalars import NodeId
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.waits import InterruptRegistration, TimerRegistration, WaitRegistration
from agentruns.errors import InvariantError


@frozen(kw_only=True)
class StartRow:
    """A row of ``node_attempts``."""

    superstep: Superstep
    node_id: NodeId
    attempt: int
    attempt_id: AttemptId
    sequence: JournalSequence


@frozen(kw_only=True)
class ResultRow:
    """A row of ``node_results``.

    Attributes:
        status: ``succeeded`` or ``failed``.
        body: canonical bytes of the result or the failure.
    """

    superstep: Superstep
    node_id: NodeId
    attempt: int
    status: str
    body: bytes = field(repr=False)
    digest: Digest
    retry_not_before: Timestamp | None
    sequence: JournalSequence


@frozen(kw_only=True)
class CheckpointRow:
    """A row of ``run_checkpoints``.

    Attributes:
        ready: canonical array of the ready nodes.
        state: canonical bytes.
        digest: the checkpoint's.
    """

    superstep: Superstep
    checkpoint_id: CheckpointId
    ready: bytes
    state: bytes = field(repr=False)
    digest: Digest
    sequence: JournalSequence

    @classmethod
    def of(cls, state: RunState) -> Self:
        """Take the checkpoint that the run stands on."""
        checkpoint = state.checkpoint
        if checkpoint is None:
            raise InvariantError(reason="checkpoint")
        return cls(
            superstep=state.superstep,
            checkpoint_id=checkpoint.checkpoint_id,
            ready=ready_column(checkpoint.ready_nodes),
            state=checkpoint.state.data,
            digest=checkpoint.digest,
            sequence=checkpoint.sequence,
        )


@frozen(kw_only=True)
class WaitRow:
    """A row of ``run_waits`` at its registration; it is outstanding."""

    wait_id: WaitId
    kind: str
    registration: bytes = field(repr=False)
    digest: Digest
    due_at: Timestamp | None
    expires_at: Timestamp | None
    sequence: JournalSequence

    @classmethod
    def of(cls, registration: WaitRegistration, sequence: JournalSequence) -> Self:
        """Take what a registration says."""
        return cls(
            wait_id=registration.wait_id,
            kind=registration.kind.value,
            registration=registration.canonical,
            digest=registration.digest,
            due_at=registration.due_at if isinstance(registration, TimerRegistration) else None,
            expires_at=registration.expires_at if isinstance(registration, InterruptRegistration) else None,
            sequence=sequence,
        )


@frozen(kw_only=True)
class SettlementRow:
    """What moves in a row of ``run_waits`` when the wait is settled.

    Attributes:
        resolution: canonical bytes; with its digest exactly when the wait is resolved.
    """

    wait_id: WaitId
    status: WaitSettlement
    settled_sequence: JournalSequence
    resolution: bytes | None = field(default=None, repr=False)
    resolution_digest: Digest | None = None


@frozen(kw_only=True)
class OutcomeRow:
    """A row of ``run_outcomes``.

    Attributes:
        kind: ``outcome``, or ``cancellation`` for the request.
    """

    kind: str
    body: bytes = field(repr=False)
    digest: Digest
    sequence: JournalSequence


@frozen(kw_only=True)
class AdmissionRow:
    """What the rows of an admission hold besides the run, the event and the checkpoint."""

    body: bytes = field(repr=False)
    admission_digest: Digest
    submission_digest: Digest
    agent_name: str
    agent_version: str
    sequence: JournalSequence


@frozen(kw_only=True)
class RunProjection:
    """The columns of the run row that the fold gives; lease, scheduling and quarantine are none of them.

    Attributes:
        checkpoint_digest: ``None`` only of a state that was made from the ends of the evidence.
    """

    status: RunStatus
    revision: RunRevision
    changed_at: Timestamp
    lifecycle_sequence: JournalSequence
    head: JournalHead
    superstep: Superstep
    checkpoint_digest: Digest | None
    graph_definition_digest: Digest
    agent_deadline_at: Timestamp

    @classmethod
    def of(cls, state: RunState) -> Self:
        """Take what a state says.

        Raises:
            InvariantError: it is the seed, of which there is no row.
        """
        head, admission = state.head, state.admission
        changed_at, lifecycle_sequence = state.changed_at, state.lifecycle_sequence
        if head is None or admission is None or changed_at is None or lifecycle_sequence is None:
            raise InvariantError(reason="seed")
        return cls(
            status=state.status,
            revision=state.revision,
            changed_at=changed_at,
            lifecycle_sequence=lifecycle_sequence,
            head=head,
            superstep=state.superstep,
            checkpoint_digest=None if state.checkpoint is None else state.checkpoint.digest,
            graph_definition_digest=admission.graph_digest,
            agent_deadline_at=admission.deadline,
        )
