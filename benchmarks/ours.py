"""What the library does: submit, retry, load, and runs of three nodes from submission to verified result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Final

from attrs import evolve, frozen
from sqlalchemy import URL

from agentruns import (
    AgentRunSnapshot,
    AgentRunStore,
    AgentSubmissionKey,
    AgentWorker,
    DurableAgentRuns,
    MutationOutcome,
    StoreOptions,
    SucceededOutcome,
    TenantId,
)
from agentruns.domain.ids import AttemptId
from agentruns.domain.submission import DurableAgentAdmissionRequest
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.submission import AgentRunAdmission
from agentruns.runtime.worker_options import AgentWorkerOptions
from benchmarks.counting_loop import CountingLoop
from benchmarks.measure import Clock, Figure, measured
from benchmarks.workload import ARTICLES, Workload, workload

#: Whose runs are only submitted, and whose are driven as well: a worker never sees the former.
ADMITTED: Final = TenantId("admitted")
DRIVEN: Final = TenantId("driven")

#: How often a worker looks for work that it was not told of.
POLL: Final = timedelta(milliseconds=20)

_PATIENCE: Final = timedelta(seconds=30)


@frozen(kw_only=True)
class Submission:
    """A request, the key that it goes under, and the number of what it orders."""

    key: AgentSubmissionKey
    number: int
    request: DurableAgentAdmissionRequest


@frozen(kw_only=True)
class Ours:
    """An open store with what stands on it."""

    store: AgentRunStore
    runs: DurableAgentRuns
    loop: CountingLoop
    work: Workload

    def submissions(self, tenant_id: TenantId, numbers: Iterable[int]) -> list[Submission]:
        """Build what is submitted; the time for that is the application's, not ours."""
        return [
            Submission(key=AgentSubmissionKey.generate(), number=number, request=self.work.request(tenant_id, number))
            for number in numbers
        ]

    def again(self, submissions: Iterable[Submission]) -> list[Submission]:
        """Build the same content anew, with fresh ids, as a client does that lost the answer."""
        return [evolve(each, request=self.work.request(each.request.tenant_id, each.number)) for each in submissions]

    def elsewhere(self) -> Ours:
        """Stand in for a process that has not seen these runs: nothing of them is decoded or judged yet."""
        return evolve(self, runs=DurableAgentRuns(self.store, workload().executables))

    async def submit(self, submission: Submission) -> None:
        """Admit a new run."""
        admitted = await self.runs.submit(submission.key, submission.request)
        assert admitted.outcome is MutationOutcome.COMMITTED

    async def submit_set(self, submissions: Sequence[Submission]) -> None:
        """Admit new runs in one call."""
        admitted = await self.runs.submit_many([(each.key, each.request) for each in submissions])
        for each in admitted:
            assert isinstance(each, AgentRunAdmission)
            assert each.outcome is MutationOutcome.COMMITTED

    async def retry(self, submission: Submission) -> None:
        """Find the run that the key stands for, verified."""
        admitted = await self.runs.submit(submission.key, submission.request)
        assert admitted.outcome is MutationOutcome.IDEMPOTENT

    async def load(self, submission: Submission) -> AgentRunSnapshot:
        """Read a run by its id, verified."""
        return await self.runs.load(submission.request.tenant_id, submission.request.run_id)

    async def check(self, submission: Submission) -> None:
        """Read a run when it has ended; it must have succeeded."""
        request = submission.request
        outcome = (await self.runs.wait(request.tenant_id, request.run_id, timeout=_PATIENCE)).outcome
        assert isinstance(outcome, SucceededOutcome)
        assert outcome.result.output.value == {"articles": ARTICLES}

    async def run_alone(self, submission: Submission) -> None:
        """Submit a run, claim it, drive it to its end and read the result, with nobody else about."""
        await self.submit(submission)
        (held,) = await self.store.claim_ready(
            submission.request.tenant_id,
            1,
            attempt_ids=[AttemptId.generate()],
            graph_digests=self.work.executables.graph_digests,
        )
        await self.loop.run(held, ShutdownSignal())
        await self.check(submission)

    async def drive_ready(self, *, slots: int) -> int:
        """Claim up to so many runs in one statement, drive them to their ends, and say how many they were."""
        ids = [AttemptId.generate() for _ in range(slots)]
        digests = self.work.executables.graph_digests
        leases = await self.store.claim_ready(DRIVEN, slots, attempt_ids=ids, graph_digests=digests)
        for result in await asyncio.gather(*(self.loop.run(held, ShutdownSignal()) for held in leases)):
            assert result.outcome is AgentLoopOutcome.SUCCEEDED
        return len(leases)

    async def complete_all(self, submissions: Sequence[Submission], *, callers: int) -> Figure:
        """Submit runs while a worker drives them, until every end is durable.

        The figure's times are those of the submissions.
        """
        clock = Clock()
        self.loop.expect(len(submissions))
        async with self._working(slots=callers):
            submits = await measured(submissions, self.submit, callers=callers)
            await self.loop.all_succeeded()
            return evolve(submits, seconds=clock.seconds, processor_seconds=clock.processor_seconds)

    async def run_all(self, submissions: Sequence[Submission], *, callers: int) -> Figure:
        """Submit runs while a worker drives them, and read every result.

        The figure's times are those of the last step alone; its seconds are those of everything.
        """
        clock = Clock()
        self.work.answers.expect(len(submissions))
        async with self._working(slots=callers):
            await measured(submissions, self.submit, callers=callers)
            await self.work.answers.all_given()
            loads = await measured(submissions, self.check, callers=callers)
        return evolve(loads, seconds=clock.seconds, processor_seconds=clock.processor_seconds)

    async def end_all(self, submissions: Sequence[Submission], *, callers: int) -> Figure:
        """Drive runs that lie ready, and read every result.

        The figure's times are those of the last step alone; its seconds are those of everything.
        """
        clock = Clock()
        self.work.answers.expect(len(submissions))
        async with self._working(slots=callers):
            await self.work.answers.all_given()
            loads = await measured(submissions, self.check, callers=callers)
            return evolve(loads, seconds=clock.seconds, processor_seconds=clock.processor_seconds)

    @asynccontextmanager
    async def _working(self, *, slots: int) -> AsyncIterator[None]:
        is_told = self.store.options.notifies
        options = AgentWorkerOptions(slots=slots, poll_interval=POLL, listens=is_told)
        worker = AgentWorker(self.store, self.work.executables, tenants=[DRIVEN], loop=self.loop, options=options)
        shutdown = ShutdownSignal()
        working = asyncio.create_task(worker.run(shutdown))
        yield
        shutdown.drain()
        await working


