"""The options of a driver, checked when they are made."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Self

from attrs import evolve, frozen

from agentruns.errors import InvalidOptionError
from agentruns.store.options import StoreOptions, check_count, check_duration

_LEAST: Final = timedelta(microseconds=1)
MIB: Final = 1024 * 1024


@frozen(kw_only=True)
class GraphReplayLimits:
    """Bound what a fold holds at once.

    Attributes:
        maximum_barrier_result_bytes: stored bytes of the node results of one superstep, in reading and in planning.
    """

    maximum_barrier_result_bytes: int = 64 * MIB

    def __attrs_post_init__(self) -> None:
        check_count("maximum_barrier_result_bytes", self.maximum_barrier_result_bytes, low=1, high=512 * MIB)


@frozen(kw_only=True)
class DurableGraphDriverOptions:
    """Say how a driver drives.

    Attributes:
        replay: bounds of the fold.
        maximum_durable_events: events that one drive writes at most before it gives the run back.
        maximum_parallel_nodes: isolated nodes of one run that execute at once in this process.
        lease_renewal_interval: at most a third of the lease's duration.
        node_execution_timeout: after it a node has failed; a node that wants another attempt limits itself.
        cancellation_poll_interval: how soon a request to cancel is seen.
        cancellation_grace_period: what a node gets to end by itself after the signal.
        mutation_attempts: how often a commit is planned anew after others have moved the run.
        fuse_supersteps: commit completions, barrier and next starts, or the run's end, in one statement; the record is
            the same without.
        reuse_verified_prefix: fold only what came after what this driver has folded itself; a change below that is then
            found by the next process, or by an audit.
        node_threads: threads for nodes that are plain functions.
        task_abort_wait: how long an aborted node is waited for before it is abandoned.
    """

    replay: GraphReplayLimits = GraphReplayLimits()
    maximum_durable_events: int = 1024
    maximum_parallel_nodes: int = 1
    lease_renewal_interval: timedelta = timedelta(seconds=10)
    node_execution_timeout: timedelta = timedelta(minutes=15)
    cancellation_poll_interval: timedelta = timedelta(milliseconds=250)
    cancellation_grace_period: timedelta = timedelta(seconds=5)
    mutation_attempts: int = 3
    fuse_supersteps: bool = True
    reuse_verified_prefix: bool = True
    node_threads: int | None = None
    task_abort_wait: timedelta = timedelta(seconds=1)

    def __attrs_post_init__(self) -> None:
        check_count("maximum_durable_events", self.maximum_durable_events, low=2, high=65_536)
        check_count("maximum_parallel_nodes", self.maximum_parallel_nodes, low=1, high=64)
        check_count("mutation_attempts", self.mutation_attempts, low=1, high=10)
        check_count("node_threads", self.thread_count, low=1, high=256)
        week, minute = timedelta(days=7), timedelta(minutes=1)
        check_duration("lease_renewal_interval", self.lease_renewal_interval, low=_LEAST, high=week)
        check_duration("node_execution_timeout", self.node_execution_timeout, low=_LEAST, high=week)
        poll = self.cancellation_poll_interval
        check_duration("cancellation_poll_interval", poll, low=timedelta(milliseconds=10), high=minute)
        check_duration("cancellation_grace_period", self.cancellation_grace_period, low=_LEAST, high=5 * minute)
        check_duration("task_abort_wait", self.task_abort_wait, low=_LEAST, high=timedelta(seconds=30))
        if type(self.replay) is not GraphReplayLimits:
            raise InvalidOptionError(option="replay", value=type(self.replay).__name__, bound="GraphReplayLimits")
        for switch in ("fuse_supersteps", "reuse_verified_prefix"):
            if type(value := getattr(self, switch)) is not bool:
                raise InvalidOptionError(option=switch, value=str(value), bound="True or False")

    @property
    def thread_count(self) -> int:
        """Threads for nodes that are plain functions."""
        return min(32, 4 * self.maximum_parallel_nodes) if self.node_threads is None else self.node_threads

    def with_parallel_node_limit(self, limit: int) -> Self:
        """Let up to ``limit`` isolated nodes of one run execute at once."""
        return evolve(self, maximum_parallel_nodes=limit)

    def check_against(self, store: StoreOptions) -> None:
        """Refuse a renewal interval that leaves less than two tries before the store's leases end."""
        if self.lease_renewal_interval * 3 > store.lease_duration:
            bound = f"at most a third of lease_duration {store.lease_duration}"
            raise InvalidOptionError(
                option="lease_renewal_interval", value=str(self.lease_renewal_interval), bound=bound
            )
