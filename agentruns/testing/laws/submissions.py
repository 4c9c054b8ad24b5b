"""Check that a submission can be repeated until it is answered, and makes one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from hypothesis import strategies as st

from agentruns.domain.scalars import TenantId
from agentruns.domain.submission import DurableAgentAdmissionRequest
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.wire import from_json, to_json
from agentruns.errors import AgentRunsError, DeploymentError, InvalidValueError
from agentruns.runtime.clock import DatabaseClock
from agentruns.runtime.deployment import Deployment
from agentruns.runtime.deployment_graphs import DeploymentGraphs
from agentruns.runtime.deployment_open import OpenDeployment
from agentruns.runtime.preparation import prepare
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.submission import SubmissionStep, SubmissionSteps, submission_steps
from agentruns.runtime.verification import RunVerifier
from agentruns.testing.laws.broken import LawBrokenError
from agentruns.testing.laws.searching import search
from agentruns.testing.simulation.submissions import MemorySubmissions

#: Makes the request of one submission, as an application does it for each attempt.
RequestFactory: TypeAlias = Callable[[OpenDeployment], DurableAgentAdmissionRequest]

_KEY: Final = AgentSubmissionKey("one-piece-of-work")
_UNOPENED: Final = "postgresql+asyncpg://nobody@localhost/never_opened"
_CLIENTS: Final = 3
_STATEMENTS: Final = 64


def check_submission_laws(
    deployment: Deployment,
    request: RequestFactory,
    *,
    tenant: TenantId | str = "laws",
    max_examples: int = 50,
) -> None:
    """Submit one piece of work in memory as several clients do that lose answers, and insist on one run.

    ``request`` is called anew for each attempt, as in an application that builds its request when it is asked again. A
    request that says something else each time, such as a deadline counted from now or evidence with a fresh id, would
    be a conflict instead of the answer. Four laws are held:

    * *content*: two requests for the same work have the same content, whatever their ids.
    * *wire*: a request that was stored and read comes back as it was.
    * *admission*: this deployment admits the request.
    * *one run*: however attempts are interleaved and answers lost, there is one run, and all are told of it.

    Args:
        deployment: that has the graphs.
        request: called with the deployment as an application has it open, over a database that is never reached.
        tenant: whose run it is.
        max_examples: how many interleavings are tried.

    Raises:
        LawBrokenError: a law does not hold; it says which, and shows the steps.
        DefinitionError: a graph of the deployment cannot be used as it is defined.
    """
    graphs = deployment.build()
    app = OpenDeployment(AgentRunStore(_UNOPENED), graphs, tenants=(TenantId(str(tenant)),))
    first = request(app)
    _check_request(first, request(app), graphs)

    def interleaved(data: st.DataObject) -> LawBrokenError | None:
        clients = _Clients(graphs, lambda: request(app))
        for _ in range(_STATEMENTS):
            if not clients.pending:
                break
            clients.go_on(data.draw(st.sampled_from(clients.pending)), loses_answer=data.draw(st.booleans()))
        return clients.broken()

    search(interleaved, max_examples=max_examples)


def _check_request(
    first: DurableAgentAdmissionRequest, second: DurableAgentAdmissionRequest, graphs: DeploymentGraphs
) -> None:
    if first.submission_digest != second.submission_digest:
        parts = [name for name, one, two in _parts(first, second) if one != two]
        raise _broken("its content is the same each time", "equal", f"different in {', '.join(parts)}", ())
    read = from_json(to_json(first), DurableAgentAdmissionRequest)
    if read != first:
        raise _broken("it comes back from its wire form", "the same request", "another one", ())
    try:
        prepared = prepare(first, graphs.executables, key=_KEY)
    except InvalidValueError as error:
        raise _broken("this deployment admits it", "admitted", str(error), ()) from error
    if prepared.kept_error is not None:
        raise _broken("this deployment admits it", "admitted", str(prepared.kept_error), ()) from prepared.kept_error


def _parts(
    first: DurableAgentAdmissionRequest, second: DurableAgentAdmissionRequest
) -> list[tuple[str, object, object]]:
    one, two = first.intent, second.intent
    names = ("descriptor", "request", "budget_layers", "budget", "graph", "authority")
    provenance = ("tenant", one.provenance.tenant_id, two.provenance.tenant_id)
    return [
        provenance,
        *((name, getattr(one, name), getattr(two, name)) for name in names),
        ("initial_state", first.initial_state, second.initial_state),
    ]


def _broken(law: str, expected: object, found: object, steps: tuple[str, ...]) -> LawBrokenError:
    return LawBrokenError("the submission", law, expected=expected, found=found, steps=steps)


class _Clients:
    """Let clients submit the same work under one key, a statement at a time; who loses an answer begins again."""

    def __init__(self, graphs: DeploymentGraphs, request: Callable[[], DurableAgentAdmissionRequest]) -> None:
        self._graphs = graphs
        self._request = request
        self._database = MemorySubmissions()
        self._clock = DatabaseClock(monotonic=lambda: 0.0)
        self._verifier = RunVerifier(executables=graphs.executables)
        self._walks: dict[int, tuple[SubmissionSteps, SubmissionStep]] = {}
        self._told: list[str] = []
        self._steps: list[str] = []
        for client in range(1, _CLIENTS + 1):
            self._begin(client)

    @property
    def pending(self) -> list[int]:
        """The clients that wait for an answer."""
        return sorted(self._walks)

    def go_on(self, client: int, *, loses_answer: bool) -> None:
        """Take the next statement of a client; one whose answer is lost submits again, with a fresh request."""
        steps, step = self._walks.pop(client)
        answer = self._database.take(step)
        self._steps.append(f"client {client}: {type(step).__name__}" + (", answer lost" if loses_answer else ""))
        if loses_answer:
            self._begin(client)
            return
        try:
            self._walks[client] = steps, steps.send(answer)
        except StopIteration as done:
            self._told.append(done.value.snapshot.provenance.run_id.text)
        except AgentRunsError as error:
            self._told.append(f"{type(error).__name__}: {error}")

    def broken(self) -> LawBrokenError | None:
        """Say whether there is more than one run, or somebody was told something else."""
        if len(self._database.runs) <= 1 and set(self._told) <= self._database.runs:
            return None
        found = f"{len(self._database.runs)} runs, and the clients were told {self._told}"
        return _broken("it makes one run", "one run, of which all are told", found, tuple(self._steps))

    def _begin(self, client: int) -> None:
        try:
            prepared = prepare(self._request(), self._graphs.executables, key=_KEY)
        except (InvalidValueError, DeploymentError) as error:
            self._told.append(f"{type(error).__name__}: {error}")
            return
        steps = submission_steps(prepared, clock=self._clock, verifier=self._verifier, is_joined=False)
        self._walks[client] = steps, next(steps)