@asynccontextmanager
async def opened(url: URL, work: Workload, options: StoreOptions | None = None) -> AsyncIterator[Ours]:
    """Open a store of its own, and give both tenants the graph."""
    async with AgentRunStore(url, options) as store:
        runs = DurableAgentRuns(store, work.executables)
        for tenant_id in (ADMITTED, DRIVEN):
            await runs.publish(tenant_id, work.bundle.graph)
        yield Ours(store=store, runs=runs, loop=CountingLoop(store, work.executables), work=work)


@frozen
class Uncoalesced:
    """Stores of one connection, each used by one caller at a time: what waits never shares a statement."""

    idle: asyncio.LifoQueue[Ours]

    async def submit(self, submission: Submission) -> None:
        """Admit a new run in a statement of its own."""
        library = await self.idle.get()
        await library.submit(submission)
        self.idle.put_nowait(library)


@asynccontextmanager
async def opened_uncoalesced(url: URL, work: Workload, *, callers: int) -> AsyncIterator[Uncoalesced]:
    """Open a store for each caller."""
    async with AsyncExitStack() as stack:
        idle: asyncio.LifoQueue[Ours] = asyncio.LifoQueue()
        for _ in range(callers):
            idle.put_nowait(await stack.enter_async_context(opened(url, work, StoreOptions(pool_size=1))))
        yield Uncoalesced(idle)
