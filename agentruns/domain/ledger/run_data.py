"""The data of the events that admit, drive, suspend and end a run."""

from __future__ import annotations

from typing import Final

from attrs import field, frozen

from agentruns.domain.digests import Digest
from agentruns.domain.ids import AttemptId, WaitId
from agentruns.domain.ledger.codecs import (
    ATTEMPT_ID,
    COUNT,
    DIGEST,
    INSTANT,
    LARGEST_COUNT,
    NODE,
    REVISION,
    STEP,
    WAIT_ID,
    WAIT_IDS,
    Codec,
    array,
    as_object,
    invalid,
    member,
)
from agentruns.domain.ledger.kinds import EventKind
from agentruns.domain.ledger.shape import EventData
from agentruns.domain.members import check_bound, check_members
from agentruns.domain.numbers import RunRevision, Superstep
from agentruns.domain.scalars import NodeId
from agentruns.domain.timestamps import Timestamp

#: At most so many attempts of a node are made in one superstep.
MAX_ATTEMPTS: Final = 64
#: At most so many waits stand in one barrier.
MAX_WAITS: Final = 64


@frozen(kw_only=True)
class AgentAdmitted(EventData):
    """Pin what was admitted: the first event of a run."""

    kinds = (EventKind.AGENT_ADMITTED,)
    kind = EventKind.AGENT_ADMITTED

    admission_digest: Digest = field(metadata=DIGEST)
    submission_digest: Digest = field(metadata=DIGEST)
    checkpoint_digest: Digest = field(metadata=DIGEST)
    graph_digest: Digest = field(metadata=DIGEST)
    input_digest: Digest = field(metadata=DIGEST)
    policy_digest: Digest = field(metadata=DIGEST)


@frozen(kw_only=True)
class NodeAttemptStarted(EventData):
    """Start an attempt of a ready node; only a committed start permits a call of its code.

    Attributes:
        attempt: 1..64, counted per node and superstep.
    """

    kinds = (EventKind.NODE_ATTEMPT_STARTED,)
    kind = EventKind.NODE_ATTEMPT_STARTED

    superstep: Superstep = field(metadata=STEP)
    node_id: NodeId = field(metadata=NODE)
    attempt: int = field(metadata=COUNT)
    attempt_id: AttemptId = field(metadata=ATTEMPT_ID)

    def __attrs_post_init__(self) -> None:
        check_members(self)
        check_bound(self, "attempt", 1, MAX_ATTEMPTS)


@frozen(kw_only=True)
class NodeAttemptSucceeded(EventData):
    """End an attempt with a result."""

    kinds = (EventKind.NODE_ATTEMPT_SUCCEEDED,)
    kind = EventKind.NODE_ATTEMPT_SUCCEEDED

    superstep: Superstep = field(metadata=STEP)
    node_id: NodeId = field(metadata=NODE)
    attempt: int = field(metadata=COUNT)
    result_digest: Digest = field(metadata=DIGEST)

    def __attrs_post_init__(self) -> None:
        check_members(self)
        check_bound(self, "attempt", 1, MAX_ATTEMPTS)


@frozen(kw_only=True)
class NodeAttemptFailed(EventData):
    """End an attempt with a failure.

    Attributes:
        retry_not_before: there exactly when the failure advises a retry.
    """

    kinds = (EventKind.NODE_ATTEMPT_FAILED,)
    kind = EventKind.NODE_ATTEMPT_FAILED

    superstep: Superstep = field(metadata=STEP)
    node_id: NodeId = field(metadata=NODE)
    attempt: int = field(metadata=COUNT)
    result_digest: Digest = field(metadata=DIGEST)
    retry_not_before: Timestamp | None = field(default=None, metadata=INSTANT)

    def __attrs_post_init__(self) -> None:
        check_members(self)
        check_bound(self, "attempt", 1, MAX_ATTEMPTS)


@frozen(kw_only=True)
class BarrierContinued(EventData):
    """End a superstep whose successor begins at once."""

    kinds = (EventKind.BARRIER_CONTINUED,)
    kind = EventKind.BARRIER_CONTINUED

    superstep: Superstep = field(metadata=STEP)
    checkpoint_digest: Digest = field(metadata=DIGEST)


@frozen(kw_only=True)
class RegisteredWait:
    """Name a wait and the registration that its row holds."""

    wait_id: WaitId
    digest: Digest

    def __attrs_post_init__(self) -> None:
        check_members(self)


def _write_wait(wait: RegisteredWait) -> bytes:
    return f'{{"digest":"{wait.digest}","wait_id":"{wait.wait_id}"}}'.encode("ascii")


