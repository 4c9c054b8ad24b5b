"""Admit runs: key, run, event 1, checkpoint 0 and admission in one statement, or nothing at all."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from attrs import frozen

from agentruns.domain.admission import AgentAdmission
from agentruns.domain.digests import Digest
from agentruns.domain.ledger.commit import DraftedCommit
from agentruns.domain.ledger.event import Event
from agentruns.domain.ledger.rows import AdmissionRow, CheckpointRow
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import InvariantError
from agentruns.store.mapping import instant
from agentruns.store.sender import Sender
from agentruns.store.statements import submit as statements

#: How old the stamp of an admission may be when its statement reads the clock. It races no head, and a large batch
#: needs seconds to travel.
STAMP_AGE: Final = timedelta(seconds=15)


@frozen(kw_only=True)
class NewAdmission:
    """What one admission inserts.

    Attributes:
        admission: the intent, and the instant that event 1 carries.
        key_digest: of the submission key, or of the run where there is no key.
        commit: event 1, checkpoint 0, admission and run, built at that instant.
        trace_context: W3C ``traceparent`` of the submitter; no evidence.
    """

    admission: AgentAdmission
    key_digest: Digest
    commit: DraftedCommit
    trace_context: str | None = None

    @property
    def event(self) -> Event:
        """The first event of the run."""
        return self.commit.events[0]

    @property
    def size(self) -> int:
        """Bytes that it adds to a statement."""
        return sum(map(len, _bodies(self.commit))) + len(self.event.data)


@frozen(kw_only=True)
class AdmissionsAnswer:
    """Say which items were admitted; why others were not is for a probe to find out.

    Attributes:
        now: the database's clock after the insert.
        admitted: for each item, in the order given, whether all of its rows were inserted.
    """

    now: Timestamp
    admitted: tuple[bool, ...]


class Admissions:
    """Insert what makes a run."""

    def __init__(self, work: Sender) -> None:
        self._work = work

    def add(self, items: Sequence[NewAdmission]) -> AdmissionsAnswer:
        """Admit each item whose key and run id are free, in time, for a graph that its tenant has.

        Within one call each key and each run id occurs once. An item that is not admitted leaves no row, raises
        nothing, and changes nothing for the others.
        """
        parameters = statements.ITEMS.parameters([_row(item) for item in items])
        found = self._work.rows(statements.admit(), {**parameters, "stamp_age": STAMP_AGE})
        (now, _, _), inserted = found[0], {(tenant_id, str(run_id)) for _, tenant_id, run_id in found}
        admitted = tuple((event.tenant_id.text, event.run_id.text) in inserted for event in (i.event for i in items))
        return AdmissionsAnswer(now=instant(now), admitted=admitted)


def _bodies(commit: DraftedCommit) -> tuple[bytes, ...]:
    admission, checkpoint = _rows(commit)
    return admission.body, checkpoint.state, checkpoint.ready


def _rows(commit: DraftedCommit) -> tuple[AdmissionRow, CheckpointRow]:
    if commit.admission is None or commit.checkpoint is None:
        raise InvariantError(reason="no_admission")
    return commit.admission, commit.checkpoint


def _row(item: NewAdmission) -> tuple[object, ...]:
    """Order the values of an item as the columns of the statement's set."""
    event, pinned, provenance = item.event, item.commit.state.admission, item.admission.intent.provenance
    admission, checkpoint = _rows(item.commit)
    if pinned is None:
        raise InvariantError(reason="no_admission")
    return (
        event.tenant_id.text,
        event.run_id.text,
        item.key_digest.raw,
        admission.submission_digest.raw,
        provenance.thread_id.text,
        provenance.invocation_id.text,
        pinned.graph_digest.raw,
        pinned.deadline,
        item.trace_context,
        event.recorded_at,
        event.event_id.text,
        event.kind.text,
        event.schema_digest.raw,
        event.data,
        event.digest.raw,
        checkpoint.checkpoint_id.text,
        checkpoint.ready,
        checkpoint.state,
        checkpoint.digest.raw,
        admission.agent_name,
        admission.agent_version,
        admission.body,
        admission.admission_digest.raw,
    )
