"""The state of a run: what its journal says, folded."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Self

from attrs import evolve, field, frozen

from agentruns.domain.graph.barrier import BarrierPlan, plan_barrier
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.results import NodeResult
from agentruns.domain.ids import CheckpointId, InvocationId, RunId
from agentruns.domain.ledger.bodies import Bodies
from agentruns.domain.ledger.charges import TokenReserve
from agentruns.domain.ledger.checkpoint import Checkpoint
from agentruns.domain.ledger.event import Event, JournalHead
from agentruns.domain.ledger.fold import fold
from agentruns.domain.ledger.records import (
    AdmissionFacts,
    CancellationFacts,
    CurrentCheckpoint,
    InvocationFacts,
    NodeAttempt,
    OutcomeFacts,
    OutstandingWait,
    SettledWait,
)
from agentruns.domain.numbers import JournalSequence, RunRevision, Superstep
from agentruns.domain.scalars import NodeId, TenantId
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import BarrierRejectedError, CorruptDataError, InvariantError

_NEVER: Final = RunRevision(0)
_FIRST: Final = Superstep(0)
_NO_USAGE: Final = BudgetUsage.zero()
_NO_RESERVE: Final = TokenReserve()
_NO_RESULTS: Final[Mapping[NodeId, NodeResult]] = MappingProxyType({})


class _KeptPlan:
    """Keep the plan of the barrier, or its rejection, and its successor outside equality: a state never changes."""

    __slots__ = ("_planned", "_successor")
    _planned: tuple[ExecutableGraph, BarrierPlan | BarrierRejectedError]
    _successor: tuple[BarrierPlan, Checkpoint]


def _nothing() -> Mapping[object, object]:
    return MappingProxyType({})


@frozen(kw_only=True, weakref_slot=False)
class RunState(_KeptPlan):
    """Hold everything that the journal of a run says at its head, bounded by one superstep.

    Attributes:
        head: ``None`` in the seed.
        epoch: the highest of a worker so far, 0 for none.
        status: with ``revision``, ``changed_at`` and ``lifecycle_sequence`` the lifecycle.
        changed_at: instant of the event that set the revision.
        lifecycle_sequence: sequence of the event that set the revision.
        admission: what the first event pinned.
        superstep: the current one.
        checkpoint: the current one; ``None`` in the seed and in a state made from the ends of the evidence.
        nodes: the last attempt of each ready node that was started.
        results: of this superstep.
        waits: the outstanding ones, in the order of their registration.
        settled: of the barrier that made this checkpoint, in the order of their registration.
        invocations: of this superstep.
        usage: of the whole run so far.
        reserved: what is held back where usage is unknown.
        cancellation: why the end was requested.
        outcome: how the run ended.
    """

    tenant_id: TenantId
    run_id: RunId
    head: JournalHead | None = None
    epoch: int = 0
    status: RunStatus = RunStatus.PENDING
    revision: RunRevision = _NEVER
    changed_at: Timestamp | None = None
    lifecycle_sequence: JournalSequence | None = None
    admission: AdmissionFacts | None = None
    superstep: Superstep = _FIRST
    checkpoint: CurrentCheckpoint | None = None
    nodes: Mapping[NodeId, NodeAttempt] = field(factory=_nothing)
    results: Mapping[NodeId, NodeResult] = field(factory=_nothing, repr=False)
    waits: tuple[OutstandingWait, ...] = ()
    settled: tuple[SettledWait, ...] = ()
    invocations: Mapping[InvocationId, InvocationFacts] = field(factory=_nothing)
    usage: BudgetUsage = _NO_USAGE
    reserved: TokenReserve = _NO_RESERVE
    cancellation: CancellationFacts | None = None
    outcome: OutcomeFacts | None = None

    @classmethod
    def empty(cls, tenant_id: TenantId, run_id: RunId) -> Self:
        """Give the seed of a run's fold."""
        return cls(tenant_id=tenant_id, run_id=run_id)

    def apply(self, event: Event, bodies: Bodies, graph: ExecutableGraph | None = None) -> RunState:
        """Give the state after a stored event.

        Kinds of the control plane, and the confirmation of a cancellation, need no graph; the admission does.

        Raises:
            CorruptDataError: the event breaks a rule; ``component`` names it.
            ExecutableGraphUnavailableError: this process cannot say whether it does.
        """
        return fold(self, event, bodies, graph, is_building=False)

    def extend(self, event: Event, bodies: Bodies, graph: ExecutableGraph | None = None) -> RunState:
        """Give the state after an event that is being built, by the same rules.

        Raises:
            RefusedError: a rule says no; nothing has been written.
            ExecutableGraphUnavailableError: this process cannot say whether it does.
            InvariantError: what the library built from its own plan is not legal.
        """
        return fold(self, event, bodies, graph, is_building=True)

    def barrier(self, graph: ExecutableGraph, completed: Mapping[NodeId, NodeResult] = _NO_RESULTS) -> BarrierPlan:
        """Decide what follows this superstep; computed once for a state and kept.

        Args:
            graph: the run's.
            completed: results that the state does not have yet; with them nothing is kept.

        Raises:
            BarrierRejectedError: the run fails.
            CorruptDataError: what the results stand on contradicts the graph.
            ExecutableGraphUnavailableError: this process cannot decide now.
        """
        planned = getattr(self, "_planned", None)
        if completed:
            plan = self._plan(graph, {**self.results, **completed})
        elif planned is not None and planned[0] is graph:
            plan = planned[1]
        else:
            plan = self._plan(graph, self.results)
            self.keep_plan(graph, plan)
        if isinstance(plan, BarrierRejectedError):
            raise evolve(plan)
        return plan

    def keep_plan(self, graph: ExecutableGraph, plan: BarrierPlan | BarrierRejectedError) -> None:
        """Keep a plan that was made over the same superstep, checkpoint and results, so that it is made only once."""
        object.__setattr__(self, "_planned", (graph, plan))

    def successor(self, plan: BarrierPlan, checkpoint_id: CheckpointId) -> Checkpoint:
        """Describe the checkpoint that a plan makes of this state.

        The last one is kept: whoever builds the event names its digest, and then the rule of the event asks again.
        """
        kept = getattr(self, "_successor", None)
        if kept is None or kept[0] is not plan or kept[1].checkpoint_id != checkpoint_id:
            kept = plan, self._made(plan, checkpoint_id)
            object.__setattr__(self, "_successor", kept)
        return kept[1]

    def _made(self, plan: BarrierPlan, checkpoint_id: CheckpointId) -> Checkpoint:
        if self.checkpoint is None or self.admission is None:
            raise InvariantError(reason="checkpoint")
        return Checkpoint(
            checkpoint_id=checkpoint_id,
            superstep=self.superstep.next(),
            graph_digest=self.admission.graph_digest,
            parent_digest=self.checkpoint.digest,
            ready_nodes=plan.ready_nodes,
            state_digest=plan.state_digest,
        )

    def _plan(self, graph: ExecutableGraph, results: Mapping[NodeId, NodeResult]) -> BarrierPlan | BarrierRejectedError:
        checkpoint = self.checkpoint
        if checkpoint is None:
            raise InvariantError(reason="checkpoint")
        try:
            return plan_barrier(
                graph,
                superstep=self.superstep,
                state=checkpoint.state,
                ready_nodes=checkpoint.ready_nodes,
                results=results,
            )
        except BarrierRejectedError as error:
            return evolve(error, tenant_id=self.tenant_id, run_id=self.run_id)
        except CorruptDataError as error:
            superstep = self.superstep.value
            raise evolve(error, tenant_id=self.tenant_id, run_id=self.run_id, superstep=superstep) from error
