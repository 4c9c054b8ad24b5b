"""Submit and read inside a caller's transaction: synchronous, on the caller's connection and no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from agentruns.domain.failure import Failure
from agentruns.domain.graph.definition import CompiledGraph
from agentruns.domain.ids import EventId, RunId
from agentruns.domain.operator_authority import OperatorAuthority
from agentruns.domain.scalars import TenantId
from agentruns.domain.snapshot import AgentRunSnapshot
from agentruns.domain.submission import DurableAgentAdmissionRequest, MutationOutcome, key_digest
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import AgentRunsError, IdConflictError, UnitOfWorkError
from agentruns.orm.base import SCHEMA_TOKEN
from agentruns.runtime.arguments import check_argument
from agentruns.runtime.cancellation import AskedCancellation, cancellation_steps
from agentruns.runtime.clock import DatabaseClock
from agentruns.runtime.control import AgentRunMutation
from agentruns.runtime.preparation import PreparedSubmission, prepare
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.steps import Steps, Walk, follow_all
from agentruns.runtime.submission import AgentRunAdmission, submission_steps
from agentruns.runtime.submission_sets import Submission, SubmissionSet
from agentruns.runtime.telemetry.calls import observed_load, observed_set, observed_submission
from agentruns.runtime.transactions import Transaction, follow_joined
from agentruns.runtime.verification import RunVerifier
from agentruns.store.ends import Ends, RunLookup
from agentruns.store.unit_of_work import UnitOfWork

T = TypeVar("T")


class JoinedAgentRuns:
    """Admit runs, and read them, in transactions that synchronous code has begun.

    Nothing is begun, committed, rolled back, flushed or repeated here, and no savepoint is made. What the call answers
    becomes true with the caller's commit. Errors of the database pass through as SQLAlchemy's own.

    Args:
        executables: graphs and schemas of this process.
        schema: the database schema that holds the tables.
    """

    def __init__(self, executables: ExecutableGraphRegistry, *, schema: str = SCHEMA_TOKEN) -> None:
        self._executables = executables
        self._schema = schema
        self.verifier = RunVerifier(executables=executables)

    def submit(
        self, key: AgentSubmissionKey, request: DurableAgentAdmissionRequest, session: Transaction
    ) -> AgentRunAdmission:
        """Admit a run under a key, or find the run that the key stands for.

        Raises:
            TypeError: neither a ``Session`` nor a ``Connection`` was passed.
            AgentRunsError: as :meth:`DurableAgentRuns.submit`; the transaction can still be used and committed.
        """
        check_argument("key", key, AgentSubmissionKey)
        with observed_submission(request) as observed:
            return observed.ended_with(self.send(prepare(request, self._executables, key=key), session))

    def admit(self, request: DurableAgentAdmissionRequest, session: Transaction) -> AgentRunAdmission:
        """Admit a run without a key; as :meth:`submit`."""
        with observed_submission(request) as observed:
            return observed.ended_with(self.send(prepare(request, self._executables, key=None), session))

    def submit_many(
        self, submissions: Sequence[Submission], session: Transaction
    ) -> tuple[AgentRunAdmission | AgentRunsError, ...]:
        """Admit many runs of one tenant; as :meth:`DurableAgentRuns.submit_many`."""
        return self.send_many(SubmissionSet.of(submissions, self._executables), session)

    def request_cancellation(
        self,
        tenant_id: TenantId,
        run_id: RunId,
        *,
        event_id: EventId,
        failure: Failure,
        session: Transaction,
        authority: OperatorAuthority | None = None,
    ) -> AgentRunMutation:
        """Ask for the end of a run; as :meth:`DurableAgentRuns.request_cancellation`."""
        asked = AskedCancellation.of(tenant_id, run_id, event_id=event_id, failure=failure, authority=authority)
        return self.ask(asked, session)

    def send(self, prepared: PreparedSubmission, session: Transaction) -> AgentRunAdmission:
        """Take the steps of a prepared submission."""
        return self._follow(
            lambda clock: submission_steps(prepared, clock=clock, verifier=self.verifier, is_joined=True), session
        )

    def send_many(self, asked: SubmissionSet, session: Transaction) -> tuple[AgentRunAdmission | AgentRunsError, ...]:
        """Take the steps of prepared submissions: in each round, what is of one kind is one statement."""
        with observed_set(asked) as observed:
            work, clock = self._join(session), DatabaseClock()
            steps = asked.steps(clock=clock, verifier=self.verifier, is_joined=True)
            return observed.ended_with(follow_all([Walk(each, after) for each, after in steps], work, clock))

    def ask(self, asked: AskedCancellation, session: Transaction) -> AgentRunMutation:
        """Take the steps of a request to end a run."""
        return self._follow(lambda clock: cancellation_steps(asked, clock=clock, verifier=self.verifier), session)

    def load(self, tenant_id: TenantId, run_id: RunId, session: Transaction) -> AgentRunSnapshot:
        """Read a run as the transaction sees it, and verify it; as :meth:`DurableAgentRuns.load`."""
        return self.read(lookup_by_id(tenant_id, run_id), session)

    def load_by_key(self, tenant_id: TenantId, key: AgentSubmissionKey, session: Transaction) -> AgentRunSnapshot:
        """Read the run that a key stands for; as :meth:`DurableAgentRuns.load_by_key`."""
        return self.read(lookup_by_key(tenant_id, key), session)

    def read(self, lookup: RunLookup, session: Transaction) -> AgentRunSnapshot:
        """Read and verify one run."""
        with observed_load(lookup) as observed:
            (ends,) = Ends(self._join(session)).read([lookup])
            return observed.ended_with(self.verifier.snapshot(self.verifier.verify(ends)))

    def publish(self, tenant_id: TenantId, graph: CompiledGraph, session: Transaction) -> MutationOutcome:
        """Give a tenant a graph; as :meth:`DurableAgentRuns.publish`."""
        check_argument("tenant_id", tenant_id, TenantId)
        check_argument("graph", graph, CompiledGraph)
        work = self._join(session)
        return publish(work, tenant_id, graph, may_write=not work.is_read_only())

    def _follow(self, steps_of: Callable[[DatabaseClock], Steps[T]], session: Transaction) -> T:
        return follow_joined(steps_of, session, schema=self._schema)

    def _join(self, session: Transaction) -> UnitOfWork:
        return UnitOfWork.joined(session, schema=self._schema)


def lookup_by_id(tenant_id: TenantId, run_id: RunId) -> RunLookup:
    """Look for a run by its id."""
    check_argument("tenant_id", tenant_id, TenantId)
    check_argument("run_id", run_id, RunId)
    return RunLookup(tenant_id=tenant_id, run_id=run_id)


def lookup_by_key(tenant_id: TenantId, key: AgentSubmissionKey) -> RunLookup:
    """Look for the run that a key stands for."""
    check_argument("tenant_id", tenant_id, TenantId)
    check_argument("key", key, AgentSubmissionKey)
    return RunLookup(tenant_id=tenant_id, key_digest=key_digest(tenant_id, key))


def publish(work: UnitOfWork, tenant_id: TenantId, graph: CompiledGraph, *, may_write: bool = True) -> MutationOutcome:
    """Insert a definition, or find that the tenant has it already.

    Raises:
        IdConflictError: kind ``graph``: the version stands for another definition; publish a new version.
        UnitOfWorkError: ``read_only``: the tenant does not have it, and ``may_write`` says that it cannot be inserted.
    """
    if may_write and work.graphs.add([(tenant_id, graph)])[0]:
        return MutationOutcome.COMMITTED
    recorded = work.graphs.digests([(tenant_id, graph.identity)])[0]
    if recorded is None and not may_write:
        raise UnitOfWorkError(reason="read_only")
    if recorded != graph.definition_digest:
        raise IdConflictError(tenant_id=tenant_id, kind="graph", id=graph.identity)
    return MutationOutcome.IDEMPOTENT
