"""What clients send and what they get."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from agentruns import CancelledOutcome, FailedOutcome, SucceededOutcome

from .reviews import Review

Reference = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]


class Message(BaseModel):
    """Take nothing that was not asked for, and repeat nothing that was sent."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class Line(Message):
    """One line of an order."""

    sku: Reference
    quantity: Annotated[int, Field(ge=1, le=1_000_000, strict=True)]


class OrderSent(Message):
    """An order as it was placed."""

    amount_cents: Annotated[int, Field(ge=0, le=10**12, strict=True)]
    lines: Annotated[list[Line], Field(min_length=1, max_length=500)]


class ReviewAsked(Message):
    """A review that is asked for. What a note may be is said in one place, the agent's input schema."""

    submission_key: SecretStr
    order: Reference
    note: str = ""


class KeySent(Message):
    """A key to look a review up by: in a body, because addresses are logged."""

    submission_key: SecretStr


class WithdrawalSent(Message):
    """Why a review is to end: a word of a closed set, since it is shown to everybody who may read the run."""

    reason: Literal["withdrawn", "duplicate"]


class Outcome(BaseModel):
    """How a review ended."""

    kind: Literal["succeeded", "failed", "cancelled"]
    result: Any = None
    failure: str | None = None


class ReviewShown(BaseModel):
    """A review, with what of its run concerns a client."""

    order: str
    run_id: str
    status: str
    revision: str
    admitted_at: datetime
    changed_at: datetime
    quarantined: bool
    outcome: Outcome | None

    @classmethod
    def of(cls, review: Review) -> ReviewShown:
        """Choose what is shown. A revision is a text, since it may exceed what JavaScript reads exactly."""
        run = review.run
        return cls(
            order=review.order,
            run_id=run.provenance.run_id.text,
            status=run.status.value,
            revision=str(run.revision),
            admitted_at=run.admitted_at.to_datetime(),
            changed_at=run.changed_at.to_datetime(),
            quarantined=run.quarantined,
            outcome=_outcome_of(run.outcome),
        )


def _outcome_of(outcome: SucceededOutcome | FailedOutcome | CancelledOutcome | None) -> Outcome | None:
    match outcome:
        case None:
            return None
        case SucceededOutcome():
            return Outcome(kind="succeeded", result=outcome.result.output.value)
        case FailedOutcome():
            return Outcome(kind="failed", failure=outcome.failure.code.text)
        case CancelledOutcome():
            return Outcome(kind="cancelled", failure=outcome.failure.code.text)
