"""Verify how far a run has come: head, newest checkpoint, lifecycle and what it waits for."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from agentruns.domain.ledger.checkpoint import Checkpoint
from agentruns.domain.ledger.data import (
    BarrierContinued,
    BarrierSucceeded,
    BarrierWaiting,
    CancellationConfirmed,
    CancellationRequested,
    InterruptResolved,
    RunFailed,
    TimerFired,
)
from agentruns.domain.ledger.findings import MISSING
from agentruns.domain.ledger.lifecycle import status_after
from agentruns.domain.numbers import RunRevision
from agentruns.domain.run_ends import StoredCheckpoint
from agentruns.domain.run_ends_admission import EndRows, checkpoint_of
from agentruns.domain.run_ends_journal import FIRST, EndsJournal, VerifiedEvent, corrupt, insist, instant, well_formed
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp

_BARRIERS: Final = (BarrierContinued, BarrierWaiting, BarrierSucceeded)
_TRANSITIONS: Final = (
    BarrierWaiting,
    InterruptResolved,
    TimerFired,
    CancellationRequested,
    CancellationConfirmed,
    BarrierSucceeded,
    RunFailed,
)


@frozen(kw_only=True)
class Lifecycle:
    """The lifecycle of a run, as the event that set it says.

    Attributes:
        transition: that event.
    """

    status: RunStatus
    revision: RunRevision
    changed_at: Timestamp
    transition: VerifiedEvent


def verify_head(rows: EndRows, journal: EndsJournal) -> VerifiedEvent:
    """Verify that the run row's head is the last event of the journal."""
    ends, run = rows.ends, rows.run
    head = journal.at(run.head_sequence)
    insist(ends, "runs.head_digest", holds=head.event.digest.raw == run.head_digest)
    recorded_at = instant(ends, "runs.head_recorded_at", run.head_recorded_at)
    insist(ends, "runs.head_recorded_at", holds=head.event.recorded_at == recorded_at)
    insist(ends, "runs.head_sequence", holds=not ends.is_head_passed)
    return head


def verify_newest_checkpoint(rows: EndRows, journal: EndsJournal, first: Checkpoint) -> VerifiedEvent:
    """Verify the checkpoint that the run stands in; give the event that names it."""
    ends, run = rows.ends, rows.run
    newest, named_by = first, journal.at(FIRST)
    if ends.newest is not None:
        if ends.newest.parent_digest is None:
            raise corrupt(ends, "run_checkpoints", reason=MISSING)
        newest = checkpoint_of(ends, ends.newest, first.graph_digest)
        named_by = journal.at(ends.newest.sequence)
        insist(ends, "barrier", holds=_names(named_by, newest, ends.newest))
    insist(ends, "runs.superstep", holds=run.superstep == newest.superstep.value)
    insist(ends, "runs.checkpoint_digest", holds=run.checkpoint_digest == newest.digest.raw)
    return named_by


def _names(barrier: VerifiedEvent, checkpoint: Checkpoint, stored: StoredCheckpoint) -> bool:
    data = barrier.data
    return (
        isinstance(data, _BARRIERS)
        and data.checkpoint_digest == checkpoint.digest
        and data.superstep.value == stored.superstep - 1
    )


def verify_lifecycle(rows: EndRows, journal: EndsJournal) -> Lifecycle:
    """Verify status, revision and instant of the run row against the event that set them."""
    ends, run = rows.ends, rows.run
    transition = journal.at(run.lifecycle_sequence)
    with well_formed(ends, "runs.status"):
        status = RunStatus(run.status)
    leads_to = status_after(transition.kind, are_waits_outstanding=bool(ends.waits))
    insist(ends, "status", holds=status is leads_to)
    data = transition.data
    revision = data.revision if isinstance(data, _TRANSITIONS) else RunRevision(1)
    insist(ends, "runs.revision", holds=revision.value == run.revision)
    changed_at = instant(ends, "runs.changed_at", run.changed_at)
    insist(ends, "runs.changed_at", holds=changed_at == transition.event.recorded_at)
    insist(ends, "order", holds=not status.is_terminal or run.lifecycle_sequence == run.head_sequence)
    if isinstance(data, RunFailed | CancellationRequested | CancellationConfirmed):
        insist(ends, "position", holds=data.superstep.value == run.superstep)
    return Lifecycle(status=status, revision=revision, changed_at=changed_at, transition=transition)


def verify_waits(rows: EndRows, lifecycle: Lifecycle, barrier: VerifiedEvent) -> None:
    """Verify the outstanding waits: a waiting run has those of its barrier less the settled ones, any other none."""
    ends = rows.ends
    if lifecycle.status is not RunStatus.WAITING:
        insist(ends, "waits", holds=not ends.waits)
        return
    data = barrier.data
    if not isinstance(data, BarrierWaiting):
        insist(ends, "waits", holds=False)
        return
    settled = lifecycle.revision.value - data.revision.value
    insist(ends, "waits", holds=bool(ends.waits) and len(ends.waits) == len(data.waits) - settled)
    registered = {wait.wait_id.text: wait.digest.raw for wait in data.waits}
    for wait in ends.waits:
        insist(ends, "run_waits.digest", holds=registered.get(wait.wait_id) == wait.digest)
        insist(ends, "run_waits.registration", holds=wait.registration_digest == wait.digest)
        insist(ends, "run_waits.sequence", holds=wait.sequence == barrier.event.sequence.value)
        insist(ends, "run_waits.settled_sequence", holds=not wait.is_settled)
