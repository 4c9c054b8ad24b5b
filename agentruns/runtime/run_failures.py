"""Choose the failure that a run ends with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.failure import Failure, FailureCategory
from agentruns.domain.failure_codes import (
    ATTEMPTS_EXHAUSTED,
    BARRIER_REJECTED,
    ORIGIN_GRAPH,
    RESULT_REJECTED,
    SUPERSTEP_LIMIT_REACHED,
)
from agentruns.domain.failure_details import reason_details
from agentruns.domain.ids import FailureId
from agentruns.domain.ledger.classify import Exhausted, Failed, classify
from agentruns.domain.ledger.outcomes import StoredSuccess
from agentruns.domain.numbers import FencingEpoch
from agentruns.domain.result import AgentResult
from agentruns.domain.retry_advice import NeverRetry
from agentruns.domain.scalars import FailureCode
from agentruns.domain.schema import JsonSchemaRegistry
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import BudgetExceededError, InvalidValueError, InvariantError, SchemaRejectedError
from agentruns.runtime.driver.outcomes import Blocked

_MESSAGES: Final = {
    SUPERSTEP_LIMIT_REACHED: "the graph permits no further step",
    BARRIER_REJECTED: "the results of a step cannot be joined",
    ATTEMPTS_EXHAUSTED: "a node has used all of its attempts",
    RESULT_REJECTED: "the result cannot stand against request, agent and budget",
}


def failure_of(handoff: Blocked, *, epoch: FencingEpoch) -> Failure:
    """Name why a blocked run ends: its limit, its barrier, or the first of its nodes that cannot go on."""
    blockers = handoff.blockers
    if blockers.superstep_limit_reached:
        return _failure(SUPERSTEP_LIMIT_REACHED, FailureCategory.RATE_LIMITED)
    if blockers.barrier_rejected is not None:
        return _failure(BARRIER_REJECTED, FailureCategory.INVALID_INPUT, reason=blockers.barrier_rejected)
    plan = classify(handoff.state, epoch=epoch, now=handoff.observed_at)
    for each in plan.nodes:
        if isinstance(each, Failed | Exhausted):
            return each.failure or _failure(ATTEMPTS_EXHAUSTED, FailureCategory.INTERNAL)
    raise InvariantError(reason="blocked_without_node")


def result_refusal(
    success: StoredSuccess, intent: AgentAdmissionIntent, schemas: JsonSchemaRegistry, *, completed_at: Timestamp
) -> tuple[FailureCategory, str] | None:
    """Say why a result cannot stand at an instant, or ``None``: put together from what is about to be written."""
    try:
        result = AgentResult(
            provenance=intent.provenance,
            completed_at=completed_at,
            output_schema=intent.descriptor.output_schema,
            output=success.output,
            artifacts=success.artifacts,
            usage=success.usage,
        )
        result.validate_for(intent.provenance, intent.request, intent.descriptor, intent.budget)
        schemas.validate(intent.request.input_schema, intent.request.input)
        schemas.validate(result.output_schema, result.output)
    except BudgetExceededError as error:
        is_late = error.reason == "deadline"
        return FailureCategory.DEADLINE_EXCEEDED if is_late else FailureCategory.RATE_LIMITED, error.reason
    except SchemaRejectedError:
        return FailureCategory.INTERNAL, "schema_rejected"
    except InvalidValueError as error:
        return FailureCategory.INTERNAL, error.reason
    return None


def rejected_result() -> Callable[[tuple[FailureCategory, str]], Failure]:
    """Mint the failure of a result that cannot stand: its id once, whatever instant it is built at."""
    failure_id = FailureId.generate()

    def failure(refusal: tuple[FailureCategory, str]) -> Failure:
        category, reason = refusal
        return _failure(RESULT_REJECTED, category, reason=reason, failure_id=failure_id)

    return failure


def _failure(
    code: FailureCode, category: FailureCategory, *, reason: str | None = None, failure_id: FailureId | None = None
) -> Failure:
    return Failure(
        id=failure_id or FailureId.generate(),
        category=category,
        code=code,
        origin=ORIGIN_GRAPH,
        message=_MESSAGES[code],
        retry_advice=NeverRetry(),
        details=None if reason is None else reason_details(reason),
    )
