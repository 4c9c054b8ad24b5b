"""The closed set of kinds of events: who may write each, and which document covers it."""

from __future__ import annotations

from enum import Enum, unique
from typing import Final, Self

from agentruns.domain.digests import Digest
from agentruns.domain.identity import SchemaReference
from agentruns.domain.ledger.documents import (
    ADMISSION_EVENT,
    CANCELLATION_EVENT,
    DRIVER_EVENT,
    INVOCATION_EVENT,
    LIFECYCLE_EVENT,
)
from agentruns.domain.scalars import JournalEventKind


@unique
class EventSource(Enum):
    """Say who may write an event: a worker under its live fence, the control plane under epoch 0, or both."""

    WORKER = "worker"
    CONTROL_PLANE = "control_plane"
    EITHER = "either"

    def allows(self, epoch: int) -> bool:
        """Tell whether an event of this source may carry the epoch."""
        if self is EventSource.EITHER:
            return epoch >= 0
        return epoch > 0 if self is EventSource.WORKER else epoch == 0


_WORKER, _CONTROL_PLANE, _EITHER = EventSource.WORKER, EventSource.CONTROL_PLANE, EventSource.EITHER


@unique
class EventKind(Enum):
    """Name what happened. The value is the text of the column.

    Attributes:
        text: the value as a scalar.
        operation: the constant member ``operation`` of the data.
        source: who may write it.
        document: the schema document that covers its data.
    """

    AGENT_ADMITTED = "agent-admitted", _CONTROL_PLANE, ADMISSION_EVENT

    NODE_ATTEMPT_STARTED = "graph-node-attempt-started", _WORKER, DRIVER_EVENT
    NODE_ATTEMPT_SUCCEEDED = "graph-node-attempt-succeeded", _WORKER, DRIVER_EVENT
    NODE_ATTEMPT_FAILED = "graph-node-attempt-failed", _WORKER, DRIVER_EVENT
    BARRIER_CONTINUED = "graph-barrier-continued", _WORKER, DRIVER_EVENT

    BARRIER_WAITING = "graph-barrier-waiting", _WORKER, LIFECYCLE_EVENT
    BARRIER_SUCCEEDED = "graph-barrier-succeeded", _WORKER, LIFECYCLE_EVENT
    RUN_FAILED = "graph-run-failed", _EITHER, LIFECYCLE_EVENT
    INTERRUPT_RESOLVED = "graph-interrupt-resolved", _CONTROL_PLANE, LIFECYCLE_EVENT
    TIMER_FIRED = "graph-timer-fired", _CONTROL_PLANE, LIFECYCLE_EVENT

    CANCELLATION_REQUESTED = "agent-cancellation-requested", _CONTROL_PLANE, CANCELLATION_EVENT
    DEADLINE_CANCELLATION_REQUESTED = "agent-deadline-cancellation-requested", _CONTROL_PLANE, CANCELLATION_EVENT
    CANCELLATION_CONFIRMED = "agent-cancellation-confirmed", _WORKER, CANCELLATION_EVENT

    MODEL_INVOCATION_PREPARED = "model-invocation-prepared", _WORKER, INVOCATION_EVENT
    TOOL_INVOCATION_PREPARED = "tool-invocation-prepared", _WORKER, INVOCATION_EVENT
    MODEL_ATTEMPT_STARTED = "model-attempt-started", _WORKER, INVOCATION_EVENT
    TOOL_ATTEMPT_STARTED = "tool-attempt-started", _WORKER, INVOCATION_EVENT
    MODEL_RESPONSE_COMMITTED = "model-response-committed", _WORKER, INVOCATION_EVENT
    TOOL_RESULT_COMMITTED = "tool-result-committed", _WORKER, INVOCATION_EVENT
    MODEL_ERROR_COMMITTED = "model-error-committed", _EITHER, INVOCATION_EVENT
    TOOL_ERROR_COMMITTED = "tool-error-committed", _EITHER, INVOCATION_EVENT
    TOOL_RESULT_RECONCILED = "tool-result-reconciled", _CONTROL_PLANE, INVOCATION_EVENT
    TOOL_ERROR_RECONCILED = "tool-error-reconciled", _CONTROL_PLANE, INVOCATION_EVENT

    text: JournalEventKind
    operation: str
    source: EventSource
    document: SchemaReference

    def __new__(cls, name: str, source: EventSource, document: SchemaReference) -> Self:
        """Take the text alone as the value."""
        kind = object.__new__(cls)
        kind._value_ = name
        kind.text = JournalEventKind(name)
        kind.operation = name.replace("-", "_")
        kind.source = source
        kind.document = document
        return kind

    #: A member exists once, so where it is says enough; an enum would hash its name, by a call, at each look-up.
    __hash__ = object.__hash__

    def __str__(self) -> str:
        return str(self.value)


_KNOWN: Final[dict[tuple[JournalEventKind, Digest], EventKind]] = {
    (kind.text, kind.document.digest): kind for kind in EventKind
}


def find_kind(text: JournalEventKind, schema_digest: Digest) -> EventKind | None:
    """Find the kind of an event under the document that its row names; this release knows no other pair."""
    return _KNOWN.get((text, schema_digest))
