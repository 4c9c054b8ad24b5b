"""What the library does: submit, retry, load, and runs of three nodes from submission to verified result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
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
    SucceededOutcome,
    TenantId,
)
from agentruns.domain.ids import AttemptId
from agentruns.domain.submission import DurableAgentAdmissionRequest
from agentruns.runtime.agent_loop import DurableAgentLoop
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.worker import AgentWorkerOptions
from benchmarks.measure import Figure, measured
from benchmarks.workload import ARTICLES, Workload

#: Whose runs are only submitted, and whose are driven as well: a worker never sees the former.
ADMITTED: Final = TenantId("admitted")
DRIVEN: Final = TenantId("driven")

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
    loop: DurableAgentLoop
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

    async def submit(self, submission: Submission) -> None:
        """Admit a new run."""
        admitted = await self.runs.submit(submission.key, submission.request)
        assert admitted.outcome is MutationOutcome.COMMITTED

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
        request = submission.request
        held = await self.store.claim(request.tenant_id, request.run_id, AttemptId.generate())
        await self.loop.run(held, ShutdownSignal())
        await self.check(submission)

    async def run_all(self, submissions: Sequence[Submission], *, callers: int) -> Figure:
        """Submit runs while a worker drives them, and read every result.

        The figure's times are those of the last step alone; its seconds are those of everything.
        """
        began = time.perf_counter()
        self.work.answers.expect(len(submissions))
        async with self._working(slots=callers):
            await measured(submissions, self.submit, callers=callers)
            await self.work.answers.all_given()
            loads = await measured(submissions, self.check, callers=callers)
        return Figure(calls=len(submissions), seconds=time.perf_counter() - began, median=loads.median, p95=loads.p95)

    @asynccontextmanager
    async def _working(self, *, slots: int) -> AsyncIterator[None]:
        options = AgentWorkerOptions(slots=slots, poll_interval=timedelta(milliseconds=20))
        worker = AgentWorker(self.store, self.work.executables, tenants=[DRIVEN], loop=self.loop, options=options)
        shutdown = ShutdownSignal()
        working = asyncio.create_task(worker.run(shutdown))
        yield
        shutdown.drain()
        await working


@asynccontextmanager
async def opened(url: URL, work: Workload) -> AsyncIterator[Ours]:
    """Open a store of its own, and give both tenants the graph."""
    async with AgentRunStore(url) as store:
        runs = DurableAgentRuns(store, work.executables)
        for tenant_id in (ADMITTED, DRIVEN):
            await runs.publish(tenant_id, work.bundle.graph)
        yield Ours(store=store, runs=runs, loop=DurableAgentLoop(store, work.executables), work=work)
