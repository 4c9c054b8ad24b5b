"""Submit and read inside a caller's transaction: synchronous, on the caller's connection and no other."""

from __future__ import annotations

from typing import TypeAlias

from sqlalchemy import Connection
from sqlalchemy.orm import Session

from agentruns.domain.graph.definition import CompiledGraph
from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.domain.snapshot import AgentRunSnapshot
from agentruns.domain.submission import DurableAgentAdmissionRequest, MutationOutcome, key_digest
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import IdConflictError
from agentruns.orm.base import SCHEMA_TOKEN
from agentruns.runtime.clock import DatabaseClock
from agentruns.runtime.preparation import PreparedSubmission, prepare
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.steps import follow
from agentruns.runtime.submission import AgentRunAdmission, submission_steps
from agentruns.runtime.verification import RunVerifier
from agentruns.store.ends import Ends, RunLookup
from agentruns.store.unit_of_work import UnitOfWork

#: What a synchronous caller's transaction is passed as.
Transaction: TypeAlias = Session | Connection


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
        return self.send(prepare(request, self._executables, key=key), session)

    def admit(self, request: DurableAgentAdmissionRequest, session: Transaction) -> AgentRunAdmission:
        """Admit a run without a key; as :meth:`submit`."""
        return self.send(prepare(request, self._executables, key=None), session)

    def send(self, prepared: PreparedSubmission, session: Transaction) -> AgentRunAdmission:
        """Take the steps of a prepared submission."""
        work = UnitOfWork.joined(session, schema=self._schema)
        clock = DatabaseClock()
        return follow(submission_steps(prepared, clock=clock, verifier=self.verifier, is_joined=True), work, clock)

    def load(self, tenant_id: TenantId, run_id: RunId, session: Transaction) -> AgentRunSnapshot:
        """Read a run as the transaction sees it, and verify it; as :meth:`DurableAgentRuns.load`."""
        return self.read(RunLookup(tenant_id=tenant_id, run_id=run_id), session)

    def load_by_key(self, tenant_id: TenantId, key: AgentSubmissionKey, session: Transaction) -> AgentRunSnapshot:
        """Read the run that a key stands for; as :meth:`DurableAgentRuns.load_by_key`."""
        return self.read(RunLookup(tenant_id=tenant_id, key_digest=key_digest(tenant_id, key)), session)

    def read(self, lookup: RunLookup, session: Transaction) -> AgentRunSnapshot:
        """Read and verify one run."""
        (ends,) = Ends(UnitOfWork.joined(session, schema=self._schema)).read([lookup])
        return self.verifier.snapshot(self.verifier.verify(ends))

    def publish(self, tenant_id: TenantId, graph: CompiledGraph, session: Transaction) -> MutationOutcome:
        """Give a tenant a graph; as :meth:`DurableAgentRuns.publish`."""
        return publish(UnitOfWork.joined(session, schema=self._schema), tenant_id, graph)


def publish(work: UnitOfWork, tenant_id: TenantId, graph: CompiledGraph) -> MutationOutcome:
    """Insert a definition, or find that the tenant has it already.

    Raises:
        IdConflictError: kind ``graph``: the version stands for another definition; publish a new version.
    """
    if work.graphs.add([(tenant_id, graph)])[0]:
        return MutationOutcome.COMMITTED
    if work.graphs.digests([(tenant_id, graph.identity)])[0] != graph.definition_digest:
        raise IdConflictError(tenant_id=tenant_id, kind="graph", id=graph.identity)
    return MutationOutcome.IDEMPOTENT
