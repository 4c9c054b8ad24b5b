"""Make the state at the head of a run from the ends of its evidence: enough for what the control plane appends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from agentruns.domain.digests import Digest
from agentruns.domain.ids import WaitId
from agentruns.domain.ledger.data import BarrierWaiting
from agentruns.domain.ledger.records import AdmissionFacts, OutstandingWait
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import Superstep
from agentruns.domain.run_ends_checks import VerifiedRun
from agentruns.domain.run_ends_journal import FIRST, corrupt
from agentruns.domain.waits import InterruptKind, TimerKind, WaitClass, WaitRegistration

_KINDS: Final[Mapping[str, tuple[WaitClass, InterruptKind | TimerKind]]] = {
    **{kind.value: (WaitClass.INTERRUPT, kind) for kind in InterruptKind},
    **{kind.value: (WaitClass.TIMER, kind) for kind in TimerKind},
}


def state_at_head(run: VerifiedRun, *, known: Sequence[WaitRegistration] = ()) -> RunState:
    """Give head, lifecycle, admission, superstep and outstanding waits; checkpoint, attempts and usage are not read.

    Args:
        run: whose ends were verified.
        known: the registrations of the waits that are to be settled; of the others only the kind is read.
    """
    row, provenance = run.rows.run, run.admission.intent.provenance
    return RunState(
        tenant_id=provenance.tenant_id,
        run_id=provenance.run_id,
        head=run.journal.at(row.head_sequence).event.head,
        epoch=run.journal.highest_epoch,
        status=run.lifecycle.status,
        revision=run.lifecycle.revision,
        changed_at=run.lifecycle.changed_at,
        lifecycle_sequence=run.lifecycle.transition.event.sequence,
        admission=_admission(run),
        superstep=Superstep(row.superstep or 0),
        waits=tuple(_outstanding(run, known)),
    )


def _admission(run: VerifiedRun) -> AdmissionFacts:
    """Take what event 1 pins; its verification has held every member against the admission."""
    admission, intent = run.admission, run.admission.intent
    return AdmissionFacts(
        admission_digest=admission.digest,
        submission_digest=run.submission_digest,
        graph_digest=intent.graph.definition_digest,
        input_digest=intent.request.input.digest,
        policy_digest=intent.authority.policy_digest,
        admitted_at=admission.admitted_at,
        deadline=intent.budget.deadline,
    )


def _outstanding(run: VerifiedRun, known: Sequence[WaitRegistration]) -> Iterator[OutstandingWait]:
    """Give what the barrier registered and nothing has settled, in the barrier's order."""
    ends = run.rows.ends
    barrier = run.journal.at(ends.newest.sequence if ends.newest else FIRST).data
    if not isinstance(barrier, BarrierWaiting):
        return
    kinds = {wait.wait_id: wait.kind for wait in ends.waits}
    registrations = {registration.digest: registration for registration in known}
    for position, wait in enumerate(barrier.waits):
        if wait.digest in registrations:
            yield OutstandingWait.of(registrations[wait.digest], position)
        elif wait.wait_id.text in kinds:
            yield _wait(run, wait.wait_id, wait.digest, kind=kinds[wait.wait_id.text], position=position)


def _wait(run: VerifiedRun, wait_id: WaitId, digest: Digest, *, kind: str, position: int) -> OutstandingWait:
    if kind not in _KINDS:
        raise corrupt(run.rows.ends, "run_waits.kind")
    wait_class, known = _KINDS[kind]
    return OutstandingWait(wait_id=wait_id, wait_class=wait_class, kind=known, position=position, digest=digest)
