"""How a drive ends, and what the next step is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn, Self, TypeAlias

from attrs import define, field, frozen

from agentruns.domain.graph.barrier import BarrierDisposition, BarrierPlan
from agentruns.domain.ids import EventId
from agentruns.domain.ledger.classify import Exhausted, Failed, InFlight, ReadyNodesPlan
from agentruns.domain.ledger.state import RunState
from agentruns.domain.timestamps import Timestamp
from agentruns.runtime.committer import CommitPlan, CommitResult

_BLOCKING: Final = frozenset({InFlight, Failed, Exhausted})


@frozen(kw_only=True)
class GraphBlockers:
    """Why a run cannot go on.

    Attributes:
        in_flight: nodes started under this fence whose end nobody knows.
        failed: nodes that have failed for good.
        exhausted: nodes that used all their attempts.
        superstep_limit_reached: the graph permits no further step.
        barrier_rejected: why the results cannot become a barrier.
    """

    in_flight: int = 0
    failed: int = 0
    exhausted: int = 0
    superstep_limit_reached: bool = False
    barrier_rejected: str | None = None

    @classmethod
    def among(cls, plan: ReadyNodesPlan, *, superstep_limit_reached: bool) -> Self | None:
        """Count the nodes that keep a run from going on; ``None`` when nothing does."""
        kinds = [type(each) for each in plan.nodes]
        if not superstep_limit_reached and _BLOCKING.isdisjoint(kinds):
            return None
        return cls(
            in_flight=kinds.count(InFlight),
            failed=kinds.count(Failed),
            exhausted=kinds.count(Exhausted),
            superstep_limit_reached=superstep_limit_reached,
        )


@define(eq=False)
class HandoffCommit:
    """Hold the one commit that a handoff is for: whoever repeats it sends the same ids and the same evidence."""

    #: Set where the drive itself has sent it, with the completions before it.
    done: CommitResult | None = field(default=None, repr=False)
    _plan: CommitPlan | None = field(default=None, init=False, repr=False)

    def planned(self, make: Callable[[], CommitPlan]) -> CommitPlan:
        """Give the plan of the first try, made by ``make``; where that raised, the next try is the first one."""
        if self._plan is None:
            self._plan = make()
        return self._plan


class _Handoff:
    """Keep a short-lived input of a commit inside the process."""

    def __reduce__(self) -> NoReturn:
        raise TypeError("a handoff cannot be pickled: it is worth nothing in another process")


@frozen(kw_only=True)
class LifecycleBarrierReady(_Handoff):
    """Every node of the step is done and the run waits or has succeeded. The lease is kept: commit at once.

    Attributes:
        state: the run at the head where the plan was made; where the drive has committed the end, at that one.
        plan: what the barrier does.
        event_id: of the event that will say so, the same over retries.
        commit: planned once, the same over retries; or done already, and the lease is gone with it.
    """

    state: RunState
    plan: BarrierPlan
    event_id: EventId
    commit: HandoffCommit = field(factory=HandoffCommit, eq=False, repr=False)


@frozen(kw_only=True)
class Blocked(_Handoff):
    """The run cannot go on. The lease is kept. Never derive permission for another attempt from it."""

    state: RunState
    blockers: GraphBlockers
    event_id: EventId
    observed_at: Timestamp
    commit: HandoffCommit = field(factory=HandoffCommit, init=False, eq=False, repr=False)


@frozen(kw_only=True)
class CancellationRequested(_Handoff):
    """Somebody asked for the run's cancellation. The lease is kept."""

    state: RunState
    event_id: EventId
    commit: HandoffCommit = field(factory=HandoffCommit, init=False, eq=False, repr=False)


@frozen(kw_only=True)
class Deferred:
    """Nothing can run before an instant; the lease was given back in the statement that set the gate."""

    not_before: Timestamp


@frozen(kw_only=True)
class Yielded:
    """The drive used up its events; the lease was given back."""


@frozen(kw_only=True)
class Cancelled:
    """The process shuts down; the lease was given back and a later claim goes on."""


GraphDriveOutcome: TypeAlias = LifecycleBarrierReady | Blocked | CancellationRequested | Deferred | Yielded | Cancelled


def is_last_of(outcome: GraphDriveOutcome) -> bool:
    """Whether the commit that an outcome is for ends its run, so that nobody drives it again."""
    if isinstance(outcome, LifecycleBarrierReady):
        return outcome.plan.disposition is BarrierDisposition.TERMINAL
    if isinstance(outcome, Blocked):
        return not outcome.blockers.in_flight
    return isinstance(outcome, CancellationRequested)
