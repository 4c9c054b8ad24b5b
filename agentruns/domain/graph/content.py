"""What a graph says about one result: its update, its control and its output."""

from __future__ import annotations

from typing import Final

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.judging import Verdict, judge, unavailable
from agentruns.domain.graph.nodes import GraphNode
from agentruns.domain.graph.results import (
    ContinueControl,
    NodeResult,
    RouteControl,
    TerminalControl,
    Update,
    WaitControl,
)
from agentruns.domain.graph.returns import Continue, Finish, Route, Suspend, TakenReturn, refused_result
from agentruns.domain.identity import SchemaReference

_RETURNED: Final[dict[type, type[Continue | Route | Suspend | Finish]]] = {
    ContinueControl: Continue,
    RouteControl: Route,
    WaitControl: Suspend,
    TerminalControl: Finish,
}


def _taken(result: NodeResult) -> TakenReturn:
    """View a result as what a node returned, so that one check serves both."""
    control = result.control
    return TakenReturn(
        control=_RETURNED[type(control)],
        update=result.state_change.data if isinstance(result.state_change, Update) else None,
        route_id=str(control.route_id) if isinstance(control, RouteControl) else "",
        waits=control.waits if isinstance(control, WaitControl) else (),
        output=control.output if isinstance(control, TerminalControl) else None,
        bindings=result.bindings,
        usage=result.usage,
    )


def verify_content(graph: ExecutableGraph, node: GraphNode, result: NodeResult) -> None:
    """Hold a result against its graph as it is read, once for a record.

    A result is checked when its node returns it, when its barrier is planned and when its event is folded; what has
    accepted it stays the same.

    Raises:
        InvalidValueError: as :func:`check_content`.
        ExecutableGraphUnavailableError: as :func:`check_content`.
    """
    if not result.is_accepted_by(graph, node):
        check_content(graph, node, _taken(result), live=False)
        result.keep_acceptance(graph, node)


def check_content(graph: ExecutableGraph, node: GraphNode, taken: TakenReturn, *, live: bool) -> None:
    """Hold one result against its graph.

    Args:
        graph: the run's.
        node: the node that returned.
        taken: what it returned.
        live: a validator that fails on the very value rejects it when the node returns it; when it is read, nothing
            is said about it.

    Raises:
        InvalidValueError: ``update_rejected``, ``control_undeclared``, ``route_undeclared`` or ``output_rejected``.
        ExecutableGraphUnavailableError: ``schema``, and unless live ``validator``.
    """
    definition = graph.definition
    if not _accepts(graph, definition.update_schema, taken.update, live=live):
        raise refused_result("update_rejected")
    _check_control(node, taken)
    if not _accepts(graph, definition.output_schema, taken.output, live=live):
        raise refused_result("output_rejected")


def _check_control(node: GraphNode, taken: TakenReturn) -> None:
    if taken.control is Route:
        if node.route(taken.route_id) is None:
            raise refused_result("route_undeclared")
        return
    declared = {Continue: node.continue_to is not None, Suspend: node.wait_to is not None, Finish: node.terminal}
    if not declared[taken.control]:
        raise refused_result("control_undeclared")


def _accepts(graph: ExecutableGraph, reference: SchemaReference, value: BoundedJson | None, *, live: bool) -> bool:
    if value is None:
        return True
    verdict = judge(graph, reference, value)
    if verdict is Verdict.FAILED and not live:
        raise unavailable(graph, "validator")
    return verdict is Verdict.ACCEPTED
