"""Admit runs, read them, and wait for their end. Nothing here runs a graph."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeAlias, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from agentruns.domain.graph.definition import CompiledGraph
from agentruns.domain.ids import RunId
from agentruns.domain.ledger.documents import ADMISSION_EVENT, CANCELLATION_EVENT
from agentruns.domain.scalars import TenantId
from agentruns.domain.snapshot import AgentRunSnapshot
from agentruns.domain.submission import DurableAgentAdmissionRequest, MutationOutcome, key_digest
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.runtime.joined import JoinedAgentRuns, Transaction, publish
from agentruns.runtime.preparation import prepare
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.run_lanes import RunLanes
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.submission import AgentRunAdmission, submission_steps
from agentruns.store.ends import RunLookup

T = TypeVar("T")

#: What an asynchronous caller's transaction is passed as.
AsyncTransaction: TypeAlias = AsyncSession | AsyncConnection

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.5


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
        return await self._admit(key, request, session)

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
        return await self._load(RunLookup(tenant_id=tenant_id, run_id=run_id), session)

    async def load_by_key(
        self, tenant_id: TenantId, key: AgentSubmissionKey, session: AsyncTransaction | None = None
    ) -> AgentRunSnapshot:
        """Read the run that a key stands for; as :meth:`load`.

        Raises:
            AgentSubmissionNotFoundError: the tenant has no run under this key.
        """
        return await self._load(RunLookup(tenant_id=tenant_id, key_digest=key_digest(tenant_id, key)), session)

    async def wait(self, tenant_id: TenantId, run_id: RunId, *, timeout: timedelta) -> AgentRunSnapshot:  # noqa: ASYNC109  # a snapshot is the answer when the time is over
        """Give the first snapshot with an outcome, or, when the time is over, the one that was last seen.

        No connection is held between two reads.

        Raises:
            AgentRunsError: what :meth:`load` raises.
        """
        loop = asyncio.get_running_loop()
        ends_at, pause = loop.time() + timeout.total_seconds(), _FIRST_PAUSE
        while True:
            snapshot = await self.load(tenant_id, run_id)
            left = ends_at - loop.time()
            if snapshot.outcome is not None or left <= 0:
                return snapshot
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def publish(
        self, tenant_id: TenantId, graph: CompiledGraph, session: AsyncTransaction | None = None
    ) -> MutationOutcome:
        """Give a tenant a graph, so that runs of it can be admitted. The same definition again is idempotent.

        Raises:
            IdConflictError: kind ``graph``: the version stands for another definition; publish a new version.
        """
        if session is None:
            return await self._store.run(lambda work: publish(work, tenant_id, graph))
        return await _join(session, lambda transaction: self._joined.publish(tenant_id, graph, transaction))

    async def _admit(
        self,
        key: AgentSubmissionKey | None,
        request: DurableAgentAdmissionRequest,
        session: AsyncTransaction | None,
    ) -> AgentRunAdmission:
        _check_transaction(session)
        prepared = prepare(request, self._executables, key=key)
        if session is not None:
            return await _join(session, lambda transaction: self._joined.send(prepared, transaction))
        steps = submission_steps(prepared, clock=self._store.clock, verifier=self._joined.verifier, is_joined=False)
        return await self._lanes.follow(steps)

    async def _load(self, lookup: RunLookup, session: AsyncTransaction | None) -> AgentRunSnapshot:
        if session is not None:
            return await _join(session, lambda transaction: self._joined.read(lookup, transaction))
        verifier = self._joined.verifier
        return verifier.snapshot(verifier.verify(await self._lanes.read(lookup)))


async def _join(session: AsyncTransaction, call: Callable[[Transaction], T]) -> T:
    """Run synchronous steps in the caller's transaction, on its connection."""
    _check_transaction(session)
    return await session.run_sync(call)


def _check_transaction(session: object) -> None:
    """Refuse what is no transaction of SQLAlchemy's asyncio, before anything is sent."""
    if session is not None and not isinstance(session, AsyncSession | AsyncConnection):
        given = type(session).__name__
        raise TypeError(
            f"pass session as an AsyncSession or AsyncConnection, not {given}; synchronous code uses JoinedAgentRuns"
        )
