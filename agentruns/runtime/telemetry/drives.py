"""Watch what a worker does with a run: claim, drive, replay, nodes, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentruns.errors import LeaseLostError, RunQuarantinedError
from agentruns.runtime.telemetry.counts import run_finished
from agentruns.runtime.telemetry.observation import UNOBSERVED, Observation
from agentruns.runtime.telemetry.spans import LateSpan, ObservedSpan, is_fault, is_unforeseen
from agentruns.runtime.telemetry.state import STATE, found

if TYPE_CHECKING:
    from agentruns.domain.graph.executable import ExecutableGraph
    from agentruns.domain.ids import RunId
    from agentruns.domain.ledger.state import RunState
    from agentruns.domain.scalars import TenantId
    from agentruns.runtime.agent_loop import AgentLoopResult
    from agentruns.runtime.committer import CommitResult
    from agentruns.runtime.context import GraphNodeContext
    from agentruns.runtime.held_lease import HeldLease
    from agentruns.runtime.replay import ReplayedRun
    from agentruns.runtime.telemetry.recording import Recording, Value
    from agentruns.store.leases import ReadyClaims


def observed_claim(tenant_id: TenantId) -> Observation:
    """Watch a statement that asks for ready runs. One that finds none is counted, and makes no span."""
    recording = found()
    return UNOBSERVED if recording is None else _Claim(recording, tenant_id)


def observed_drive(held: HeldLease) -> Observation:
    """Watch a drive, in a trace of its own that is linked to the submitter's."""
    recording = found()
    return UNOBSERVED if recording is None else _Drive(recording, held)


def run_verified(run: ReplayedRun, *, is_linked: bool) -> None:
    """Tell the drive that is under way which run its record has shown.

    Args:
        run: as it was read first.
        is_linked: whether the run row came with the claim, so that the span has its link.
    """
    recording = STATE.recording
    if recording is not None:
        context = None if is_linked else run.history.run["trace_context"]
        recording.note_entered({**_graph(run.graph), "superstep": run.state.superstep.value}, submitter=context)


def observed_replay(tenant_id: TenantId, run_id: RunId) -> Observation:
    """Watch a reading that folds a run's record."""
    recording = STATE.recording
    return UNOBSERVED if recording is None else _Replay(recording, tenant_id, run_id)


def observed_node(context: GraphNodeContext, graph: ExecutableGraph) -> Observation:
    """Watch one attempt of a node; what its code records is part of the span."""
    recording = STATE.recording
    return UNOBSERVED if recording is None else _Node(recording, context, graph)


def observed_lifecycle(state: RunState) -> Observation:
    """Watch the commit that lets a run sleep, or ends it."""
    recording = STATE.recording
    return UNOBSERVED if recording is None else _Lifecycle(recording, state)


class _Claim(LateSpan):
    __slots__ = ("_tenant_id",)

    name = "agentruns.claim"

    def __init__(self, recording: Recording, tenant_id: TenantId) -> None:
        super().__init__(recording)
        self._tenant_id = tenant_id

    def answered(self, value: Any) -> None:
        claims: ReadyClaims = value
        if claims.leases:
            self._count("claimed")
            self.tell(tenant_id=self._tenant_id.text, outcome="claimed", count=len(claims.leases))
        else:
            # Without a free place nobody knows whether there was work.
            self._count("idle" if claims.has_room else "at_capacity")

    def failed(self, error: BaseException) -> None:
        self._count("failed")
        self.tell(tenant_id=self._tenant_id.text, outcome="failed", error=type(error).__name__)

    def _count(self, outcome: str) -> None:
        self._recording.add("agentruns.claims", outcome=outcome)
        self._recording.record("agentruns.claim.duration", self.seconds, outcome=outcome)


