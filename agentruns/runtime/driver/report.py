"""Count what a drive did."""

from __future__ import annotations

import time

from attrs import define, field, frozen

from agentruns.domain.ledger.commit import DraftedCommit


@frozen(kw_only=True)
class GraphReplayReport:
    """Counts and sizes of a fold.

    Attributes:
        events_verified: events whose chain and rules hold.
        supersteps_replayed: barriers that were planned again and found equal.
        attempts_verified: starts.
        results_verified: completions.
        bytes_verified: of event data and bodies.
        windows: statements that the history was read in.
        maximum_barrier_result_bytes: of node results, the largest superstep.
        prefix_sequence: the event up to which nothing had to be folded again; ``None`` after a reading from event 1.
        superstep: where the run stands.
        duration: seconds, monotonic.
    """

    events_verified: int = 0
    supersteps_replayed: int = 0
    attempts_verified: int = 0
    results_verified: int = 0
    bytes_verified: int = 0
    windows: int = 0
    maximum_barrier_result_bytes: int = 0
    prefix_sequence: int | None = None
    superstep: int = 0
    duration: float = 0.0


@frozen(kw_only=True)
class LoopStall:
    """The event loop did not run while nodes executed.

    Attributes:
        nodes: the node that held it, or the whole batch when that is not known.
        seconds: how long.
    """

    nodes: tuple[str, ...]
    seconds: float


@define(kw_only=True)
class GraphDriveReport:
    """Counts of one drive; equal to what the journal shows of it.

    Attributes:
        replay: of the fold before the drive's first step.
        commits: statements that committed something for this run.
        fused_commits: those that held more than one kind of fact.
        barriers_committed: those that a superstep begins with, and the last one, where the run ended with the commit
            of its last completion.
        mutation_retries: commits that had to be planned anew.
        abandoned_nodes: names of nodes that did not end when they were asked to.
        loop_stalls: times in which the event loop did not run for a third of a lease.
        duration: seconds, monotonic.
    """

    replay: GraphReplayReport = GraphReplayReport()
    durable_events: int = 0
    node_attempts_started: int = 0
    node_attempts_completed: int = 0
    node_batches_started: int = 0
    maximum_nodes_in_batch: int = 0
    barriers_committed: int = 0
    lease_renewals: int = 0
    mutation_retries: int = 0
    commits: int = 0
    fused_commits: int = 0
    abandoned_nodes: list[str] = field(factory=list)
    loop_stalls: list[LoopStall] = field(factory=list)
    duration: float = 0.0
    _began: float = field(factory=time.monotonic, repr=False, eq=False)

    def count(self, committed: DraftedCommit) -> None:
        """Add a commit of this drive."""
        has_barrier = committed.checkpoint is not None
        self.commits += 1
        self.fused_commits += bool(committed.results) + has_barrier + bool(committed.starts) > 1
        self.durable_events += len(committed.events)
        self.node_attempts_completed += len(committed.results)
        self.barriers_committed += has_barrier
        self.node_attempts_started += len(committed.starts)
        self.node_batches_started += bool(committed.starts)
        self.maximum_nodes_in_batch = max(self.maximum_nodes_in_batch, len(committed.starts))

    def finish(self) -> None:
        """Fix the duration."""
        self.duration = time.monotonic() - self._began
