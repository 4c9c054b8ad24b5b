"""The one call of a reducer that a barrier makes, on copies, and what becomes of its answer."""

from __future__ import annotations

from collections.abc import Sequence

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import JsonTree
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.judging import Verdict, judge, unavailable
from agentruns.domain.graph.reducers import NodeUpdate
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.scalars import NodeId
from agentruns.errors import BarrierRejectedError, DeploymentError, InvalidJsonError, ReducerRejectedError


def reduced(graph: ExecutableGraph, state: BoundedJson, updates: Sequence[tuple[NodeId, BoundedJson]]) -> BoundedJson:
    """Give the next state; without an update the state, and the reducer is not called.

    Raises:
        BarrierRejectedError: ``reducer_rejected``, ``reducer_raised``, ``state_too_large``, ``reduced_state_rejected``
            or ``validator_failed``.
        ExecutableGraphUnavailableError: ``reducer``, ``out_of_memory`` or ``schema``.
    """
    if not updates:
        return state
    node_ids = tuple(node_id for node_id, _ in updates)
    answer = _bounded(_answer(graph, state, updates), node_ids)
    verdict = judge(graph, graph.definition.state_schema, answer)
    if verdict is Verdict.REJECTED:
        raise BarrierRejectedError(reason="reduced_state_rejected", node_ids=node_ids)
    if verdict is Verdict.FAILED:
        raise BarrierRejectedError(reason="validator_failed", node_ids=node_ids)
    return answer


def _answer(graph: ExecutableGraph, state: BoundedJson, updates: Sequence[tuple[NodeId, BoundedJson]]) -> JsonTree:
    """Call the reducer. What it raises may quote the state, so ours is raised where that is out of sight."""
    copies = [NodeUpdate(node_id, update.value) for node_id, update in updates]
    try:
        return graph.reducer.reduce(state.value, copies)
    except ReducerRejectedError:
        reason, is_operational = "reducer_rejected", False
    except DeploymentError:
        reason, is_operational = "reducer", True
    except MemoryError:
        reason, is_operational = "out_of_memory", True
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001  # a reducer is user code: whatever it raises is its answer, a cancellation too
        reason, is_operational = "reducer_raised", False
    if is_operational:
        raise unavailable(graph, reason)
    raise BarrierRejectedError(reason=reason, node_ids=tuple(node_id for node_id, _ in updates))


def _bounded(answer: JsonTree, node_ids: tuple[NodeId, ...]) -> BoundedJson:
    try:
        return BoundedJson.of(answer, JsonLimits.MAXIMUM)
    except InvalidJsonError as error:
        reason = "reduced_state_rejected" if error.limit is None else "state_too_large"
    raise BarrierRejectedError(reason=reason, node_ids=node_ids)
