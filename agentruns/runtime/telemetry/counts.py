"""Count what has no span of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal

from agentruns.domain.graph.results import NodeResult
from agentruns.runtime.telemetry.state import STATE

if TYPE_CHECKING:
    from agentruns.domain.ledger.superstep import SuperstepDraft
    from agentruns.domain.quarantine import QuarantineCause
    from agentruns.domain.scalars import NodeId
    from agentruns.domain.status import RunStatus
    from agentruns.store.discovery import Backlog
    from agentruns.store.transient import Transient


def superstep_committed(draft: SuperstepDraft, *, has_barrier: bool) -> None:
    """Count a commit of a drive, with the starts and completions of its nodes."""
    recording = STATE.recording
    if recording is None:
        return
    graph = draft.graph.definition.identity.capability.name.text
    recording.add("agentruns.commits", graph=graph)
    if bool(draft.completions) + has_barrier + bool(draft.starts) > 1:
        recording.add("agentruns.commits.fused", graph=graph)
    if has_barrier:
        recording.add("agentruns.barriers", graph=graph)
    for completion in draft.completions:
        node_id = completion.node_id.text
        outcome = "succeeded" if isinstance(completion.body, NodeResult) else "failed"
        recording.add("agentruns.node.attempts", graph=graph, node_id=node_id, outcome=outcome)
    for start in draft.starts:
        recording.add("agentruns.node.attempts", graph=graph, node_id=start.node_id.text, outcome="started")
    if draft.starts:
        recording.record("agentruns.batch.width", len(draft.starts), graph=graph)


def run_finished(status: RunStatus) -> None:
    """Count a run that this process has ended."""
    recording = STATE.recording
    if recording is not None:
        recording.add("agentruns.runs.finished", status=status.value)


def run_quarantined(cause: QuarantineCause) -> None:
    """Count a run that this process has isolated."""
    recording = STATE.recording
    if recording is not None:
        recording.add("agentruns.runs.quarantined", cause=cause.value)


def set_answered(lane: str, items: int) -> None:
    """Count the items of a statement over a set."""
    recording = STATE.recording
    if recording is not None:
        recording.record("agentruns.set.items", items, lane=lane)


def sent_alone(lane: str, cause: Literal["held", "error"]) -> None:
    """Count an item that its set was sent without."""
    recording = STATE.recording
    if recording is not None:
        recording.add("agentruns.set.alone", lane=lane, cause=cause)


def retried(trouble: Transient) -> None:
    """Count a repetition after passing trouble of the database."""
    recording = STATE.recording
    if recording is not None:
        recording.add("agentruns.database.retries", sqlstate_class=trouble.sqlstate[:2] or "none")


def lease_renewed(margin: float) -> None:
    """Count a renewal, and the seconds that were left for it."""
    recording = STATE.recording
    if recording is not None:
        recording.add("agentruns.lease.renewals", outcome="renewed")
        recording.record("agentruns.lease.margin", margin)


def lease_not_renewed() -> None:
    """Count a renewal that brought nothing and will be tried again."""
    recording = STATE.recording
    if recording is not None:
        recording.add("agentruns.lease.renewals", outcome="failed")


def loop_blocked(nodes: Sequence[str], seconds: float) -> None:
    """Record for how long the event loop stood still, and under which node where that is known."""
    recording = STATE.recording
    if recording is not None:
        recording.record("agentruns.loop.blocked", seconds, node_id=nodes[0] if len(nodes) == 1 else None)


def node_abandoned(node_id: NodeId) -> None:
    """Count a node that did not end when it was aborted."""
    recording = STATE.recording
    if recording is not None:
        recording.add("agentruns.nodes.abandoned", node_id=node_id.text)


def backlog_seen(backlog: Backlog) -> None:
    """Say how much waits for workers."""
    recording = STATE.recording
    if recording is not None:
        recording.set("agentruns.runs.due", backlog.due)
        recording.set("agentruns.runs.oldest_due", backlog.oldest_due.total_seconds())
        recording.set("agentruns.runs.without_worker", backlog.without_worker)
        recording.set("agentruns.runs.quarantined_now", backlog.quarantined)


def wake_ups_sent(notifications: int, *, asked: int) -> None:
    """Count the notifications of a statement, and what was to be told of and shared one of them."""
    recording = STATE.recording
    if recording is not None:
        recording.add("agentruns.wakeups", notifications, outcome="sent")
        if asked > notifications:
            recording.add("agentruns.wakeups", asked - notifications, outcome="coalesced")


def wake_up_received() -> None:
    """Count a notification that was heard."""
    recording = STATE.recording
    if recording is not None:
        recording.add("agentruns.wakeups", outcome="received")


#: Listeners of this process that should hear and do not, by their identity.
_DEGRADED: Final[set[int]] = set()


def listening_changed(listener: object, *, is_degraded: bool) -> None:
    """Say how many listeners of this process do not hear."""
    if is_degraded:
        _DEGRADED.add(id(listener))
    else:
        _DEGRADED.discard(id(listener))
    recording = STATE.recording
    if recording is not None:
        recording.set("agentruns.listen.degraded", len(_DEGRADED))


def turns_reserved(count: int) -> None:
    """Count turns of a shard that this process has reserved."""
    recording = STATE.recording
    if recording is not None:
        recording.add("agentruns.fair.reservations", count)


def turns_apart(distances: Iterable[int]) -> None:
    """Say how many reservations of a shard each of these turns came after the last one of its tenant."""
    recording = STATE.recording
    if recording is not None:
        for distance in distances:
            recording.record("agentruns.fair.distance", distance)
