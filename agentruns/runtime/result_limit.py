"""Bound the results of one superstep: what a barrier is planned from is held at once."""

from __future__ import annotations

from collections.abc import Iterable

from agentruns.domain.digests import Digest
from agentruns.domain.graph.results import NodeFailure, NodeResult
from agentruns.domain.ledger.state import RunState
from agentruns.errors import ExecutableGraphUnavailableError


def result_bytes(bodies: Iterable[NodeResult | NodeFailure]) -> int:
    """Add up what results weigh where they are stored; a failure is no result."""
    return sum(len(each.canonical) for each in bodies if isinstance(each, NodeResult))


def state_bytes(run: RunState) -> int:
    """Give the size of the state that a run's current superstep began with."""
    return 0 if run.checkpoint is None else run.checkpoint.state.size


def check_result_bytes(graph_digest: Digest, *, superstep: int, size: int, limit: int) -> None:
    """Refuse a superstep whose results are more than this process holds at once.

    Raises:
        ExecutableGraphUnavailableError: ``result_limit``; nothing is wrong with the run, a process with a higher limit
            goes on with it.
    """
    if size > limit:
        raise ExecutableGraphUnavailableError(
            reason="result_limit", graph=graph_digest, superstep=superstep, size=size, limit=limit
        )
