"""Valid results, outcomes and snapshots, to start a test from."""

from __future__ import annotations

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import JsonTree
from agentruns.domain.digests import plain_digest
from agentruns.domain.failure import Failure
from agentruns.domain.identity import ArtifactReference, Modality, SchemaReference
from agentruns.domain.ids import ArtifactId, RunId
from agentruns.domain.numbers import ByteCount, RunRevision
from agentruns.domain.outcome import AgentRunTerminalOutcome, CancelledOutcome, FailedOutcome, SucceededOutcome
from agentruns.domain.result import AgentResult, AgentResultProvenance
from agentruns.domain.scalars import TenantId
from agentruns.domain.snapshot import AgentRunSnapshot
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.usage import BudgetUsage
from agentruns.testing.samples import (
    TENANT,
    agent,
    cancellation,
    failure,
    graph_reference,
    identity,
    principal,
    run_ids,
    sample_id,
    schema_reference,
)

ADMITTED_AT = Timestamp.parse("2026-01-02T03:04:05.000006Z")
COMPLETED_AT = Timestamp.parse("2026-01-02T03:04:07.000008Z")

#: Enough for the output ``null`` and the input ``null`` of the samples.
USAGE = BudgetUsage.of(graph_steps=1, input_bytes=64, output_bytes=64)


def provenance(number: int = 1, *, tenant_id: TenantId = TENANT) -> AgentResultProvenance:
    """Name run ``number`` of the sample agent."""
    return AgentResultProvenance.of(tenant_id, run_ids(number), agent())


def artifact(
    number: int = 1,
    *,
    tenant_id: TenantId = TENANT,
    run_id: RunId | None = None,
    size: int = 10,
    modality: Modality = Modality.TEXT,
) -> ArtifactReference:
    """Refer to bytes of run 1 that are kept nowhere."""
    return ArtifactReference(
        tenant_id=tenant_id,
        run_id=run_ids().run_id if run_id is None else run_id,
        artifact_id=sample_id(ArtifactId, number),
        media_type="text/plain",
        modality=modality,
        size=ByteCount(size),
        digest=plain_digest(b"artifact"),
        principal=principal(),
        capability=identity(),
    )


def result(
    *,
    of: AgentResultProvenance | None = None,
    output: JsonTree = None,
    output_schema: SchemaReference | None = None,
    artifacts: tuple[ArtifactReference, ...] = (),
    usage: BudgetUsage = USAGE,
    completed_at: Timestamp = COMPLETED_AT,
) -> AgentResult:
    """Hold what run 1 of the sample agent gave; by default ``null``."""
    return AgentResult(
        provenance=provenance() if of is None else of,
        completed_at=completed_at,
        output_schema=schema_reference("output") if output_schema is None else output_schema,
        output=BoundedJson.of(output),
        artifacts=artifacts,
        usage=usage,
    )


def outcome(status: RunStatus, *, because: Failure | None = None) -> AgentRunTerminalOutcome | None:
    """Give the outcome that belongs to a status: none while the run is not over."""
    if status is RunStatus.SUCCEEDED:
        return SucceededOutcome(result=result())
    if status is RunStatus.FAILED:
        reason = failure() if because is None else because
        return FailedOutcome(failure=reason, completed_at=COMPLETED_AT, usage=USAGE)
    if status is RunStatus.CANCELLED:
        reason = cancellation() if because is None else because
        return CancelledOutcome(failure=reason, completed_at=COMPLETED_AT, usage=USAGE)
    return None


def snapshot(status: RunStatus = RunStatus.ACTIVE, *, quarantined: bool = False) -> AgentRunSnapshot:
    """Show run 1 of the sample agent in a status, at the lowest revision that has it."""
    is_fresh = status is RunStatus.ACTIVE
    return AgentRunSnapshot(
        provenance=provenance(),
        graph=graph_reference(),
        admission_digest=plain_digest(b"admission"),
        admitted_at=ADMITTED_AT,
        revision=RunRevision(1 if is_fresh else 3 if status is RunStatus.CANCELLED else 2),
        status=status,
        changed_at=ADMITTED_AT if is_fresh else COMPLETED_AT,
        quarantined=quarantined,
        outcome=outcome(status),
    )
