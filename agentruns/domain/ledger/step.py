"""What a rule sees of one event, and what it says follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict, TypeVar

from attrs import field, frozen

from agentruns.domain.digests import Digest
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.results import NodeResult
from agentruns.domain.ids import InvocationId
from agentruns.domain.ledger.bodies import Bodies, BodyKind, BodyRow
from agentruns.domain.ledger.charges import TokenReserve
from agentruns.domain.ledger.event import Event
from agentruns.domain.ledger.findings import MISSING, UNSUPPORTED
from agentruns.domain.ledger.kinds import EventKind
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
from agentruns.domain.numbers import Superstep
from agentruns.domain.scalars import NodeId
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import AgentRunsError, CorruptDataError, InvalidValueError, InvariantError

if TYPE_CHECKING:
    from agentruns.domain.ledger.state import RunState

_R = TypeVar("_R")


class Changes(TypedDict, total=False):
    """Name the members of the state that an event changes besides head, epoch, lifecycle and usage."""

    admission: AdmissionFacts
    superstep: Superstep
    checkpoint: CurrentCheckpoint
    nodes: Mapping[NodeId, NodeAttempt]
    results: Mapping[NodeId, NodeResult]
    waits: tuple[OutstandingWait, ...]
    settled: tuple[SettledWait, ...]
    invocations: Mapping[InvocationId, InvocationFacts]
    reserved: TokenReserve
    cancellation: CancellationFacts
    outcome: OutcomeFacts


@frozen(kw_only=True)
class Consequence:
    """Say what follows from a legal event.

    Attributes:
        changes: of the state.
        counts: to be added to the run's own counters.
        spent: what its work used.
    """

    changes: Changes
    counts: Mapping[str, int] = field(factory=dict)
    spent: BudgetUsage | None = None


@frozen(kw_only=True)
class Step:
    """Hold one event before the state that it follows.

    Attributes:
        state: before the event.
        is_building: the event is being built, so a finding is a refusal; otherwise it is stored, and corrupt.
    """

    state: RunState
    event: Event
    kind: EventKind
    bodies: Bodies
    executable: ExecutableGraph | None
    is_building: bool

    def breach(self, rule: str, *, reason: str = "", refusal: AgentRunsError | None = None) -> AgentRunsError:
        """Make the error of a broken rule: a finding, or the refusal that the rule has for its caller.

        What the library builds from its own plan is legal; a rule without a refusal is therefore a fault of ours.
        """
        if not self.is_building:
            state = self.state
            return CorruptDataError(tenant_id=state.tenant_id, run_id=state.run_id, component=rule, reason=reason)
        return refusal or InvariantError(reason=f"{rule}:{reason}" if reason else rule)

    @property
    def graph(self) -> ExecutableGraph:
        """The executable graph, which kinds of the control plane do without.

        Raises:
            InvariantError: it was left out, or is another run's.
        """
        graph, admission = self.executable, self.state.admission
        if graph is None or (admission is not None and graph.digest != admission.graph_digest):
            raise InvariantError(reason="graph")
        return graph

    @property
    def checkpoint(self) -> CurrentCheckpoint:
        """The checkpoint that the run stands on.

        Raises:
            InvariantError: the state was made from the ends of the evidence, which is not enough for this kind.
        """
        checkpoint = self.state.checkpoint
        if checkpoint is None:
            raise InvariantError(reason="checkpoint")
        return checkpoint

    def row(self, digest: Digest) -> BodyRow:
        """Find the row of a body that the event names."""
        row = self.bodies.get(digest)
        if row is None:
            raise self.breach("body", reason=MISSING)
        return row

    def body(self, kind: BodyKind[_R], digest: Digest) -> _R:
        """Read a body that the event names, and verify it."""
        row = self.row(digest)
        if (record := kind.made_in(row, digest)) is not None:
            return record
        if not kind.verifies(digest, row):
            raise self.breach("body")
        try:
            return kind.read(row)
        except InvalidValueError:
            # The bytes are those that were committed, so what is wrong with them is that nobody here can read them.
            # Their content is in the error, which therefore does not travel as a cause.
            pass
        raise self.breach("body", reason=UNSUPPORTED)
