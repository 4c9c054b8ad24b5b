from __future__ import annotations

from agentruns.domain.ledger.documents import EVENT_DOCUMENTS
from agentruns.domain.ledger.effects import ToolEffect
from agentruns.domain.ledger.kinds import EventKind, EventSource, find_kind
from agentruns.domain.scalars import JournalEventKind
from agentruns.domain.tool import ToolRisk


def test_kinds_are_found_by_text_and_document() -> None:
    for kind in EventKind:
        assert find_kind(JournalEventKind(kind.value), kind.document.digest) is kind
        assert str(kind) == kind.value
        others = {document.digest for document in EVENT_DOCUMENTS} - {kind.document.digest}
        assert all(find_kind(kind.text, digest) is None for digest in others)
    assert find_kind(JournalEventKind("x"), EVENT_DOCUMENTS[0].digest) is None


def test_sources() -> None:
    assert [EventSource.WORKER.allows(epoch) for epoch in (-1, 0, 1)] == [False, False, True]
    assert [EventSource.CONTROL_PLANE.allows(epoch) for epoch in (-1, 0, 1)] == [False, True, False]
    assert [EventSource.EITHER.allows(epoch) for epoch in (-1, 0, 1)] == [False, True, True]
    either = {kind for kind in EventKind if kind.source is EventSource.EITHER}
    assert either == {EventKind.RUN_FAILED, EventKind.MODEL_ERROR_COMMITTED, EventKind.TOOL_ERROR_COMMITTED}
    control_plane = {kind.value for kind in EventKind if kind.source is EventSource.CONTROL_PLANE}
    assert control_plane == {
        "agent-admitted",
        "graph-interrupt-resolved",
        "graph-timer-fired",
        "agent-cancellation-requested",
        "agent-deadline-cancellation-requested",
        "tool-result-reconciled",
        "tool-error-reconciled",
    }


def test_effects_by_risk() -> None:
    legal = {risk: {each.value for each in ToolEffect if each.is_legal(risk)} for risk in ToolRisk}
    writing = {"not_started", "not_applied", "applied", "unknown"}
    assert legal == {
        ToolRisk.READ_ONLY: {"not_applicable"},
        ToolRisk.IDEMPOTENT_WRITE: writing,
        ToolRisk.NON_IDEMPOTENT_WRITE: writing,
    }
    repeatable = {risk: {each.value for each in ToolEffect if each.permits_another_start(risk)} for risk in ToolRisk}
    assert repeatable == {
        ToolRisk.READ_ONLY: {"not_applicable"},
        ToolRisk.IDEMPOTENT_WRITE: {"not_started", "not_applied", "applied"},
        ToolRisk.NON_IDEMPOTENT_WRITE: {"not_started", "not_applied"},
    }
