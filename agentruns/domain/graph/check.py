"""What a node's result must satisfy before its completion commits, and again whenever it is read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from agentruns.domain.failure import Failure, FailureCategory, ReconcileFirst
from agentruns.domain.graph.bindings import (
    InvocationBinding,
    Invocations,
    are_in_order,
    are_settled,
    settled_bindings,
)
from agentruns.domain.graph.content import check_content, verify_content
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.results import (
    MAXIMUM_RESULT_BYTES,
    ContinueControl,
    NodeControl,
    NodeFailure,
    NodeResult,
    RouteControl,
    TerminalControl,
    Unchanged,
    Update,
    WaitControl,
)
from agentruns.domain.graph.returns import Route, Suspend, TakenReturn, refused_result, take_return
from agentruns.domain.ids import WaitId
from agentruns.domain.scalars import NodeId, RouteId
from agentruns.domain.usage import BudgetUsage
from agentruns.domain.waits import MAXIMUM_WAITS, InterruptWait, TimerWait
from agentruns.domain.wire import encode
from agentruns.errors import InvalidValueError

_FORBIDDEN_CATEGORIES: Final = (FailureCategory.CANCELLED, FailureCategory.AMBIGUOUS_EXTERNAL_OUTCOME)


def check_result(
    graph: ExecutableGraph,
    *,
    node_id: NodeId,
    returned: object,
    invocations: Invocations,
    used_wait_ids: Collection[WaitId] = frozenset(),
    default_bindings: Sequence[InvocationBinding] | None = None,
) -> NodeResult:
    """Make the result of what a node returned, or of what :func:`take_return` took when it returned.

    Args:
        graph: the run's.
        node_id: the node that returned.
        returned: what it returned.
        invocations: the calls of this superstep.
        used_wait_ids: ids of waits that are known to be registered in the run.
        default_bindings: what a node binds that does not say so itself; left out: its settled calls.

    Raises:
        InvalidValueError: the first of the closed reasons that applies; the attempt has failed.
        ExecutableGraphUnavailableError: ``schema``: one is not installed; the attempt is not judged.
    """
    taken = returned if isinstance(returned, TakenReturn) else take_return(returned)
    _check_size(taken)
    node = graph.definition.node(node_id)
    check_content(graph, node, taken, live=True)
    control = _checked_control(taken, used_wait_ids)
    if taken.bindings is not None:
        bindings = taken.bindings
    else:
        bindings = settled_bindings(node_id, invocations) if default_bindings is None else tuple(default_bindings)
    settled = _checked_bindings(bindings, node_id, invocations)
    if not isinstance(taken.usage, BudgetUsage):
        raise refused_result("usage_invalid")
    state_change = Unchanged() if taken.update is None else Update(data=taken.update)
    result = NodeResult(state_change=state_change, control=control, bindings=settled, usage=taken.usage)
    result.keep_acceptance(graph, node)
    return result


def verify_result(graph: ExecutableGraph, *, node_id: NodeId, result: NodeResult, invocations: Invocations) -> None:
    """Hold a stored result against the same rules. Its constructor has checked what needs neither graph nor run.

    Raises:
        InvalidValueError: the first of the closed reasons that applies; the stored result does not verify.
        ExecutableGraphUnavailableError: ``schema`` or ``validator``: nothing is said about the result.
    """
    verify_content(graph, graph.definition.node(node_id), result)
    if not are_settled(node_id, result.bindings, invocations):
        raise refused_result("binding_invalid")


def check_failure(failure: object, usage: object = None) -> NodeFailure:
    """Make the record of what a node declared as its failure.

    Raises:
        InvalidValueError: ``unknown_shape``, ``already_caused``, ``reconcile_first``, ``category`` or
            ``usage_invalid``.
    """
    if not isinstance(failure, Failure):
        raise _refused_failure("unknown_shape")
    if failure.caused_by_event_id is not None:
        raise _refused_failure("already_caused")
    if isinstance(failure.retry_advice, ReconcileFirst):
        raise _refused_failure("reconcile_first")
    if failure.category in _FORBIDDEN_CATEGORIES:
        raise _refused_failure("category")
    used = BudgetUsage.zero() if usage is None else usage
    if not isinstance(used, BudgetUsage):
        raise _refused_failure("usage_invalid")
    return NodeFailure(failure=failure, usage=used)


def _check_size(taken: TakenReturn) -> None:
    """Refuse what cannot fit into a body. Only the requests of waits are large enough together."""
    waits = sum(len(encode(wait)) for wait in taken.waits if isinstance(wait, InterruptWait | TimerWait))
    values = sum(value.size for value in (taken.update, taken.output) if value is not None)
    if waits + values > MAXIMUM_RESULT_BYTES:
        raise refused_result("too_large")


def _checked_control(taken: TakenReturn, used_wait_ids: Collection[WaitId]) -> NodeControl:
    if taken.control is Route:
        return RouteControl(route_id=RouteId(taken.route_id))
    if taken.control is Suspend:
        return WaitControl(waits=_checked_waits(taken.waits, used_wait_ids))
    if taken.output is not None:
        return TerminalControl(output=taken.output)
    return ContinueControl()


def _checked_waits(
    returned: Sequence[object], used_wait_ids: Collection[WaitId]
) -> tuple[InterruptWait | TimerWait, ...]:
    waits = tuple(wait for wait in returned if isinstance(wait, InterruptWait | TimerWait))
    ids = {wait.wait_id for wait in waits}
    if not 1 <= len(returned) <= MAXIMUM_WAITS or len(ids) != len(returned):
        raise refused_result("wait_batch_invalid")
    if not ids.isdisjoint(used_wait_ids):
        raise refused_result("wait_id_reused")
    return waits


def _checked_bindings(
    named: Sequence[object], node_id: NodeId, invocations: Invocations
) -> tuple[InvocationBinding, ...]:
    bindings = tuple(sorted((each for each in named if isinstance(each, InvocationBinding)), key=_place))
    if len(bindings) != len(named) or not are_in_order(bindings) or not are_settled(node_id, bindings, invocations):
        raise refused_result("binding_invalid")
    return bindings


def _place(binding: InvocationBinding) -> tuple[str, str]:
    return binding.place


def _refused_failure(reason: str) -> InvalidValueError:
    return InvalidValueError(type_name="NodeFailure", reason=reason)
