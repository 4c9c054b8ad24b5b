"""What goes on record. All of it is made of what is the same on every retry, so that a retry asks for the same."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from agentruns import (
    BudgetLimits,
    DurableAgentAdmissionRequest,
    EventId,
    Failure,
    FailureCategory,
    FailureCode,
    FailureId,
    FailureOrigin,
    IssuerId,
    NeverRetry,
    OpenDeployment,
    PrincipalIdentity,
    SubjectId,
    Timestamp,
)

from .access import ASK, Caller
from .agent import ISSUER, review
from .models import Order

#: How long after an order was placed its review is worth anything.
_REVIEW_WITHIN: Final = timedelta(days=2)


def review_request(agents: OpenDeployment, caller: Caller, order: Order, *, note: str) -> DurableAgentAdmissionRequest:
    """Ask for the review of an order, from the stored order, the caller, and what the client sent.

    A deadline counted from now would be other content, and the retry a conflict. So would be all scopes of the caller,
    which may change between two tries: what is granted is the one that was checked.
    """
    return agents.request(
        review,
        tenant=order.tenant_id,
        input={
            "reference": order.reference,
            "amount_cents": order.amount_cents,
            "lines": [dict(line) for line in order.lines],
            "note": note,
        },
        principal=PrincipalIdentity(issuer=IssuerId(ISSUER), subject=SubjectId(caller.subject)),
        granted_scopes=[ASK],
        budget_limits=BudgetLimits.of(deadline=Timestamp.from_datetime(order.placed_at + _REVIEW_WITHIN)),
    )


def withdrawal(event_id: EventId, reason: str) -> Failure:
    """Say why a run is to end. The failure takes its id from the client's event, which the client keeps."""
    return Failure(
        id=FailureId(event_id.text),
        category=FailureCategory.CANCELLED,
        code=FailureCode(f"order.{reason}"),
        origin=FailureOrigin("order-reviews"),
        message="the review was withdrawn",
        retry_advice=NeverRetry(),
    )
