"""Verify how a run began: event 1, admission, checkpoint 0 and submission, each held against the others."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias

from attrs import frozen

from agentruns.domain.admission import MAX_ADMISSION_BYTES, AgentAdmission, AgentAdmissionIntent
from agentruns.domain.canonical import parse_canonical
from agentruns.domain.digests import Digest, DigestPurpose, digest_body
from agentruns.domain.graph.nodes import ReadyNodes
from agentruns.domain.ids import CheckpointId
from agentruns.domain.json_limits import KIB, JsonLimits
from agentruns.domain.ledger.checkpoint import Checkpoint, ready_column
from agentruns.domain.ledger.data import AgentAdmitted
from agentruns.domain.ledger.findings import MISSING
from agentruns.domain.numbers import Superstep
from agentruns.domain.run_ends import RunEnds, StoredAdmission, StoredCheckpoint, StoredKey, StoredRun
from agentruns.domain.run_ends_journal import (
    FIRST,
    EndsJournal,
    VerifiedEvent,
    corrupt,
    insist,
    instant,
    named_run,
    well_formed,
)
from agentruns.domain.scalars import NodeId
from agentruns.domain.submission import keyless_digest
from agentruns.errors import AgentSubmissionNotFoundError, RunNotFoundError

#: Decode an admission's bytes, which have this digest and are the record's canonical ones.
DecodeAdmission: TypeAlias = Callable[[Digest, bytes], AgentAdmissionIntent]

_READY: Final = JsonLimits.record(160 * KIB)
#: Ready sets that are kept as records: a graph has few of them.
_READY_KEPT: Final = 128


@frozen(kw_only=True)
class EndRows:
    """The rows that every run has."""

    ends: RunEnds
    run: StoredRun
    admitted: StoredKey
    admission: StoredAdmission
    first: StoredCheckpoint


def present_rows(ends: RunEnds) -> EndRows:
    """Tell a run that is not there from one that lost a part.

    Raises:
        RunNotFoundError: neither run nor submission stands under the id.
        AgentSubmissionNotFoundError: nothing stands under the key.
        CorruptDataError: a part is missing.
    """
    if ends.run_id is None:
        raise AgentSubmissionNotFoundError(tenant_id=ends.tenant_id)
    if ends.run is None and ends.admitted is None and ends.attached is None:
        raise RunNotFoundError(tenant_id=ends.tenant_id, id=named_run(ends))
    if ends.run is None:
        raise corrupt(ends, "runs", reason=MISSING)
    if ends.admitted is None:
        raise corrupt(ends, "agent_submission_keys", reason=MISSING)
    if ends.admission is None:
        raise corrupt(ends, "agent_admissions", reason=MISSING)
    if ends.first is None:
        raise corrupt(ends, "run_checkpoints", reason=MISSING)
    return EndRows(ends=ends, run=ends.run, admitted=ends.admitted, admission=ends.admission, first=ends.first)


def verify_first_event(journal: EndsJournal) -> tuple[VerifiedEvent, AgentAdmitted]:
    """Verify that the journal begins with an admission."""
    first = journal.at(FIRST)
    if not isinstance(first.data, AgentAdmitted):
        raise corrupt(journal.ends, "order")
    return first, first.data


def verify_admission(
    rows: EndRows, first: VerifiedEvent, admitted: AgentAdmitted, decode: DecodeAdmission
) -> AgentAdmission:
    """Verify the body of the admission against event 1, and the columns beside it."""
    ends, row = rows.ends, rows.admission
    body = row.body or b""
    insist(ends, "body", holds=0 < len(body) <= MAX_ADMISSION_BYTES)
    digest = digest_body(DigestPurpose.ADMISSION, body)
    insist(ends, "admission", holds=digest == admitted.admission_digest)
    with well_formed(ends, "admission"):
        admission = AgentAdmission(intent=decode(digest, body), admitted_at=first.event.recorded_at)
    intent, capability = admission.intent, admission.intent.descriptor.metadata.identity.capability
    insist(ends, "admission", holds=intent.graph.definition_digest == admitted.graph_digest)
    insist(ends, "admission", holds=intent.request.input.digest == admitted.input_digest)
    insist(ends, "admission", holds=intent.authority.policy_digest == admitted.policy_digest)
    insist(ends, "agent_admissions.admission_digest", holds=row.admission_digest == digest.raw)
    insist(ends, "agent_admissions.agent_name", holds=row.agent_name == capability.name.text)
    insist(ends, "agent_admissions.agent_version", holds=row.agent_version == str(capability.version))
    insist(ends, "agent_admissions.sequence", holds=row.sequence == FIRST)
    return admission


def checkpoint_of(ends: RunEnds, stored: StoredCheckpoint, graph_digest: Digest) -> Checkpoint:
    """Put a checkpoint together from its columns and the hash of its state, and verify that its row states its digest.

    Whether its parent is the right one, and which event names it, is for the caller to compare.
    """
    parent = stored.parent_digest
    with well_formed(ends, "run_checkpoints"):
        checkpoint = Checkpoint(
            checkpoint_id=CheckpointId(stored.checkpoint_id),
            superstep=Superstep(stored.superstep),
            graph_digest=graph_digest,
            parent_digest=None if parent is None else Digest(parent),
            ready_nodes=_ready_nodes(stored.ready),
            state_digest=Digest(stored.state_digest),
        )
        insist(ends, "run_checkpoints.ready", holds=ready_column(checkpoint.ready_nodes) == stored.ready)
    insist(ends, "run_checkpoints.digest", holds=checkpoint.digest.raw == stored.digest)
    return checkpoint


@lru_cache(maxsize=_READY_KEPT)
def _ready_nodes(ready: bytes) -> ReadyNodes:
    tree: Any = parse_canonical(ready, _READY)
    return ReadyNodes(tuple(map(NodeId.parse, tree)))


def verify_first_checkpoint(rows: EndRows, admitted: AgentAdmitted) -> Checkpoint:
    """Verify checkpoint 0: it has no parent, belongs to the admission's graph, and is the one that event 1 names."""
    ends = rows.ends
    checkpoint = checkpoint_of(ends, rows.first, admitted.graph_digest)
    insist(ends, "admission", holds=checkpoint.digest == admitted.checkpoint_digest)
    insist(ends, "run_checkpoints.sequence", holds=rows.first.sequence == FIRST)
    return checkpoint


def verify_submission(rows: EndRows, first: VerifiedEvent, admitted: AgentAdmitted) -> Digest | None:
    """Verify the rows of the submission; give the digest of the run's key, if it has one."""
    ends, row, attached = rows.ends, rows.admitted, rows.ends.attached
    keyless = keyless_digest(ends.tenant_id, first.event.run_id).raw
    submitted = admitted.submission_digest.raw
    created_at = instant(ends, "agent_submission_keys.created_at", row.created_at)
    insist(ends, "agent_submission_keys.created_at", holds=created_at == first.event.recorded_at)
    insist(ends, "agent_submission_keys.submission_digest", holds=row.submission_digest == submitted)
    key = None if row.key_digest == keyless else row.key_digest
    if attached is not None:
        insist(ends, "agent_submission_keys.key_digest", holds=key is None and attached.key_digest != keyless)
        insist(ends, "agent_submission_keys.submission_digest", holds=attached.submission_digest == submitted)
        key = attached.key_digest
    if ends.key_digest is not None:
        insist(ends, "agent_submission_keys.key_digest", holds=ends.key_digest.raw in (key, row.key_digest))
    with well_formed(ends, "agent_submission_keys.key_digest"):
        return None if key is None else Digest(key)
