"""Why a run does not progress, in words that a person acts on."""

from __future__ import annotations

from enum import Enum, unique

from attrs import frozen

from agentruns.domain.timestamps import Timestamp


@unique
class RunVerdict(Enum):
    """Say how a run is, in one word.

    ``PROGRESSING``: somebody holds its lease. ``WAITING``: it goes on by itself, or by an answer that nobody is late
    with. ``STUCK``: it stays so until somebody acts.
    """

    FINISHED = "finished"
    PROGRESSING = "progressing"
    WAITING = "waiting"
    STUCK = "stuck"


@unique
class ReasonCode(Enum):
    """Name what keeps a run from progressing, stable for programs."""

    QUARANTINED = "quarantined"
    NO_CHECKPOINT = "no_checkpoint"
    LEASE_HELD = "lease_held"
    DEADLINE_PASSED = "deadline_passed"
    INTERRUPT_EXPIRED = "interrupt_expired"
    TIMER_OVERDUE = "timer_overdue"
    WAITING_FOR_INTERRUPT = "waiting_for_interrupt"
    WAITING_FOR_TIMER = "waiting_for_timer"
    DEFERRED = "deferred"
    GRAPH_NOT_DEPLOYED = "graph_not_deployed"
    CANCELLATION_REQUESTED = "cancellation_requested"
    BLOCKED = "blocked"
    TENANT_AT_CAPACITY = "tenant_at_capacity"
    NOT_IN_FAIRNESS_POLICY = "not_in_fairness_policy"
    LEASE_EXPIRED = "lease_expired"
    NEVER_CLAIMED = "never_claimed"
    DUE_NOT_CLAIMED = "due_not_claimed"


@frozen(kw_only=True)
class ExplanationReason:
    """Give one reason.

    Attributes:
        code: for programs.
        sentence: for people, with ids and ages; nothing private.
        action: what to do about it; ``None`` where there is nothing to do.
        needs_action: whether the run stays so until somebody acts.
    """

    code: ReasonCode
    sentence: str
    action: str | None
    needs_action: bool


@frozen(kw_only=True)
class RunExplanation:
    """Say why a run does not progress.

    Attributes:
        verdict: how the run is.
        reasons: all that apply; the first one is the cause.
        next_action: of the first reason that has one.
        observed_at: the instant of the database to which all ages refer.
    """

    verdict: RunVerdict
    reasons: tuple[ExplanationReason, ...]
    next_action: str | None
    observed_at: Timestamp
