"""A run waits, is answered, expires, is cancelled and ends, at every instant and against every status."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.failure import FailureCategory
from agentruns.domain.failure_codes import DEADLINE_EXPIRED
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.nodes import GraphNode
from agentruns.domain.graph.results import TerminalControl, WaitControl
from agentruns.domain.ids import WaitId
from agentruns.domain.ledger.drafts import (
    CancellationRequestDraft,
    FailureDraft,
    FiringDraft,
    ResolutionDraft,
    Start,
    SuperstepDraft,
)
from agentruns.domain.ledger.outcomes import CancellationRequest, StoredFailure
from agentruns.domain.scalars import NodeId
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.waits import NodeWait, WaitResolution, WaitResolver
from agentruns.errors import AgentRunsError
from agentruns.testing.graphs import executable_of
from agentruns.testing.histories import DEADLINE
from agentruns.testing.history_waits import payload
from agentruns.testing.machines.lifecycle_model import LifecycleModel, ModelWait
from agentruns.testing.machines.record_laws import check_record
from agentruns.testing.samples import failure, principal, sample_id
from agentruns.testing.scripted_run import ScriptedRun
from agentruns.testing.simulation.journal import MemoryJournal

SCOPE: Final = "runs.answer"
_STEPS: Final = 40
#: The word of the model for each refusal of the fold.
_WORDS: Final = {
    "RunNotRunnableError": "status",
    "NotFoundError": "unknown",
    "WaitAlreadySettledError": "settled",
    "ResolverNotPermittedError": "resolver",
    "InvariantError": "early",
}

#: Whether it is a timer, after how many milliseconds it is due or expires, and whether only some may answer.
Shape: TypeAlias = tuple[bool, int | None, bool]

#: What ends a run is tried seldom, so that runs live for a while.
chances: Final = st.integers(0, 3)
wait_shapes: Final = st.lists(
    st.tuples(st.booleans(), st.sampled_from([None, 1, 5, 1000]), st.booleans()), min_size=1, max_size=3
)


@cache
def graph() -> ExecutableGraph:
    """Give a graph of one node that may do everything."""
    return executable_of([GraphNode.of("a", continue_to=["a"], wait_to=["a"], terminal=True)], name="life")


class LifecycleMachine(RuleBasedStateMachine):
    """Offer a run every transition at every time; the model says which one it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.run = ScriptedRun(graph())
        self.model = LifecycleModel(deadline=DEADLINE.micros)
        self.journal = MemoryJournal(self.run.state.tenant_id, self.run.state.run_id)
        self.stored = self.turns = 0
        self.waits: list[str] = []

    # --- time --------------------------------------------------------------------------------------------------------

    @rule(micros=st.sampled_from([1, 1000, 1_000_000]))
    def pass_time(self, micros: int) -> None:
        """Let a little time pass."""
        self.run.now = self.run.now.plus_micros(micros)

    @rule(data=st.data(), beside=st.sampled_from([-1, 0, 1]))
    def go_to_an_instant(self, data: st.DataObject, beside: int) -> None:
        """Go to where something is due, expires or is over, or to the microsecond before or after it."""
        instants = [wait.due or wait.expires for wait in self.model.waits.values()] + [self.model.deadline]
        instant = data.draw(st.sampled_from([each for each in instants if each is not None]))
        self.run.now = max(self.run.now, Timestamp(instant + beside))

    # --- the worker --------------------------------------------------------------------------------------------------

    @rule()
    def work(self) -> None:
        """Execute a node and go on."""
        if self.run.state.superstep.value < _STEPS:
            self._hold(self.model.work(), lambda: (self.run.run_node("a"), self.run.go_on()))

    @rule(shapes=wait_shapes)
    def suspend(self, shapes: list[Shape]) -> None:
        """Let the run wait, for instants and for answers."""
        if self.run.state.superstep.value >= _STEPS:
            return
        ids = [sample_id(WaitId, 10_000 + len(self.waits) + number) for number in range(len(shapes))]
        waits = tuple(node_wait(shape, wait_id) for shape, wait_id in zip(shapes, ids, strict=True))
        now = self.run.now.micros
        expected = self.model.wait({str(i): model_wait(shape, now) for shape, i in zip(shapes, ids, strict=True)})
        self._hold(expected, lambda: (self.run.run_node("a", WaitControl(waits=waits)), self.run.suspend()))
        self.waits += map(str, ids)

    @rule(chance=chances)
    def succeed(self, chance: int) -> None:
        """End the run, now and then."""
        if chance == 0 and self.run.state.superstep.value < _STEPS:
            output = TerminalControl(output=BoundedJson.of(None))
            self._hold(self.model.succeed(), lambda: (self.run.run_node("a", output), self.run.succeed()))

    @rule()
    def confirm(self) -> None:
        """End the run as was asked."""
        self._hold(self.model.confirm(), self.run.confirm_cancellation)

    # --- the control plane -------------------------------------------------------------------------------------------

    @rule(data=st.data(), has_scope=st.booleans())
    def resolve(self, data: st.DataObject, has_scope: bool) -> None:
        """Answer a wait, whatever it is."""
        wait = self._any(data)
        expected = self.model.resolve(wait, has_scope=has_scope, now=self._now)
        self._control(expected, self._resolution(wait, has_scope=has_scope).build)

    @rule(data=st.data())
    def fire(self, data: st.DataObject) -> None:
        """Let a wait fire, whatever it is."""
        wait = self._any(data)
        self._control(self.model.fire(wait, self._now), self._firing(wait).build)

    @rule()
    def expire(self) -> None:
        """End the run because nobody answered."""
        self._control(self.model.expire(self._now), self._expiry().build)

    @rule(by_deadline=st.booleans(), chance=chances)
    def request(self, by_deadline: bool, chance: int) -> None:
        """Ask for the end, now and then; because of a deadline at any time."""
        if by_deadline or chance == 0:
            expected = self.model.request(self._now, by_deadline=by_deadline)
            self._control(expected, self._request(by_deadline=by_deadline).build)

    @invariant()
    def every_offer_is_judged_as_the_model_does(self) -> None:
        """Offer a start, and all that the control plane may do, at an instant that matters; nothing of it is kept."""
        self.turns += 1
        waits = self.model.waits.values()
        instants = [wait.due or wait.expires for wait in waits] + [self.model.deadline]
        later = [each + beside for each in instants if each is not None for beside in (-1, 0)]
        possible = [self._now, *(each for each in later if each >= self._now)]
        at = Timestamp(possible[self.turns % len(possible)])
        for wait in [*self.model.waits, *self.model.recent, str(sample_id(WaitId, 1))]:
            for has_scope in (True, False):
                draft = self._resolution(wait, has_scope=has_scope)
                self._offer(draft.build, at, self.model.copy().resolve(wait, has_scope=has_scope, now=at.micros))
            self._offer(self._firing(wait).build, at, self.model.copy().fire(wait, at.micros))
        self._offer(self._expiry().build, at, self.model.copy().expire(at.micros))
        self._offer(self._start().build, at, self.model.copy().work())
        for by_deadline in (True, False):
            expected = self.model.copy().request(at.micros, by_deadline=by_deadline)
            self._offer(self._request(by_deadline=by_deadline).build, at, expected)

    # --- what always holds -----------------------------------------------------------------------------------------

    @invariant()
    def the_run_is_what_the_model_says(self) -> None:
        """LIF-2, LIF-7, LIF-8: status, revision and waits agree, and the record is a legal one."""
        state, model = self.run.state, self.model
        assert (state.status.value, state.revision.value) == (model.status, model.revision)
        assert [str(wait.wait_id) for wait in state.waits] == list(model.waits)
        assert {str(each.wait_id): each.how.value for each in state.settled}.items() <= model.settled.items()
        for commit in self.run.commits[self.stored :]:
            self.journal.append(commit)
        self.stored = len(self.run.commits)
        assert self.journal.fold(graph()) == state

    def teardown(self) -> None:
        """Read the record as a whole."""
        check_record(self.journal.events, self.journal.ready)

    @property
    def _now(self) -> int:
        return self.run.now.micros

    def _resolution(self, wait: str, *, has_scope: bool) -> ResolutionDraft:
        scopes = ScopeSet.of(SCOPE) if has_scope else ScopeSet()
        resolver = WaitResolver(principal=principal(), scopes=scopes)
        return ResolutionDraft(
            state=self.run.state,
            event_id=self.run.event_id(),
            wait_id=WaitId(wait),
            resolution=WaitResolution(resolver=resolver, payload=payload(1)),
        )

    def _start(self) -> SuperstepDraft:
        run = self.run
        start = Start(node_id=NodeId("a"), event_id=run.event_id(), attempt_id=run.attempt_id())
        return SuperstepDraft(state=run.state, graph=graph(), epoch=run.epoch, starts=(start,))

    def _firing(self, wait: str) -> FiringDraft:
        return FiringDraft(state=self.run.state, event_id=self.run.event_id(), wait_id=WaitId(wait))

    def _expiry(self) -> FailureDraft:
        outcome = StoredFailure(failure=failure(code="agent.interrupt.expired"), usage=self.run.state.usage)
        return FailureDraft(state=self.run.state, epoch=None, event_id=self.run.event_id(), outcome=outcome)

    def _request(self, *, by_deadline: bool) -> CancellationRequestDraft:
        code = str(DEADLINE_EXPIRED) if by_deadline else "sample.cancelled"
        reason = failure(category=FailureCategory.CANCELLED, code=code)
        return CancellationRequestDraft(
            state=self.run.state,
            event_id=self.run.event_id(),
            request=CancellationRequest(failure=reason),
            by_deadline=by_deadline,
        )

    def _any(self, data: st.DataObject) -> str:
        """Draw a wait: mostly one that is outstanding, else one of earlier or one that never was."""
        return data.draw(st.sampled_from([*self.model.waits, *self.waits[-4:], str(sample_id(WaitId, 1))]))

    def _control(self, expected: str, build: Callable[[Timestamp], Any]) -> None:
        self._hold(expected, lambda: self.run.commits.append(build(self.run.now)))

    def _offer(self, build: Callable[[Timestamp], Any], at: Timestamp, expected: str) -> None:
        self._hold(expected, lambda: build(at))

    def _hold(self, expected: str, call: Callable[[], object]) -> None:
        """Make a call, and hold how it ends against the model."""
        before, answer = len(self.run.commits), "done"
        try:
            call()
        except AgentRunsError as error:
            answer = _WORDS[type(error).__name__]
        assert answer == expected
        assert answer == "done" or len(self.run.commits) == before


def node_wait(shape: Shape, wait_id: WaitId) -> Any:
    """Make the wait of a shape, as a node returns it."""
    is_timer, millis, needs = shape
    delay = None if millis is None else timedelta(milliseconds=millis)
    if is_timer:
        return NodeWait.timer(due_in=delay or timedelta(0), id=wait_id)
    scopes = [SCOPE] if needs else []
    return NodeWait.interrupt("approval", request=payload(), scopes=scopes, expires_in=delay, id=wait_id)


def model_wait(shape: Shape, now: int) -> ModelWait:
    """Make the wait of a shape, as the model knows it."""
    is_timer, millis, needs = shape
    if is_timer:
        return ModelWait(due=now + 1000 * (millis or 0))
    return ModelWait(expires=None if millis is None else now + 1000 * millis, needs=needs)
