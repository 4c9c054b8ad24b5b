"""Work until nothing is ready: what a test or a script asks a deployment for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from attrs import define, field

from agentruns.domain.canonical import JsonTree
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.domain.status import RunStatus
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.waits import NodeWait
from agentruns.errors import StoreUnavailableError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.deployment import Deployment
from agentruns.runtime.deployment_open import OpenDeployment
from agentruns.runtime.graph_builder import GraphBuilder
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.store.options import StoreOptions
from agentruns.testing.strangers import Stranger

Run = Callable[[Coroutine[Any, Any, Any]], Any]

ANY = {"type": "object"}
SUCCEEDED, WAITING = AgentLoopOutcome.SUCCEEDED, AgentLoopOutcome.WAITING


@define
class Script:
    """A deployment whose first node does as the input says."""

    url: str
    at_once: int = 0
    most_at_once: int = 0
    entered: asyncio.Event = field(factory=asyncio.Event)
    deployment: Deployment = field(init=False)
    graph: GraphBuilder = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.deployment = Deployment(issuer="https://example.com/", subject="script")
        self.graph = self.deployment.add(GraphBuilder("script", "1.0.0", input=ANY, state=ANY, output=ANY))

        @self.graph.node(entry=True, then="last", wait_to="last")
        async def first(context: Any) -> Any:
            self.entered.set()
            self.at_once += 1
            self.most_at_once = max(self.at_once, self.most_at_once)
            await asyncio.sleep(context.state.get("naps", 0))
            self.at_once -= 1
            if "due_in" in context.state:
                return Suspend(NodeWait.timer(due_in=timedelta(milliseconds=round(1_000 * context.state["due_in"]))))
            return {}

        @self.graph.node(terminal=True)
        async def last(_context: Any) -> Finish:
            return Finish({})

    async def submit(self, app: OpenDeployment, count: int, *, tenant: str = "a", **given: JsonTree) -> list[RunId]:
        requests = [app.request(self.graph, input=given, tenant=tenant) for _ in range(count)]
        for request in requests:
            await app.runs.submit(AgentSubmissionKey.generate(), request)
        return [request.run_id for request in requests]


@pytest.fixture
def script(database_url: str) -> Script:
    return Script(database_url)


def test_all_that_is_ready_is_driven_by_as_many_slots_as_are_asked_for(script: Script, run: Run) -> None:
    async def work() -> None:
        async with script.deployment.open(script.url, tenant=["a", "b"]) as app:
            assert (await app.run_until_idle()).drive_count == 0
            run_ids = [*await script.submit(app, 7, naps=0.2), *await script.submit(app, 5, tenant="b", naps=0.2)]
            report = await app.run_until_idle(AgentWorkerOptions(slots=3))
            assert (report.outcomes, report.errors, report.settled_count) == ({SUCCEEDED: 12}, {}, 0)
            assert report.drive_count == 12
            assert script.most_at_once == 3
            tenants = [TenantId("a")] * 7 + [TenantId("b")] * 5
            statuses = [(await app.runs.load(*each)).status for each in zip(tenants, run_ids, strict=True)]
            assert statuses == [RunStatus.SUCCEEDED] * 12
            assert (await app.run_until_idle()).drive_count == 0

    run(work())


def test_what_is_due_is_settled_before_nothing_is_left_to_do_and_what_is_not_due_is_left(
    script: Script, run: Run
) -> None:
    async def work() -> None:
        async with script.deployment.open(script.url, tenant="a") as app:
            await script.submit(app, 2, due_in=1.5)
            (sleeping,) = await script.submit(app, 1, due_in=3_600)
            left_to_others = AgentWorkerOptions(supervision_interval=None)
            first = await app.run_until_idle(left_to_others)
            assert (first.outcomes, first.settled_count) == ({WAITING: 3}, 0)
            await asyncio.sleep(1.7)
            assert (await app.run_until_idle(left_to_others)).drive_count == 0
            second = await app.run_until_idle()
            assert (second.outcomes, second.settled_count) == ({SUCCEEDED: 2}, 2)
            assert (await app.runs.load(app.tenant, sleeping)).status is RunStatus.WAITING
            assert (await app.run_until_idle()).drive_count == 0

    run(work())


def test_a_shutdown_ends_it_early_and_gives_the_rest_back(script: Script, run: Run) -> None:
    async def work() -> None:
        async with script.deployment.open(script.url, tenant="a") as app:
            await script.submit(app, 3, naps=0.2)
            shutdown = ShutdownSignal()
            worker = app.make_worker(AgentWorkerOptions(slots=1))
            working = asyncio.create_task(worker.run_until_idle(shutdown))
            await script.entered.wait()
            shutdown.drain()
            assert (await working).drive_count == 1
            assert len((await app.discovery.discover_ready(app.tenant)).runs) == 3

    run(work())


def test_whoever_is_cancelled_gives_everything_back(script: Script, run: Run) -> None:
    async def work() -> None:
        async with script.deployment.open(script.url, tenant="a") as app:
            await script.submit(app, 2, naps=60)
            working = asyncio.create_task(app.run_until_idle())
            await script.entered.wait()
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working
            statement = "SELECT count(*) FROM agentruns.runs WHERE lease_attempt_id IS NOT NULL"
            count = await app.store.read(lambda work: work.connection.exec_driver_sql(statement).scalar_one())
            assert count == 0

    run(work())


def test_a_database_that_does_not_answer_is_an_error_and_not_idleness(script: Script, owner_url: str, run: Run) -> None:
    async def work() -> None:
        brief = StoreOptions(lock_timeout=timedelta(milliseconds=200), statement_timeout=timedelta(seconds=10))
        async with script.deployment.open(script.url, tenant="a", options=brief) as app:
            await script.submit(app, 1)
            async with Stranger(owner_url).locking("runs"):
                with pytest.raises(StoreUnavailableError):
                    await app.run_until_idle()
            assert (await app.run_until_idle()).outcomes == {SUCCEEDED: 1}

    run(work())
