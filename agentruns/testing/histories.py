"""Random legal histories of a run, grown by the fold itself: whatever a graph permits, in any order.

No database and no clock are needed. The same graph and the same random source give the same history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Self, TypeVar

from attrs import define, field

from agentruns.domain.authority import AgentAdmissionBudgetLayer
from agentruns.domain.canonical import JsonTree
from agentruns.domain.digests import Digest
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.ids import UuidScalar
from agentruns.domain.ledger.bodies import BodyRow
from agentruns.domain.ledger.drafts import AdmissionDraft, DraftedCommit
from agentruns.domain.ledger.event import Event
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import FencingEpoch
from agentruns.domain.submission import DurableAgentAdmissionRequest
from agentruns.domain.timestamps import Timestamp
from agentruns.testing.history_moves import moves
from agentruns.testing.samples import admission_request, agent, agent_request, graph_state

IdT = TypeVar("IdT", bound=UuidScalar)

BEGIN = Timestamp.parse("2026-01-02T03:04:05.000006Z")
DEADLINE = Timestamp.parse("2026-02-02T03:04:05.000006Z")

_SECOND = 1_000_000


def _small_object(random: Random) -> JsonTree:
    return {random.choice("abc"): random.randrange(10)}


@define
class History:
    """Grow one run. Made by :meth:`admitted`.

    Attributes:
        graph: the run's.
        random: decides everything that is open.
        update: makes updates, and outputs, that the graph's schemas accept.
        with_calls: nodes also call models and tools.
        with_ends: the run may also be cancelled, or fail by an expired interrupt.
        now: the database's clock.
        epoch: of the live fence.
        commits: all of them, the admission first.
    """

    graph: ExecutableGraph
    random: Random
    update: Callable[[Random], JsonTree] = _small_object
    with_calls: bool = True
    with_ends: bool = True
    now: Timestamp = BEGIN
    epoch: FencingEpoch = FencingEpoch(1)  # noqa: RUF009  # immutable
    commits: list[DraftedCommit] = field(factory=list)

    @classmethod
    def admitted(
        cls,
        graph: ExecutableGraph,
        random: Random,
        *,
        request: DurableAgentAdmissionRequest | None = None,
        update: Callable[[Random], JsonTree] = _small_object,
        with_calls: bool = True,
        with_ends: bool = True,
    ) -> Self:
        """Begin a history with an admission, by default of a sample request whose state is an empty object."""
        history = cls(graph, random, update=update, with_calls=with_calls, with_ends=with_ends)
        draft = AdmissionDraft.of(sample_request(graph) if request is None else request, graph)
        history.commits.append(draft.build(history.now))
        return history

    @property
    def state(self) -> RunState:
        """The run after the last commit."""
        return self.commits[-1].state

    @property
    def events(self) -> tuple[Event, ...]:
        """The journal, as the process that wrote it holds it."""
        return tuple(event for commit in self.commits for event in commit.events)

    @property
    def stored_events(self) -> tuple[Event, ...]:
        """The journal, as it is read."""
        return tuple(as_stored(event) for event in self.events)

    @property
    def bodies(self) -> dict[Digest, BodyRow]:
        """Every body that an event names, as it is read."""
        return {digest: row for commit in self.commits for digest, row in bodies_of(commit)}

    def grow(self, steps: int) -> Self:
        """Append up to that many commits; fewer when the run is over."""
        for _ in range(steps):
            if not self.step():
                break
        return self

    def step(self) -> bool:
        """Append one commit, unless the run is over; the clock goes on, and sometimes the worker is replaced."""
        if self.state.status.is_terminal:
            return False
        self.pass_time(self.random.randrange(2 * _SECOND))
        if self.random.random() < 0.05:  # noqa: PLR2004  # a worker dies now and then
            self.epoch = self.epoch.next()
        possible = moves(self)
        while not possible:
            self.pass_time(60 * _SECOND)
            self.epoch = self.epoch.next()
            possible = moves(self)
        self.commits.append(self.random.choice(possible)())
        return True

    def pass_time(self, micros: int) -> None:
        """Let the database's clock go on."""
        self.now = self.now.plus_micros(micros)

    def mint(self, cls: type[IdT]) -> IdT:
        """Make an id from the random source."""
        digits = f"{self.random.getrandbits(128):032x}"
        return cls(f"{digits[:8]}-{digits[8:12]}-7{digits[13:16]}-8{digits[17:20]}-{digits[20:]}")


def sample_request(graph: ExecutableGraph, *, state: JsonTree = None, number: int = 1) -> DurableAgentAdmissionRequest:
    """Submit run ``number`` of a graph by the sample agent; its deadline is :data:`DEADLINE`."""
    definition = graph.definition
    return admission_request(
        number,
        descriptor=agent(input_schema=definition.input_schema, output_schema=definition.output_schema),
        request=agent_request(input_schema=definition.input_schema),
        budget_layers=(AgentAdmissionBudgetLayer.system_default(deadline=DEADLINE),),
        graph=definition.reference,
        initial_state=graph_state({} if state is None else state, schema=definition.state_schema),
    )


def as_stored(event: Event) -> Event:
    """Give an event as it is read: it knows nothing of what its bytes were made from."""
    return Event(
        tenant_id=event.tenant_id,
        run_id=event.run_id,
        sequence=event.sequence,
        event_id=event.event_id,
        recorded_at=event.recorded_at,
        epoch=event.epoch,
        kind=event.kind,
        schema_digest=event.schema_digest,
        data=event.data,
        digest=event.digest,
    )


def bodies_of(commit: DraftedCommit) -> Iterator[tuple[Digest, BodyRow]]:
    """Give the bodies that a commit stores, as they are read."""
    if commit.admission is not None:
        yield commit.admission.admission_digest, BodyRow(data=commit.admission.body)
    if commit.checkpoint is not None:
        row = BodyRow(data=commit.checkpoint.state, checkpoint_id=commit.checkpoint.checkpoint_id)
        yield commit.checkpoint.digest, row
    for result in commit.results:
        yield result.digest, BodyRow(data=result.body)
    for wait in commit.waits:
        yield wait.digest, BodyRow(data=wait.registration)
    for settlement in commit.settlements:
        if settlement.resolution is not None and settlement.resolution_digest is not None:
            yield settlement.resolution_digest, BodyRow(data=settlement.resolution)
    if commit.outcome is not None:
        yield commit.outcome.digest, BodyRow(data=commit.outcome.body)


def refold(history: History) -> Iterator[RunState]:
    """Fold what is stored from event 1, and give the state after each event."""
    state = RunState.empty(history.state.tenant_id, history.state.run_id)
    bodies = history.bodies
    for event in history.stored_events:
        state = state.apply(event, bodies, history.graph)
        yield state