def _read_wait(tree: object) -> RegisteredWait:
    members = as_object(tree, frozenset({"wait_id", "digest"}))
    if len(members) < 2:  # noqa: PLR2004  # both
        raise invalid("missing_member")
    return RegisteredWait(wait_id=WaitId.parse(members["wait_id"]), digest=Digest.parse(members["digest"]))


_WAITS: Final = member(array(Codec(_write_wait, _read_wait)))


@frozen(kw_only=True)
class BarrierWaiting(EventData):
    """End a superstep with the run asleep until its waits are settled.

    Attributes:
        waits: 1..64, in the order of their registration.
    """

    kinds = (EventKind.BARRIER_WAITING,)
    kind = EventKind.BARRIER_WAITING

    superstep: Superstep = field(metadata=STEP)
    checkpoint_digest: Digest = field(metadata=DIGEST)
    revision: RunRevision = field(metadata=REVISION)
    waits: tuple[RegisteredWait, ...] = field(metadata=_WAITS)

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if not 1 <= len(self.waits) <= MAX_WAITS:
            raise invalid("out_of_range")


@frozen(kw_only=True)
class BarrierSucceeded(EventData):
    """End the run with the output of its last node."""

    kinds = (EventKind.BARRIER_SUCCEEDED,)
    kind = EventKind.BARRIER_SUCCEEDED

    superstep: Superstep = field(metadata=STEP)
    checkpoint_digest: Digest = field(metadata=DIGEST)
    revision: RunRevision = field(metadata=REVISION)
    outcome_digest: Digest = field(metadata=DIGEST)


@frozen(kw_only=True)
class RunFailed(EventData):
    """End the run with a failure.

    Attributes:
        in_flight: nodes under way, 0..1024.
        failed: nodes that failed for good, 0..1024.
        exhausted: nodes without attempts left, 0..1024.
        abandoned: all outstanding waits in order, 0..64.
    """

    kinds = (EventKind.RUN_FAILED,)
    kind = EventKind.RUN_FAILED

    superstep: Superstep = field(metadata=STEP)
    revision: RunRevision = field(metadata=REVISION)
    outcome_digest: Digest = field(metadata=DIGEST)
    in_flight: int = field(metadata=COUNT)
    failed: int = field(metadata=COUNT)
    exhausted: int = field(metadata=COUNT)
    abandoned: tuple[WaitId, ...] = field(metadata=WAIT_IDS)

    def __attrs_post_init__(self) -> None:
        check_members(self)
        for name in ("in_flight", "failed", "exhausted"):
            check_bound(self, name, 0, LARGEST_COUNT)
        check_abandoned(self.abandoned)


@frozen(kw_only=True)
class InterruptResolved(EventData):
    """Settle an interrupt by what somebody answered."""

    kinds = (EventKind.INTERRUPT_RESOLVED,)
    kind = EventKind.INTERRUPT_RESOLVED

    wait_id: WaitId = field(metadata=WAIT_ID)
    revision: RunRevision = field(metadata=REVISION)
    resolution_digest: Digest = field(metadata=DIGEST)


@frozen(kw_only=True)
class TimerFired(EventData):
    """Settle a timer that is due."""

    kinds = (EventKind.TIMER_FIRED,)
    kind = EventKind.TIMER_FIRED

    wait_id: WaitId = field(metadata=WAIT_ID)
    revision: RunRevision = field(metadata=REVISION)


@frozen(kw_only=True)
class CancellationRequested(EventData):
    """Ask for the end of the run, on somebody's request or because its deadline has come.

    Attributes:
        abandoned: all outstanding waits in order, 0..64.
    """

    kinds = (EventKind.CANCELLATION_REQUESTED, EventKind.DEADLINE_CANCELLATION_REQUESTED)

    kind: EventKind = EventKind.CANCELLATION_REQUESTED
    superstep: Superstep = field(metadata=STEP)
    revision: RunRevision = field(metadata=REVISION)
    request_digest: Digest = field(metadata=DIGEST)
    abandoned: tuple[WaitId, ...] = field(metadata=WAIT_IDS)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        check_abandoned(self.abandoned)


@frozen(kw_only=True)
class CancellationConfirmed(EventData):
    """End the run as its request asked."""

    kinds = (EventKind.CANCELLATION_CONFIRMED,)
    kind = EventKind.CANCELLATION_CONFIRMED

    superstep: Superstep = field(metadata=STEP)
    revision: RunRevision = field(metadata=REVISION)
    outcome_digest: Digest = field(metadata=DIGEST)


def check_abandoned(abandoned: tuple[WaitId, ...]) -> None:
    """Refuse more waits than a barrier registers.

    Raises:
        InvalidValueError: ``out_of_range``.
    """
    if len(abandoned) > MAX_WAITS:
        raise invalid("out_of_range")
