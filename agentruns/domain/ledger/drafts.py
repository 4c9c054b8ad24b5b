"""The pure builders of every commit: ids and content are fixed before, the stamp comes last."""

from __future__ import annotations

from agentruns.domain.ledger.commit import DraftedCommit
from agentruns.domain.ledger.endings import CancellationDraft, FailureDraft, SuccessDraft, WaitDraft
from agentruns.domain.ledger.requests import AdmissionDraft, CancellationRequestDraft, FiringDraft, ResolutionDraft
from agentruns.domain.ledger.superstep import BarrierIds, Completion, Start, SuperstepDraft

__all__ = [
    "AdmissionDraft",
    "BarrierIds",
    "CancellationDraft",
    "CancellationRequestDraft",
    "Completion",
    "DraftedCommit",
    "FailureDraft",
    "FiringDraft",
    "ResolutionDraft",
    "Start",
    "SuccessDraft",
    "SuperstepDraft",
    "WaitDraft",
]
