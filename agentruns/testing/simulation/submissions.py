"""What a database answers to the steps of submissions: keys, run ids and admissions in memory, first come first served.

The steps themselves are the library's. Each is one statement, so whoever takes them one by one has every interleaving.
"""

from __future__ import annotations

from typing import Any

from attrs import define, evolve, field, frozen

from agentruns.domain.digests import Digest, DigestPurpose, digest_body
from agentruns.domain.run_ends import RunEnds, StoredAdmission, StoredCheckpoint, StoredEvent, StoredKey, StoredRun
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import InvariantError
from agentruns.runtime.submission import SubmissionStep
from agentruns.store.admissions import STAMP_AGE, NewAdmission
from agentruns.store.ends import RunLookup
from agentruns.store.keys import KeyAttachment, ProbeAnswer, SubmissionProbe
from agentruns.testing.histories import BEGIN

_RunsByKey = dict[tuple[TenantId, Digest], str]


@frozen(kw_only=True)
class _Row:
    admission: NewAdmission
    attached: Digest | None = None
    attached_at: Timestamp | None = None


@define
class MemorySubmissions:
    """Arbitrate keys and run ids as the table of submissions does: the insert of one row decides both.

    Attributes:
        now: the database's clock.
        keys: the run of each key digest, by tenant; a run without a key stands under its keyless digest.
    """

    now: Timestamp = BEGIN
    keys: _RunsByKey = field(factory=dict)
    _rows: dict[tuple[TenantId, str], _Row] = field(factory=dict)

    @property
    def runs(self) -> set[str]:
        """The ids of all runs."""
        return {run_id for _, run_id in self._rows}

    def take(self, step: SubmissionStep) -> Any:
        """Answer a step as the statement does that the library sends for it."""
        if isinstance(step, NewAdmission):
            return self._insert(step)
        if isinstance(step, SubmissionProbe):
            return self._probe(step)
        if isinstance(step, KeyAttachment):
            return self._attach(step)
        return self._read(step)

    def _insert(self, admission: NewAdmission) -> bool:
        tenant_id, run_id = admission.event.tenant_id, admission.event.run_id.text
        pinned, stamp = admission.commit.state.admission, admission.event.recorded_at
        if pinned is None or self.now >= pinned.deadline or not stamp <= self.now <= stamp.plus(STAMP_AGE):
            return False
        if (tenant_id, run_id) in self._rows or (tenant_id, admission.key_digest) in self.keys:
            return False
        self.keys[tenant_id, admission.key_digest] = run_id
        self._rows[tenant_id, run_id] = _Row(admission=admission)
        return True

    def _probe(self, probe: SubmissionProbe) -> ProbeAnswer:
        return ProbeAnswer(
            now=self.now,
            is_read_only=False,
            has_key=probe.key_digest is not None and (probe.tenant_id, probe.key_digest) in self.keys,
            has_candidate=(probe.tenant_id, probe.run_id.text) in self._rows,
            has_graph=True,
        )

    def _attach(self, attachment: KeyAttachment) -> bool:
        place = attachment.tenant_id, attachment.run_id.text
        row = self._rows.get(place)
        is_keyless = row is not None and row.admission.key_digest == attachment.keyless_digest
        if row is None or not is_keyless or row.attached or (place[0], attachment.key_digest) in self.keys:
            return False
        self.keys[place[0], attachment.key_digest] = place[1]
        self._rows[place] = evolve(row, attached=attachment.key_digest, attached_at=self.now)
        return True

    def _read(self, lookup: RunLookup) -> RunEnds:
        run_id = lookup.run_id.text if lookup.run_id is not None else None
        if lookup.key_digest is not None:
            run_id = self.keys.get((lookup.tenant_id, lookup.key_digest))
        row = None if run_id is None else self._rows.get((lookup.tenant_id, run_id))
        return _ends(lookup, run_id, row, now=self.now)


def _ends(lookup: RunLookup, run_id: str | None, row: _Row | None, *, now: Timestamp) -> RunEnds:
    """Give what one read brings of a run that nobody has driven yet."""
    return RunEnds(
        tenant_id=lookup.tenant_id,
        run_id=run_id,
        key_digest=lookup.key_digest,
        now=now.to_datetime(),
        is_read_only=False,
        is_whole=True,
        run=None if row is None else _run(row.admission),
        admitted=None if row is None else _key(row.admission, row.admission.key_digest),
        attached=None if row is None or row.attached is None else _key(row.admission, row.attached, row.attached_at),
        admission=None if row is None else _admission(row.admission),
        first=None if row is None else _first(row.admission),
        newest=None,
        events={} if row is None else {1: _event(row.admission)},
        is_head_passed=False,
        cancellation=None,
        outcome=None,
        waits=(),
        quarantines=(),
    )


def _run(admission: NewAdmission) -> StoredRun:
    after, provenance = admission.commit.projection, admission.admission.intent.provenance
    admitted_at = after.changed_at.to_datetime()
    return StoredRun(
        run_id=provenance.run_id.text,
        thread_id=provenance.thread_id.text,
        invocation_id=provenance.invocation_id.text,
        status=after.status.value,
        revision=after.revision.value,
        changed_at=admitted_at,
        lifecycle_sequence=after.lifecycle_sequence.value,
        head_sequence=after.head.sequence.value,
        head_digest=after.head.digest.raw,
        head_recorded_at=after.head.recorded_at.to_datetime(),
        fencing_epoch=0,
        lease_attempt_id=None,
        lease_acquired_at=None,
        lease_renewed_at=None,
        lease_expires_at=None,
        quarantined_at=None,
        superstep=after.superstep.value,
        checkpoint_digest=None if after.checkpoint_digest is None else after.checkpoint_digest.raw,
        scheduler_ready_at=admitted_at,
        scheduler_not_before=None,
        graph_definition_digest=after.graph_definition_digest.raw,
        agent_deadline_at=after.agent_deadline_at.to_datetime(),
    )


def _key(admission: NewAdmission, key_digest: Digest, created_at: Timestamp | None = None) -> StoredKey:
    row = admission.commit.admission
    if row is None:
        raise InvariantError(reason="no_admission")
    return StoredKey(
        key_digest=key_digest.raw,
        submission_digest=row.submission_digest.raw,
        created_at=(created_at or admission.event.recorded_at).to_datetime(),
    )


def _admission(admission: NewAdmission) -> StoredAdmission:
    row = admission.commit.admission
    if row is None:
        raise InvariantError(reason="no_admission")
    return StoredAdmission(
        agent_name=row.agent_name,
        agent_version=row.agent_version,
        admission_digest=row.admission_digest.raw,
        sequence=row.sequence.value,
        body=row.body,
    )


def _first(admission: NewAdmission) -> StoredCheckpoint:
    row = admission.commit.checkpoint
    if row is None:
        raise InvariantError(reason="no_admission")
    return StoredCheckpoint(
        superstep=0,
        checkpoint_id=row.checkpoint_id.text,
        ready=row.ready,
        state_digest=digest_body(DigestPurpose.STATE, row.state).raw,
        digest=row.digest.raw,
        sequence=row.sequence.value,
        parent_digest=None,
    )


def _event(admission: NewAdmission) -> StoredEvent:
    event = admission.event
    return StoredEvent(
        sequence=event.sequence.value,
        event_id=event.event_id.text,
        recorded_at=event.recorded_at.to_datetime(),
        epoch=event.epoch,
        kind=event.kind.text,
        schema_digest=event.schema_digest.raw,
        data=event.data,
        digest=event.digest.raw,
        previous=None,
    )
