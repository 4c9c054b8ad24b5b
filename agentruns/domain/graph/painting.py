"""Which mark each node of a graph gets from where a run of it stands."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from attrs import frozen

from agentruns.domain.scalars import NodeId
from agentruns.domain.status import RunStatus

_ENDED: Final = {"succeeded": "done", "failed": "failed"}
#: What a node of the ready set that nobody works on is marked as; in any other status nothing of the run starts.
_READY: Final = {RunStatus.ACTIVE: "next", RunStatus.WAITING: "waiting"}


@frozen(kw_only=True)
class LastAttempt:
    """Say how the last attempt of a node went.

    Attributes:
        superstep: in which it was made.
        ended: ``succeeded`` or ``failed``; absent while it is open.
        is_held: a worker holds the run under the fence of this attempt.
    """

    superstep: int
    ended: str | None
    is_held: bool


def paint(
    *, status: RunStatus, superstep: int, ready: Collection[NodeId], attempts: Mapping[NodeId, LastAttempt]
) -> dict[NodeId, str]:
    """Mark nodes as :func:`flowchart` draws them.

    A node that may run in the current superstep is marked by what it did there, however it ended before. An open
    attempt whose worker has lost the run is no attempt that runs.

    Args:
        status: of the run.
        superstep: in which the run stands.
        ready: the nodes that run in it.
        attempts: of the nodes that ever ran.
    """
    marks: dict[NodeId, str] = {}
    due = frozenset(ready) if status in _READY else frozenset()
    for node_id in sorted({*due, *attempts}):
        last = attempts.get(node_id)
        if last is not None and node_id in due and last.superstep != superstep:
            last = None
        mark = _mark(last) or (_READY[status] if node_id in due else None)
        if mark is not None:
            marks[node_id] = mark
    return marks


def _mark(last: LastAttempt | None) -> str | None:
    """Mark by an attempt alone; none, or one that is open and belongs to nobody, says nothing."""
    if last is None:
        return None
    if last.ended is not None:
        return _ENDED[last.ended]
    return "running" if last.is_held else None
