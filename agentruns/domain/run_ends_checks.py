"""Verify the ends of a run's evidence, in the order of the contract, without a registry and without a clock."""

from __future__ import annotations

from attrs import frozen

from agentruns.domain.admission import AgentAdmission
from agentruns.domain.digests import Digest
from agentruns.domain.run_ends import RunEnds
from agentruns.domain.run_ends_admission import (
    DecodeAdmission,
    EndRows,
    present_rows,
    verify_admission,
    verify_first_checkpoint,
    verify_first_event,
    verify_submission,
)
from agentruns.domain.run_ends_journal import EndsJournal
from agentruns.domain.run_ends_progress import (
    Lifecycle,
    verify_head,
    verify_lifecycle,
    verify_newest_checkpoint,
    verify_waits,
)
from agentruns.domain.run_ends_row import verify_quarantine, verify_run_row
from agentruns.domain.run_ids import AgentRunIds


@frozen(kw_only=True)
class VerifiedRun:
    """A run whose ends agree with each other. How it ended is not verified yet, and no registry was asked.

    Attributes:
        ids: the five ids that it was admitted with.
        admission: decoded, with the instant of event 1.
        submission_digest: of what was submitted.
        key_digest: of the key that stands for the run; ``None`` when it has none.
        lifecycle: status, revision and instant.
        is_quarantined: somebody has to look at it.
        rows: what was read.
        journal: its verified events.
    """

    ids: AgentRunIds
    admission: AgentAdmission
    submission_digest: Digest
    key_digest: Digest | None
    lifecycle: Lifecycle
    is_quarantined: bool
    rows: EndRows
    journal: EndsJournal

    @property
    def has_key(self) -> bool:
        """Whether a key stands for the run."""
        return self.key_digest is not None


def verify_ends(ends: RunEnds, decode: DecodeAdmission) -> VerifiedRun:
    """Hold every column that was read against the evidence.

    Raises:
        RunNotFoundError: the tenant has no such run.
        AgentSubmissionNotFoundError: nothing stands under the key.
        CorruptDataError: the first thing that does not verify. No data is returned.
    """
    rows = present_rows(ends)
    journal = EndsJournal(ends)
    first, admitted = verify_first_event(journal)
    admission = verify_admission(rows, first, admitted, decode)
    checkpoint = verify_first_checkpoint(rows, admitted)
    key_digest = verify_submission(rows, first, admitted)
    verify_head(rows, journal)
    journal.verify_all()
    named_by = verify_newest_checkpoint(rows, journal, checkpoint)
    lifecycle = verify_lifecycle(rows, journal)
    verify_waits(rows, lifecycle, named_by)
    is_quarantined = verify_quarantine(rows)
    verify_run_row(rows, journal, admission, lifecycle)
    provenance = admission.intent.provenance
    return VerifiedRun(
        ids=AgentRunIds(
            run_id=provenance.run_id,
            thread_id=provenance.thread_id,
            invocation_id=provenance.invocation_id,
            admission_event_id=first.event.event_id,
            initial_checkpoint_id=checkpoint.checkpoint_id,
        ),
        admission=admission,
        submission_digest=admitted.submission_digest,
        key_digest=key_digest,
        lifecycle=lifecycle,
        is_quarantined=is_quarantined,
        rows=rows,
        journal=journal,
    )
