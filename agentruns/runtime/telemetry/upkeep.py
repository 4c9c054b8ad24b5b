"""Watch what keeps runs and tables in order: supervision, retention, audits, migrations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from agentruns.errors import AgentRunsError
from agentruns.runtime.telemetry.observation import UNOBSERVED, Observation
from agentruns.runtime.telemetry.spans import LateSpan, ObservedSpan
from agentruns.runtime.telemetry.state import found

if TYPE_CHECKING:
    from agentruns.domain.ids import RunId
    from agentruns.domain.scalars import TenantId
    from agentruns.runtime.supervisor import SupervisionTick
    from agentruns.runtime.telemetry.recording import Recording, Value


class AuditCounts(Protocol):
    """What an audit counts while it goes on."""

    runs: int
    events: int
    unproven: int
    findings: int


def observed_supervision(tenant_id: TenantId) -> Observation:
    """Watch a round of supervision. One that finds nothing due makes no span."""
    recording = found()
    return UNOBSERVED if recording is None else _Supervision(recording, tenant_id)


def observed_retention_batch(tenant_id: TenantId) -> Observation:
    """Watch the removal of a batch of runs."""
    recording = found()
    return UNOBSERVED if recording is None else _RetentionBatch(recording, tenant_id)


def observed_migration(*, to: str) -> Observation:
    """Watch an upgrade of the schema."""
    recording = found()
    return UNOBSERVED if recording is None else _Migration(recording, to)


def observed_audit(progress: AuditCounts, tenant_id: TenantId | None, run_id: RunId | None) -> Observation:
    """Watch an audit, from its beginning to the last finding; what it has counted until then is what it comes to."""
    recording = found()
    return UNOBSERVED if recording is None else _Audit(recording, progress, tenant_id, run_id)


class _Supervision(LateSpan):
    __slots__ = ("_tenant_id",)

    name = "agentruns.supervise"

    def __init__(self, recording: Recording, tenant_id: TenantId) -> None:
        super().__init__(recording)
        self._tenant_id = tenant_id

    def answered(self, value: Any) -> None:
        tick: SupervisionTick = value
        counts = {
            "deadlines": tick.cancellations_requested,
            "interrupts": tick.runs_failed,
            "timers": tick.timers_fired,
            "errors": len(tick.errors),
        }
        for job, count in counts.items():
            if count:
                outcome = "failed" if job == "errors" else "settled"
                self._recording.add("agentruns.supervision", count, job=job, outcome=outcome)
        if any(counts.values()):
            self.tell(tenant_id=self._tenant_id.text, **counts)

    def failed(self, error: BaseException) -> None:
        self.tell(tenant_id=self._tenant_id.text, error=type(error).__name__)


class _RetentionBatch(ObservedSpan):
    __slots__ = ("_tenant_id",)

    name = "agentruns.retention.batch"

    def __init__(self, recording: Recording, tenant_id: TenantId) -> None:
        super().__init__(recording)
        self._tenant_id = tenant_id

    def beginning(self) -> Mapping[str, Value]:
        return {"tenant_id": self._tenant_id.text}

    def answered(self, value: Any) -> None:
        if value is None:
            self.note(count=0)
        else:
            self.note(count=value.run_count, rows=value.row_count, bytes=value.byte_count)


class _Audit(ObservedSpan):
    __slots__ = ("_ids", "_progress")

    name = "agentruns.audit.run"

    def __init__(
        self, recording: Recording, progress: AuditCounts, tenant_id: TenantId | None, run_id: RunId | None
    ) -> None:
        super().__init__(recording)
        self._progress = progress
        named = {"tenant_id": tenant_id, "run_id": run_id}
        self._ids = {name: value.text for name, value in named.items() if value is not None}

    def beginning(self) -> Mapping[str, Value]:
        return self._ids

    def answered(self, value: Any) -> None:  # noqa: ARG002 - it is the progress
        self._ended("complete")

    def failed(self, error: BaseException) -> None:
        super().failed(error)
        # What else ends it is whoever reads: it closes the audit, or raises when it is told how far it is.
        self._ended("failed" if isinstance(error, AgentRunsError) else "stopped")

    def _ended(self, outcome: str) -> None:
        progress = self._progress
        self.note(
            outcome=outcome,
            runs=progress.runs,
            events=progress.events,
            unproven=progress.unproven,
            findings=progress.findings,
        )


class _Migration(ObservedSpan):
    __slots__ = ("_to",)

    name = "agentruns.migrate"

    def __init__(self, recording: Recording, to: str) -> None:
        super().__init__(recording)
        self._to = to

    def beginning(self) -> Mapping[str, Value]:
        return {"revision": self._to}
