"""Turn how a node ended into what its attempt leaves: a result that the next fold accepts, or a failure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agentruns.domain.failure import Failure, FailureCategory, FailureDetails
from agentruns.domain.failure_codes import (
    NODE_INVALID_FAILURE,
    NODE_INVALID_RESULT,
    NODE_TASK_PANICKED,
    NODE_TIMEOUT,
    ORIGIN_GRAPH,
)
from agentruns.domain.failure_details import exception_details, reason_details
from agentruns.domain.graph.check import check_failure, check_result
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.results import NodeFailure, NodeResult
from agentruns.domain.ids import EventId, FailureId
from agentruns.domain.ledger.counting import usage_with_completion
from agentruns.domain.ledger.state import RunState
from agentruns.domain.ledger.superstep import Completion
from agentruns.domain.retry_advice import NeverRetry
from agentruns.domain.scalars import FailureCode, NodeId
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import InvalidValueError, InvariantError, NodeFailedError
from agentruns.runtime.driver.node_task import NodeEnd, NodeTask, Refused, Returned, TimedOut

_MESSAGES: Final = {
    NODE_INVALID_RESULT: "the node returned what its graph does not permit",
    NODE_INVALID_FAILURE: "the node declared a failure that a node may not declare",
    NODE_TASK_PANICKED: "the node raised an exception",
    NODE_TIMEOUT: "the node did not end in time",
}


def completions_of(state: RunState, graph: ExecutableGraph, tasks: Sequence[NodeTask]) -> tuple[Completion, ...]:
    """Make the completions of nodes that have ended, in their order. The event ids are minted here, once."""
    usage, completions = state.usage, []
    for task in tasks:
        if task.end is None:
            raise InvariantError(reason="node_without_end")
        node_id = task.context.node_id
        body, usage = _added(usage, completion_of(state, graph, node_id, task.end))
        completions.append(Completion(node_id=node_id, event_id=EventId.generate(), body=body))
    return tuple(completions)


def completion_of(state: RunState, graph: ExecutableGraph, node_id: NodeId, end: NodeEnd) -> NodeResult | NodeFailure:
    """Check what a node left before anything is written: what is refused here is a failed attempt."""
    if isinstance(end, TimedOut):
        return failed_attempt(NODE_TIMEOUT, category=FailureCategory.DEADLINE_EXCEEDED)
    if isinstance(end, Returned):
        return _result(state, graph, node_id, end.value)
    if isinstance(end, Refused):
        return failed_attempt(NODE_INVALID_RESULT, details=reason_details(end.reason))
    if isinstance(end.error, NodeFailedError):
        return _declared(end.error)
    return failed_attempt(NODE_TASK_PANICKED, details=exception_details(end.error))


def _result(state: RunState, graph: ExecutableGraph, node_id: NodeId, value: object) -> NodeResult | NodeFailure:
    try:
        return check_result(graph, node_id=node_id, returned=value, invocations=state.invocations)
    except InvalidValueError as error:
        return failed_attempt(NODE_INVALID_RESULT, details=reason_details(error.reason))


def _added(usage: BudgetUsage, body: NodeResult | NodeFailure) -> tuple[NodeResult | NodeFailure, BudgetUsage]:
    """Add what an attempt used to the run's usage. What cannot be added could never commit, however often it ran."""
    try:
        return body, usage_with_completion(usage, body.usage)
    except InvalidValueError:
        code = NODE_INVALID_RESULT if isinstance(body, NodeResult) else NODE_INVALID_FAILURE
        return failed_attempt(code, details=reason_details("usage_invalid")), usage


def _declared(error: NodeFailedError) -> NodeFailure:
    try:
        return check_failure(error.failure, error.usage)
    except InvalidValueError as refusal:
        return failed_attempt(NODE_INVALID_FAILURE, details=reason_details(refusal.reason))


def failed_attempt(
    code: FailureCode,
    *,
    category: FailureCategory = FailureCategory.INTERNAL,
    details: FailureDetails | None = None,
) -> NodeFailure:
    """Make the failure that the library declares for a node: never repeated, without usage of its own."""
    failure = Failure(
        id=FailureId.generate(),
        category=category,
        code=code,
        origin=ORIGIN_GRAPH,
        message=_MESSAGES[code],
        retry_advice=NeverRetry(),
        details=details,
    )
    return NodeFailure(failure=failure, usage=BudgetUsage.zero())
