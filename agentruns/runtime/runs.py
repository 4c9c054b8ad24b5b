"""Admit runs, read them, and wait for their end. Nothing here runs a graph."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from agentruns.domain.explanation.explanation import RunExplanation
from agentruns.domain.failure import Failure
from agentruns.domain.graph.definition import CompiledGraph
from agentruns.domain.ids import EventId, RunId
from agentruns.domain.ledger.documents import ADMISSION_EVENT, CANCELLATION_EVENT
from agentruns.domain.operator_authority import OperatorAuthority
from agentruns.domain.scalars import TenantId
from agentruns.domain.snapshot import AgentRunSnapshot
from agentruns.domain.submission import DurableAgentAdmissionRequest, MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import AgentRunsError
from agentruns.runtime.arguments import check_argument
from agentruns.runtime.cancellation import AskedCancellation, cancellation_steps
from agentruns.runtime.control import AgentRunMutation
from agentruns.runtime.explaining import RunExplainer
from agentruns.runtime.joined import JoinedAgentRuns, lookup_by_id, lookup_by_key, publish
from agentruns.runtime.preparation import prepare
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.run_lanes import RunLanes
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.submission import AgentRunAdmission, submission_steps
from agentruns.runtime.submission_sets import Submission, SubmissionSet
from agentruns.runtime.telemetry.calls import observed_load, observed_set, observed_submission
from agentruns.runtime.transactions import AsyncTransaction, check_transaction, join
from agentruns.store.ends import RunLookup


class DurableAgentRuns:
    """Admit runs and read them, in transactions of our own or inside a caller's.

    A caller's transaction is passed as ``session``: an ``AsyncSession`` or an ``AsyncConnection``. Only it is used,
    nothing of it is begun, committed, rolled back or flushed, and what is answered becomes true with its commit.
    Synchronous code uses :class:`JoinedAgentRuns`. One session serves one call at a time.

    Args:
        store: where the runs are.
        executables: graphs and schemas of this process.

    Raises:
        SchemaUnavailableError: the registry lacks the library's document of admission or cancellation events.
    """

    def __init__(self, store: AgentRunStore, executables: ExecutableGraphRegistry) -> None:
        for reference in (ADMISSION_EVENT, CANCELLATION_EVENT):
            executables.schemas.require(reference)
        self._store = store
        self._executables = executables
        self._joined = JoinedAgentRuns(executables, schema=store.options.schema)
        self._lanes = RunLanes(store)
        self._explainer = RunExplainer(store, executables)

    async def submit(
        self,
        key: AgentSubmissionKey,
        request: DurableAgentAdmissionRequest,
        session: AsyncTransaction | None = None,
    ) -> AgentRunAdmission:
        """Admit a run under a key, or find the run that the key stands for.

        Repeat it with the same key and the same content until it answers; the ids may be fresh ones each time.

        Raises:
            SchemaRejectedError: input, evidence or initial state do not satisfy their schema; nothing was sent.
            AgentSubmissionConflictError: the key stands for other content; use a new key only for new work.
            AgentAdmissionConflictError: the candidate run id is taken; generate fresh ids.
            AgentAdmissionRejectedError: the deadline has come; make a new request with a new key.
            DeploymentError: this process or the tenant lacks the graph or a schema; deploy or publish it.
            CorruptDataError: what is stored under the key does not verify.
            StoreError: the database; retryable where it says so, with the same key.
        """
        check_argument("key", key, AgentSubmissionKey)
        return await self._admit(key, request, session)

    async def submit_many(
        self, submissions: Sequence[Submission], session: AsyncTransaction | None = None
    ) -> tuple[AgentRunAdmission | AgentRunsError, ...]:
        """Admit 1 to 256 runs of one tenant, in input order; an item's error is a value and stops nothing.

        Together they have at most 64 MiB of canonical bytes. An item whose key or candidate run id an earlier one has
        is decided after it. Of our own, the items commit together when nothing goes wrong, which is no promise; joined,
        all of them become true with the caller's commit, and an error of the database takes the transaction with it.

        Raises:
            InvalidValueError: ``wrong_count``, ``tenant_mismatch`` or ``too_large``; nothing was sent.
        """
        check_transaction(session)
        asked = SubmissionSet.of(submissions, self._executables)
        if session is not None:
            return await join(session, lambda transaction: self._joined.send_many(asked, transaction))
        with observed_set(asked) as observed:
            steps = asked.steps(clock=self._store.clock, verifier=self._joined.verifier, is_joined=False)
            return observed.ended_with(await self._lanes.follow_all(steps))

    async def admit(
        self, request: DurableAgentAdmissionRequest, session: AsyncTransaction | None = None
    ) -> AgentRunAdmission:
        """Admit a run without a key; only the identical request, ids included, finds it again.

        Raises:
            AgentRunsError: as :meth:`submit`; any other id or content under the run id is
                ``AgentAdmissionConflictError``.
        """
        return await self._admit(None, request, session)

    async def load(
        self, tenant_id: TenantId, run_id: RunId, session: AsyncTransaction | None = None
    ) -> AgentRunSnapshot:
        """Read a run and verify what was read. Joined, it sees the caller's uncommitted work.

        Raises:
            RunNotFoundError: the tenant has no such run.
            CorruptDataError: stored evidence does not verify; no data is returned.
            DeploymentError: this process lacks the run's graph or a schema.
        """
        return await self._load(lookup_by_id(tenant_id, run_id), session)

    async def load_by_key(
        self, tenant_id: TenantId, key: AgentSubmissionKey, session: AsyncTransaction | None = None
    ) -> AgentRunSnapshot:
        """Read the run that a key stands for; as :meth:`load`.

        Raises:
            AgentSubmissionNotFoundError: the tenant has no run under this key.
        """
        return await self._load(lookup_by_key(tenant_id, key), session)

    async def request_cancellation(
        self,
        tenant_id: TenantId,
        run_id: RunId,
        *,
        event_id: EventId,
        failure: Failure,
        authority: OperatorAuthority | None = None,
        session: AsyncTransaction | None = None,
    ) -> AgentRunMutation:
        """Ask for the end of a run. Whoever holds its lease stops, and confirms with the usage so far.

        Make the ids of event and failure once and keep them for every retry. From the commit on the run neither
        succeeds nor fails, and nothing of it starts; what it waits for is abandoned. The graph need not be deployed.
        The failure becomes public; an ``authority``, which belongs to the content as well, stays with the request.

        Raises:
            InvalidValueError: the failure is not of category ``cancelled`` with advice never, or names another cause.
            RunNotFoundError: the tenant has no such run.
            CancellationConflictError: another request was first; its reason stands.
            IdConflictError: the event's id stands for something else in this run; generate a fresh one.
            RunNotRunnableError: ``terminal``; the run ended before.
            RunQuarantinedError: an operator decides.
            CorruptDataError: stored evidence does not verify.
            StoreError: the database; retryable where it says so, with the same ids.
        """
        check_transaction(session)
        check_argument("tenant_id", tenant_id, TenantId)
        check_argument("run_id", run_id, RunId)
        asked = AskedCancellation.of(tenant_id, run_id, event_id=event_id, failure=failure, authority=authority)
        if session is not None:
            return await join(session, lambda transaction: self._joined.ask(asked, transaction))
        clock, verifier = self._store.clock, self._joined.verifier
        return await self._lanes.decided(lambda: cancellation_steps(asked, clock=clock, verifier=verifier))

    async def wait(self, tenant_id: TenantId, run_id: RunId, *, timeout: timedelta) -> AgentRunSnapshot:  # noqa: ASYNC109  # a snapshot is the answer when the time is over
        """Give the first snapshot with an outcome, or, when the time is over, the one that was last seen.

        It looks again and again, at the latest every two seconds, and holds no connection of the pool between two
        looks. An end that this process brings about, or is told of, is looked at at once: all calls of a store that
        wait share a connection of their own on which they listen, unless the store's options say otherwise.

        Raises:
            AgentRunsError: what :meth:`load` raises.
        """
        check_argument("run_id", run_id, RunId)
        check_argument("timeout", timeout, timedelta)
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + timeout.total_seconds()
        with self._store.ends.awaited(run_id) as end:
            while True:
                end.look()
                snapshot = await self.load(tenant_id, run_id)
                left = ends_at - loop.time()
                if snapshot.outcome is not None or left <= 0:
                    return snapshot
                await end.pause(left)

    async def explain(self, tenant_id: TenantId, run_id: RunId) -> RunExplanation:
        """Say why a run does not progress, and what to do about it.

        Nothing is verified and nothing private is read, so it answers for isolated and damaged runs as well, and for
        those of graphs that this process does not have. It is one statement, or two where nobody holds a run that is
        due; by the time that the answer is read, somebody may. Where all nodes of such a run have succeeded the record
        is read, too, to see whether the graph can join their results.

        Raises:
            RunNotFoundError: the tenant has no such run.
            StoreError: the database; retryable where it says so.
        """
        check_argument("tenant_id", tenant_id, TenantId)
        check_argument("run_id", run_id, RunId)
        return await self._explainer.explain(tenant_id, run_id)

    def notify(self, tenant_id: TenantId) -> None:
        """Tell listening workers that a tenant may have a run for them; it returns at once.

        Calls of our own do so themselves. Joined ones cannot know of the caller's commit: call this after it, on the
        store's event loop, or leave it to the next poll.

        Raises:
            UnitOfWorkError: the store is not open, or belongs to another event loop.
        """
        self._store.notify(tenant_id)

    async def publish(
        self, tenant_id: TenantId, graph: CompiledGraph, session: AsyncTransaction | None = None
    ) -> MutationOutcome:
        """Give a tenant a graph, so that runs of it can be admitted. The same definition again is idempotent.

        Raises:
            IdConflictError: kind ``graph``: the version stands for another definition; publish a new version.
            UnitOfWorkError: ``read_only``: the caller's transaction may not write; it can still be used.
        """
        check_argument("tenant_id", tenant_id, TenantId)
        check_argument("graph", graph, CompiledGraph)
        if session is None:
            return await self._store.run(lambda work: publish(work, tenant_id, graph))
        return await join(session, lambda transaction: self._joined.publish(tenant_id, graph, transaction))

    async def _admit(
        self,
        key: AgentSubmissionKey | None,
        request: DurableAgentAdmissionRequest,
        session: AsyncTransaction | None,
    ) -> AgentRunAdmission:
        check_transaction(session)
        with observed_submission(request) as observed:
            prepared = prepare(request, self._executables, key=key)
            if session is not None:
                joined = await join(session, lambda transaction: self._joined.send(prepared, transaction))
                return observed.ended_with(joined)
            verifier = self._joined.verifier
            steps = submission_steps(prepared, clock=self._store.clock, verifier=verifier, is_joined=False)
            return observed.ended_with(await self._lanes.follow(steps))

    async def _load(self, lookup: RunLookup, session: AsyncTransaction | None) -> AgentRunSnapshot:
        if session is not None:
            return await join(session, lambda transaction: self._joined.read(lookup, transaction))
        verifier = self._joined.verifier
        with observed_load(lookup) as observed:
            return observed.ended_with(verifier.snapshot(verifier.verify(await self._lanes.read(lookup))))
