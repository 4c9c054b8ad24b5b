"""Verify the rest of a run row: names, pins, lease, scheduling and the mark of a quarantine."""

from __future__ import annotations

from agentruns.domain.admission import AgentAdmission
from agentruns.domain.ids import AttemptId
from agentruns.domain.ledger.findings import FOREIGN
from agentruns.domain.quarantine import Quarantine
from agentruns.domain.run_ends import RunEnds, StoredQuarantine, StoredRun
from agentruns.domain.run_ends_admission import EndRows
from agentruns.domain.run_ends_journal import EndsJournal, corrupt, insist, instant, well_formed
from agentruns.domain.run_ends_progress import Lifecycle
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.wire import decode


def verify_quarantine(rows: EndRows) -> bool:
    """Verify that the mark of the run row and the unreleased record stand for each other; give whether they do."""
    ends, run = rows.ends, rows.run
    insist(ends, "run_quarantines", holds=len(ends.quarantines) <= 1)
    insist(ends, "runs.quarantined_at", holds=(run.quarantined_at is not None) == bool(ends.quarantines))
    for stored in ends.quarantines:
        insist(ends, "runs.quarantined_at", holds=stored.quarantined_at == run.quarantined_at)
        _verify_record(ends, stored)
    return bool(ends.quarantines)


def _verify_record(ends: RunEnds, stored: StoredQuarantine) -> None:
    with well_formed(ends, "run_quarantines.body"):
        record = decode(stored.body, Quarantine)
    epoch = None if record.epoch is None else record.epoch.value
    insist(ends, "run_quarantines.digest", holds=stored.digest == record.digest.raw)
    insist(ends, "run_quarantines.quarantine_id", holds=stored.quarantine_id == record.quarantine_id.text)
    insist(ends, "run_quarantines.cause_kind", holds=stored.cause_kind == record.cause.value)
    insist(ends, "run_quarantines.component", holds=stored.component == record.component)
    insist(ends, "run_quarantines.epoch", holds=stored.epoch == epoch)


def verify_run_row(rows: EndRows, journal: EndsJournal, admission: AgentAdmission, lifecycle: Lifecycle) -> None:
    """Verify the columns that copy the admission, and the shape of those that are outside the evidence."""
    ends, run, intent = rows.ends, rows.run, admission.intent
    provenance = intent.provenance
    is_own = provenance.tenant_id == ends.tenant_id and provenance.run_id.text == run.run_id == ends.run_id
    if not is_own:
        raise corrupt(ends, "admission", reason=FOREIGN)
    insist(ends, "runs.thread_id", holds=run.thread_id == provenance.thread_id.text)
    insist(ends, "runs.invocation_id", holds=run.invocation_id == provenance.invocation_id.text)
    pinned = intent.graph.definition_digest.raw
    insist(ends, "runs.graph_definition_digest", holds=run.graph_definition_digest == pinned)
    deadline = _optional_instant(ends, run, "agent_deadline_at")
    insist(ends, "runs.agent_deadline_at", holds=deadline == intent.budget.deadline)
    insist(ends, "runs.fencing_epoch", holds=run.fencing_epoch >= journal.highest_epoch)
    has_lease = _verify_lease(rows, lifecycle)
    _verify_scheduling(rows, admission, lifecycle, has_lease=has_lease)


def _verify_lease(rows: EndRows, lifecycle: Lifecycle) -> bool:
    """Verify that the lease columns are those of a lease that such a run can have, or all empty."""
    ends, run = rows.ends, rows.run
    acquired = _optional_instant(ends, run, "lease_acquired_at")
    renewed = _optional_instant(ends, run, "lease_renewed_at")
    expires = _optional_instant(ends, run, "lease_expires_at")
    if run.lease_attempt_id is None or acquired is None or renewed is None or expires is None:
        is_empty = run.lease_attempt_id is None and acquired is None and renewed is None and expires is None
        insist(ends, "runs.lease_attempt_id", holds=is_empty)
        return False
    with well_formed(ends, "runs.lease_attempt_id"):
        AttemptId.parse(run.lease_attempt_id)
    may_have = lifecycle.status.is_claimable and run.quarantined_at is None and run.fencing_epoch > 0
    insist(ends, "runs.lease_attempt_id", holds=may_have)
    insist(ends, "runs.lease_expires_at", holds=acquired <= renewed < expires)
    return True


def _verify_scheduling(rows: EndRows, admission: AgentAdmission, lifecycle: Lifecycle, *, has_lease: bool) -> None:
    ends, run = rows.ends, rows.run
    ready_at = _optional_instant(ends, run, "scheduler_ready_at")
    not_before = _optional_instant(ends, run, "scheduler_not_before")
    is_due = ready_at is not None and ready_at >= admission.admitted_at
    insist(ends, "runs.scheduler_ready_at", holds=is_due if lifecycle.status.is_claimable else ready_at is None)
    if not_before is not None:
        is_gate = ready_at is not None and not_before >= ready_at and not has_lease
        insist(ends, "runs.scheduler_not_before", holds=is_gate)


def _optional_instant(ends: RunEnds, run: StoredRun, name: str) -> Timestamp | None:
    value = getattr(run, name)
    return None if value is None else instant(ends, f"runs.{name}", value)
