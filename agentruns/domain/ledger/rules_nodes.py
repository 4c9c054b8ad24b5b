"""The rules of attempts of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

from agentruns.domain.copies import copy_with
from agentruns.domain.failure import Failure, FailureCategory, SafeAfter
from agentruns.domain.graph.check import verify_result
from agentruns.domain.ledger.bodies import NODE_FAILURE, NODE_RESULT
from agentruns.domain.ledger.data import NodeAttemptFailed, NodeAttemptStarted, NodeAttemptSucceeded
from agentruns.domain.ledger.records import AttemptStatus, NodeAttempt
from agentruns.domain.ledger.step import Consequence, Step
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import InvalidValueError

_K = TypeVar("_K")
_V = TypeVar("_V")

_HISTORY = "attempt_history"
_NO_NODE_FAILURE = frozenset({FailureCategory.CANCELLED, FailureCategory.AMBIGUOUS_EXTERNAL_OUTCOME})


def started(step: Step, data: NodeAttemptStarted) -> Consequence:
    """Start the next attempt of a ready node: the first, a takeover, or a retry whose time has come."""
    state, event = step.state, step.event
    if state.superstep >= step.graph.definition.limits.maximum_supersteps or not step.checkpoint.is_ready(data.node_id):
        raise step.breach(_HISTORY)
    last = state.nodes.get(data.node_id)
    if data.attempt != (1 if last is None else last.attempt + 1):
        raise step.breach(_HISTORY)
    if last is not None and (last.attempt_id == data.attempt_id or not _may_start_after(last, step)):
        raise step.breach(_HISTORY)
    attempt = NodeAttempt(
        node_id=data.node_id,
        attempt=data.attempt,
        attempt_id=data.attempt_id,
        epoch=event.epoch,
        started_at=event.recorded_at,
        sequence=event.sequence,
        status=AttemptStatus.EXECUTING,
    )
    nodes = with_entry(state.nodes, data.node_id, attempt)
    counts = {"concurrent_branches": sum(each.status is AttemptStatus.EXECUTING for each in nodes.values())}
    if not state.nodes:
        counts["graph_steps"] = 1
    if last is not None:
        counts["retries"] = 1
    return Consequence(changes={"nodes": nodes}, counts=counts)


def succeeded(step: Step, data: NodeAttemptSucceeded) -> Consequence:
    """End an attempt by a result that the graph permits."""
    attempt = _ended(step, data)
    result = step.body(NODE_RESULT, data.result_digest)
    try:
        verify_result(step.graph, node_id=data.node_id, result=result, invocations=step.state.invocations)
    except InvalidValueError as error:
        raise step.breach("result", reason=error.reason) from error
    ended = copy_with(attempt, {"status": AttemptStatus.SUCCEEDED, "result_digest": data.result_digest})
    return Consequence(
        changes={
            "nodes": with_entry(step.state.nodes, data.node_id, ended),
            "results": with_entry(step.state.results, data.node_id, result),
        },
        spent=result.usage,
    )


def failed(step: Step, data: NodeAttemptFailed) -> Consequence:
    """End an attempt by a failure; its advice alone decides whether the node may be started again, and when."""
    attempt = _ended(step, data)
    body = step.body(NODE_FAILURE, data.result_digest)
    failure = body.failure
    if (
        failure.category in _NO_NODE_FAILURE
        or failure.caused_by_event_id is not None
        or data.retry_not_before != retry_instant(failure, step.event.recorded_at)
    ):
        raise step.breach("failure")
    ended = copy_with(
        attempt,
        {
            "status": AttemptStatus.FAILED,
            "result_digest": data.result_digest,
            "failure": failure,
            "retry_not_before": data.retry_not_before,
        },
    )
    return Consequence(changes={"nodes": with_entry(step.state.nodes, data.node_id, ended)}, spent=body.usage)


def retry_instant(failure: Failure, recorded_at: Timestamp) -> Timestamp | None:
    """Say from when an attempt that failed at an instant may be repeated, if it may be."""
    advice = failure.retry_advice
    return recorded_at.plus_millis(advice.delay) if isinstance(advice, SafeAfter) else None


def with_entry(mapping: Mapping[_K, _V], key: _K, value: _V) -> Mapping[_K, _V]:
    """Give a mapping with one entry put in; the old one stays as it is."""
    # A proxy's own copy takes the hashes along, which are Python's to compute.
    entries = mapping.copy() if isinstance(mapping, MappingProxyType) else dict(mapping)
    entries[key] = value
    return MappingProxyType(entries)


def _may_start_after(last: NodeAttempt, step: Step) -> bool:
    if last.status is AttemptStatus.EXECUTING:
        return last.epoch < step.event.epoch
    return last.retry_not_before is not None and last.retry_not_before <= step.event.recorded_at


def _ended(step: Step, data: NodeAttemptSucceeded | NodeAttemptFailed) -> NodeAttempt:
    """Find the attempt that a completion ends: the last one, under way, started under the same fence."""
    last = step.state.nodes.get(data.node_id)
    if last is None or last.attempt != data.attempt or not last.is_executing_under(step.event.epoch):
        raise step.breach(_HISTORY)
    return last
