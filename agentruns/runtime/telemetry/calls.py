"""Watch the calls of an application: submissions and loads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentruns.domain.submission import DurableAgentAdmissionRequest
from agentruns.errors import AgentRunsError, ConflictError, CorruptDataError, NotFoundError, StoreError
from agentruns.runtime.telemetry.observation import UNOBSERVED, Observation
from agentruns.runtime.telemetry.spans import ObservedSpan
from agentruns.runtime.telemetry.state import STATE, found

if TYPE_CHECKING:
    from agentruns.runtime.submission import AgentRunAdmission
    from agentruns.runtime.submission_sets import SubmissionSet
    from agentruns.runtime.telemetry.recording import Recording, Value
    from agentruns.store.ends import RunLookup


def observed_submission(request: DurableAgentAdmissionRequest) -> Observation:
    """Watch one submission. The span is not current, so that the run is linked to the caller's."""
    recording = found()
    return UNOBSERVED if recording is None else _Submission(recording, request)


def observed_set(asked: SubmissionSet) -> Observation:
    """Watch the submissions of one call."""
    recording = found()
    return UNOBSERVED if recording is None else _Submissions(recording, asked)


def observed_load(lookup: RunLookup) -> Observation:
    """Watch a verified read."""
    recording = found()
    return UNOBSERVED if recording is None else _Load(recording, lookup)


def trace_context() -> str | None:
    """Give the W3C ``traceparent`` of the caller's span; ``None`` without one, and where nobody records."""
    recording = STATE.recording
    return None if recording is None else recording.trace_context()


class _Submission(ObservedSpan):
    __slots__ = ("_request",)

    name = "agentruns.submit"

    def __init__(self, recording: Recording, request: DurableAgentAdmissionRequest) -> None:
        super().__init__(recording)
        self._request = request

    def beginning(self) -> Mapping[str, Value]:
        # Nobody has looked yet whether it is a request at all.
        is_request = isinstance(self._request, DurableAgentAdmissionRequest)
        return {"tenant_id": self._request.tenant_id.text if is_request else None}

    def answered(self, value: Any) -> None:
        admission: AgentRunAdmission = value
        self.note(run_id=admission.snapshot.provenance.run_id.text)
        self._count(admission.outcome.value)

    def failed(self, error: BaseException) -> None:
        super().failed(error)
        self._count(_refusal(error))

    def _count(self, outcome: str) -> None:
        self.note(outcome=outcome)
        self._recording.add("agentruns.submissions", outcome=outcome)
        self._recording.record("agentruns.submit.duration", self.seconds, outcome=outcome)


class _Submissions(ObservedSpan):
    """Many in one call: each counts, and the call has no duration of one."""

    __slots__ = ("_asked",)

    name = "agentruns.submit"

    def __init__(self, recording: Recording, asked: SubmissionSet) -> None:
        super().__init__(recording)
        self._asked = asked

    def beginning(self) -> Mapping[str, Value]:
        asked = self._asked.submissions
        return {"tenant_id": asked[0][1].tenant_id.text, "count": len(asked)}

    def answered(self, value: Any) -> None:
        results: tuple[AgentRunAdmission | AgentRunsError, ...] = value
        for each in results:
            outcome = _refusal(each) if isinstance(each, AgentRunsError) else each.outcome.value
            self._recording.add("agentruns.submissions", outcome=outcome)


class _Load(ObservedSpan):
    __slots__ = ("_lookup",)

    name = "agentruns.load"

    def __init__(self, recording: Recording, lookup: RunLookup) -> None:
        super().__init__(recording)
        self._lookup = lookup

    def beginning(self) -> Mapping[str, Value]:
        return {"tenant_id": self._lookup.tenant_id.text}

    def answered(self, value: Any) -> None:
        run_id = value.provenance.run_id.text
        self.note(outcome="found", run_id=run_id, status=value.status.value)

    def failed(self, error: BaseException) -> None:
        super().failed(error)
        is_corrupt = isinstance(error, CorruptDataError)
        self.note(outcome="not_found" if isinstance(error, NotFoundError) else "corrupt" if is_corrupt else "failed")


def _refusal(error: BaseException) -> str:
    """Say how a submission failed; what is not refused may be repeated."""
    if isinstance(error, ConflictError):
        return "conflict"
    is_refused = isinstance(error, AgentRunsError | TypeError) and not isinstance(error, StoreError)
    return "rejected" if is_refused else "failed"
