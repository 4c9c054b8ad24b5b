"""Many clients submit, retry, change their minds and die, statement by statement, against a table of first comers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

from attrs import define, field
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentruns.domain.authority import AgentAdmissionBudgetLayer
from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.scalars import TenantId
from agentruns.domain.submission import AgentRunIds, DurableAgentAdmissionRequest, key_digest
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import AgentRunsError
from agentruns.runtime.clock import DatabaseClock
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.preparation import PreparedSubmission, prepare
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.submission import AgentRunAdmission, SubmissionStep, SubmissionSteps, submission_steps
from agentruns.runtime.verification import RunVerifier
from agentruns.testing import samples
from agentruns.testing.drives import chain, executables_of
from agentruns.testing.histories import BEGIN
from agentruns.testing.simulation.submissions import MemorySubmissions

KEYS: Final = tuple(AgentSubmissionKey(f"key-of-a-client-{number}") for number in range(3))
#: A run of this machine has to be over by then; clients go on long after it.
DEADLINE: Final = BEGIN.plus_micros(30_000_000)

_CLIENTS: Final = 4
_CONTENTS: Final = 2
_RUNS: Final = 5


@cache
def bundle() -> GraphBundle:
    """Give the graph that is submitted for: one node that nobody runs."""
    return chain(a=lambda _context: None)


@cache
def executables() -> ExecutableGraphRegistry:
    """Give a registry of that graph."""
    return executables_of(bundle())


def request_of(
    content: int, ids: AgentRunIds, *, tenant_id: TenantId = samples.TENANT, deadline: Timestamp = Timestamp.STORED_MAX
) -> DurableAgentAdmissionRequest:
    """Make a request; two of one content differ in nothing but their ids."""
    graph = bundle().graph
    layer = AgentAdmissionBudgetLayer.system_default(deadline=deadline)
    return samples.admission_request(
        tenant_id=tenant_id,
        ids=ids,
        descriptor=samples.agent(input_schema=graph.input_schema, output_schema=graph.output_schema),
        request=samples.agent_request(
            input={"content": content}, input_schema=graph.input_schema, budget_limits=BudgetLimits()
        ),
        budget_layers=(layer,),
        graph=graph.reference,
        initial_state=samples.graph_state({}, schema=graph.state_schema),
    )


@define(kw_only=True)
class Admitted:
    """What the model knows of a run: who came first.

    Attributes:
        key: the one that it stands under; ``None`` for none.
    """

    content: int
    key: int | None


@define(kw_only=True)
class FirstComers:
    """Say how a submission has to end that nobody interferes with: a table of keys, and one of run ids.

    Attributes:
        runs: by the number of their ids.
        deadline: whether it has passed.
    """

    runs: dict[int, Admitted] = field(factory=dict)

    def under(self, key: int | None) -> int | None:
        """Find the run that a key stands for."""
        return next((run for run, each in self.runs.items() if key is not None and each.key == key), None)

    def submit(self, key: int | None, content: int, run: int, *, is_late: bool) -> tuple[str, int]:
        """Submit, and say the answer with the run that it is about."""
        found = self.under(key)
        if found is not None:
            return ("idempotent" if self.runs[found].content == content else "AgentSubmissionConflictError"), found
        candidate = self.runs.get(run)
        if candidate is not None:
            return self._beside(candidate, key, content), run
        if is_late:
            return "AgentAdmissionRejectedError", run
        self.runs[run] = Admitted(content=content, key=key)
        return "committed", run

    def _beside(self, candidate: Admitted, key: int | None, content: int) -> str:
        """Submit under ids that stand for a run already."""
        if candidate.content != content:
            return "AgentAdmissionConflictError"
        if key is None:
            return "idempotent"
        if candidate.key is not None:
            return "AgentSubmissionConflictError"
        candidate.key = key
        return "committed"


@define(kw_only=True)
class _Client:
    key: int | None
    content: int
    run: int
    steps: SubmissionSteps
    step: SubmissionStep


class SubmissionMachine(RuleBasedStateMachine):
    """Interleave submissions of several clients, one statement at a time.

    Keys, contents and run ids are few, so that clients meet. Whoever is alone gets exactly the answer of the model;
    whoever is overtaken gets one that fits to what stands under the key afterwards.
    """

    def __init__(self) -> None:
        super().__init__()
        self.database = MemorySubmissions()
        self.clock = DatabaseClock(monotonic=lambda: (self.database.now.micros - BEGIN.micros) / 1_000_000)
        self.verifier = RunVerifier(executables=executables())
        self.model = FirstComers()
        self.clients: dict[int, _Client] = {}
        self.committed: set[int] = set()

    # --- one client at a time ------------------------------------------------------------------------------------

    @rule(key=st.none() | st.integers(0, 2), content=st.integers(0, _CONTENTS - 1), run=st.integers(0, _RUNS - 1))
    def submit(self, key: int | None, content: int, run: int) -> None:
        """Submit without being interrupted: the model knows the answer."""
        if any(client.run == run or client.key == key for client in self.clients.values()):
            return
        expected = self.model.submit(key, content, run, is_late=self.database.now >= DEADLINE)
        steps = self._steps(key, content, run)
        assert self._ended(steps, next(steps)) == expected

    # --- many clients at once ------------------------------------------------------------------------------------

    @rule(
        client=st.integers(0, _CLIENTS - 1),
        key=st.integers(0, 2),
        content=st.integers(0, _CONTENTS - 1),
        run=st.integers(0, _RUNS - 1),
    )
    def begin(self, client: int, key: int, content: int, run: int) -> None:
        """Let a client begin a submission, or give up the one that it is waiting for and begin another one."""
        steps = self._steps(key, content, run)
        try:
            step = next(steps)
        except AgentRunsError:
            return
        self.clients[client] = _Client(key=key, content=content, run=run, steps=steps, step=step)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), loses_answer=st.booleans())
    def go_on(self, data: st.DataObject, loses_answer: bool) -> None:
        """Take one statement of one client. Its answer may be lost: then the client sends the same once more."""
        name = data.draw(st.sampled_from(sorted(self.clients)))
        client = self.clients[name]
        before = set(self.database.runs)
        answer = self.database.take(client.step)
        self._note(client, before)
        if loses_answer:
            answer = self.database.take(client.step)
        try:
            client.step = client.steps.send(answer)
        except StopIteration as done:
            self._check(client, done.value)
            del self.clients[name]
        except AgentRunsError as error:
            self._check_refusal(client, error)
            del self.clients[name]

    @rule(micros=st.sampled_from([1, 1_000_000, 16_000_000]))
    def pass_time(self, micros: int) -> None:
        """Let time pass; sixteen seconds make a stamp too old."""
        self.database.now = self.database.now.plus_micros(micros)

    # --- what always holds -----------------------------------------------------------------------------------------

    @invariant()
    def the_model_and_the_table_agree(self) -> None:
        """Each run is one that the model knows, and each of its runs is there."""
        assert self.database.runs == {_ids(run).run_id.text for run in self.model.runs}
        stands = {number: run for number in range(len(KEYS)) if (run := self.model.under(number)) is not None}
        for number, run in stands.items():
            digest = key_digest(samples.TENANT, KEYS[number])
            assert self.database.keys[samples.TENANT, digest] == _ids(run).run_id.text

    def _steps(self, key: int | None, content: int, run: int) -> SubmissionSteps:
        return submission_steps(_prepared(key, content, run), clock=self.clock, verifier=self.verifier, is_joined=False)

    def _ended(self, steps: SubmissionSteps, step: SubmissionStep) -> tuple[str, int]:
        """Take every statement of a client that nobody interrupts."""
        try:
            while True:
                step = steps.send(self.database.take(step))
        except StopIteration as done:
            admitted: AgentRunAdmission = done.value
            return admitted.outcome.value, _number(admitted)
        except AgentRunsError as error:
            run_id = getattr(error, "run_id", None)
            return type(error).__name__, _number_of(str(run_id))

    def _note(self, client: _Client, before: set[str]) -> None:
        """Follow the table: the insert that took effect was the first."""
        made = self.database.runs - before
        if made:
            self.model.runs[client.run] = Admitted(content=client.content, key=client.key)
        elif client.run in self.model.runs and self.model.runs[client.run].key is None:
            digest = key_digest(samples.TENANT, KEYS[client.key or 0])
            if self.database.keys.get((samples.TENANT, digest)) == _ids(client.run).run_id.text:
                self.model.runs[client.run].key = client.key

    def _check(self, client: _Client, admitted: AgentRunAdmission) -> None:
        """Hold an answer against what stands under the key now; nothing ever takes a key away."""
        run = self.model.under(client.key)
        assert run is not None
        assert _number(admitted) == run
        assert self.model.runs[run].content == client.content
        if admitted.outcome.value == "committed":
            assert run == client.run
            assert run not in self.committed
            self.committed.add(run)

    def _check_refusal(self, client: _Client, error: AgentRunsError) -> None:
        """Hold a refusal against what stands now: whoever was overtaken is told what was so on the way."""
        name, under, candidate = type(error).__name__, self.model.under(client.key), self.model.runs.get(client.run)
        if name == "AgentSubmissionConflictError":
            is_other = under is not None and self.model.runs[under].content != client.content
            assert is_other or (candidate is not None and candidate.key not in (None, client.key))
        elif name == "AgentAdmissionConflictError":
            assert candidate is not None
            assert candidate.content != client.content
        elif name == "AgentAdmissionRejectedError":
            assert self.database.now >= DEADLINE
        else:
            assert name == "ContentionError"


@cache
def _prepared(key: int | None, content: int, run: int) -> PreparedSubmission:
    request = request_of(content, _ids(run), deadline=DEADLINE)
    return prepare(request, executables(), key=None if key is None else KEYS[key])


@cache
def _ids(run: int) -> AgentRunIds:
    return samples.run_ids(run + 1)


def _number(admitted: AgentRunAdmission) -> int:
    return _number_of(admitted.snapshot.provenance.run_id.text)


def _number_of(run_id: str) -> int:
    numbers: Sequence[int] = range(_RUNS)
    return next((number for number in numbers if _ids(number).run_id.text == run_id), -1)