class _Drive(ObservedSpan):
    __slots__ = ("_held",)

    name = "agentruns.drive"
    is_root = True
    is_current = True

    def __init__(self, recording: Recording, held: HeldLease) -> None:
        super().__init__(recording)
        self._held = held

    def beginning(self) -> Mapping[str, Value]:
        fence = self._held.fence
        return {"tenant_id": fence.tenant_id.text, "run_id": fence.run_id.text, "epoch": fence.epoch.value}

    def submitter(self) -> str | None:
        return None if self._held.history is None else self._held.history.run["trace_context"]

    def answered(self, value: Any) -> None:
        result: AgentLoopResult = value
        report = result.report
        self.note(commits=report.commits, events=report.durable_events, attempts=report.node_attempts_started)
        self._count(result.outcome.value)

    def failed(self, error: BaseException) -> None:
        self.note(error=type(error).__name__)
        if is_fault(error) or is_unforeseen(error):
            self.fail()
        if isinstance(error, LeaseLostError):
            self._recording.add("agentruns.lease.lost", outcome=error.reason)
        self._count(_interruption(error))

    def _count(self, outcome: str) -> None:
        self.note(outcome=outcome)
        self._recording.add("agentruns.drives", outcome=outcome)
        self._recording.record("agentruns.drive.duration", self.seconds, outcome=outcome)


class _Replay(ObservedSpan):
    __slots__ = ("_run_id", "_tenant_id")

    name = "agentruns.replay"

    def __init__(self, recording: Recording, tenant_id: TenantId, run_id: RunId) -> None:
        super().__init__(recording)
        self._tenant_id = tenant_id
        self._run_id = run_id

    def beginning(self) -> Mapping[str, Value]:
        return {"tenant_id": self._tenant_id.text, "run_id": self._run_id.text}

    def answered(self, value: Any) -> None:
        run: ReplayedRun = value
        report, add = run.report, self._recording.add
        self.note(**_graph(run.graph), superstep=report.superstep)
        self.note(events=report.events_verified, supersteps=report.supersteps_replayed, windows=report.windows)
        graph = _name(run.graph)
        add("agentruns.replay.supersteps", report.supersteps_replayed, graph=graph)
        add("agentruns.replay.events", report.events_verified, graph=graph)
        add("agentruns.replay.bytes", report.bytes_verified, graph=graph)
        add("agentruns.replay.prefix_hits", int(report.prefix_sequence is not None), graph=graph)
        self._recording.record("agentruns.replay.duration", report.duration, graph=graph)


class _Node(ObservedSpan):
    __slots__ = ("_context", "_graph")

    name = "agentruns.node"
    is_current = True

    def __init__(self, recording: Recording, context: GraphNodeContext, graph: ExecutableGraph) -> None:
        super().__init__(recording)
        self._context = context
        self._graph = graph

    def beginning(self) -> Mapping[str, Value]:
        context = self._context
        return {
            **_graph(self._graph),
            "tenant_id": context.tenant_id.text,
            "run_id": context.run_id.text,
            "node_id": context.node_id.text,
            "superstep": context.superstep.value,
            "attempt": context.attempt,
            "attempt_id": context.attempt_id.text,
        }

    def answered(self, value: Any) -> None:
        """Say how the attempt ended; one that was aborted has no end."""
        outcome = "aborted" if value is None else value.word
        self.note(outcome=outcome)
        if outcome not in ("returned", "aborted"):
            self.fail()
        node_id, graph = self._context.node_id.text, _name(self._graph)
        self._recording.record("agentruns.node.duration", self.seconds, graph=graph, node_id=node_id, outcome=outcome)

    def failed(self, error: BaseException) -> None:
        del error  # the drive's own, or an abort
        self.answered(None)


class _Lifecycle(ObservedSpan):
    __slots__ = ("_state",)

    name = "agentruns.lifecycle"

    def __init__(self, recording: Recording, state: RunState) -> None:
        super().__init__(recording)
        self._state = state

    def beginning(self) -> Mapping[str, Value]:
        return {"tenant_id": self._state.tenant_id.text, "run_id": self._state.run_id.text}

    def answered(self, value: Any) -> None:
        result: CommitResult = value
        status = result.draft.state.status
        if result.outcome is None:
            return
        self.note(outcome=result.outcome.value, status=status.value)
        # One that is found committed is ours too: its answer was lost.
        if status.is_terminal:
            run_finished(status)


def _interruption(error: BaseException) -> str:
    if isinstance(error, RunQuarantinedError):
        return "quarantined"
    if isinstance(error, LeaseLostError):
        return "lease_lost"
    return "interrupted" if isinstance(error, asyncio.CancelledError) else "error"


def _graph(graph: ExecutableGraph) -> dict[str, Value]:
    capability = graph.definition.identity.capability
    return {"graph": capability.name.text, "graph_version": capability.version.text}


def _name(graph: ExecutableGraph) -> str:
    return graph.definition.identity.capability.name.text
