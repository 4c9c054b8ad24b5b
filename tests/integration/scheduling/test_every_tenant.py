"""A worker that was told of nobody: it serves whoever has work or something due, those that come later too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import define, field
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.canonical import JsonTree
from agentruns.domain.fairness import TenantFairnessPolicy
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import RunId
from agentruns.domain.scalars import ShardId, TenantId
from agentruns.domain.status import RunStatus
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.waits import AnyNodeWait, NodeWait
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.deployment import Deployment
from agentruns.runtime.deployment_open import OpenDeployment
from agentruns.runtime.fair_shard import FairShard
from agentruns.runtime.graph_builder import GraphBuilder
from agentruns.runtime.supervision import Supervision
from agentruns.runtime.supervisor import DurableRunSupervisor, SupervisionCursor, SupervisionTick
from agentruns.runtime.worker_options import AgentWorkerOptions

Run = Callable[[Coroutine[Any, Any, Any]], Any]

ANY = {"type": "object"}
HOUR = timedelta(hours=1)
PATIENCE = timedelta(seconds=40)
OPTIONS = AgentWorkerOptions(
    slots=2, poll_interval=timedelta(milliseconds=20), supervision_interval=timedelta(milliseconds=100)
)


@define
class Service:
    """A deployment whose runs wait as their input says, and an application that submits runs of any tenant."""

    url: str
    owner_url: str
    deployment: Deployment = field(init=False)
    graph: GraphBuilder = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.deployment = Deployment(issuer="https://example.com/", subject="every-tenant")
        self.graph = self.deployment.add(GraphBuilder("waits", "1.0.0", input=ANY, state=ANY, output=ANY))

        @self.graph.node(entry=True, then="last", wait_to="last")
        async def first(context: Any) -> Any:
            wait = self._wait(context.state.get("wait"))
            return {} if wait is None else Suspend(wait)

        @self.graph.node(terminal=True)
        async def last(_context: Any) -> Finish:
            return Finish({})

    @staticmethod
    def _wait(asked: str | None) -> AnyNodeWait | None:
        waits = {
            "timer": lambda: NodeWait.timer(due_in=timedelta(seconds=1.5)),
            "late timer": lambda: NodeWait.timer(due_in=HOUR),
        }
        return None if asked is None else waits[asked]()

    def of_every_tenant(self) -> AbstractAsyncContextManager[OpenDeployment]:
        return self.deployment.open(self.url)

    async def submit(
        self, *tenants: str, wait: str | None = None, limits: BudgetLimits | None = None
    ) -> dict[str, RunId]:
        """Submit a run of each tenant as another process does, which gives them the graph."""
        given: dict[str, JsonTree] = {} if wait is None else {"wait": wait}
        async with self.deployment.open(self.url, tenant=tenants) as app:
            requests = {
                tenant: app.request(self.graph, input=given, tenant=tenant, budget_limits=limits) for tenant in tenants
            }
            for request in requests.values():
                await app.runs.submit(AgentSubmissionKey.generate(), request)
        return {tenant: request.run_id for tenant, request in requests.items()}

    async def execute(self, statement: str, **values: Any) -> None:
        """Change what is stored, behind the library's back."""
        engine = create_async_engine(self.owner_url, poolclass=NullPool)
        async with engine.begin() as connection:
            await connection.execute(text("SET LOCAL session_replication_role = replica"))
            await connection.execute(text(statement), values)
        await engine.dispose()


class Listening(DurableRunSupervisor):
    """Note whose turn it is, and settle one thing in name only."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.asked: list[TenantId] = []

    async def tick(self, tenant_id: TenantId, cursor: SupervisionCursor | None = None) -> SupervisionTick:
        self.asked.append(tenant_id)
        return SupervisionTick(
            cancellations_requested=0, runs_failed=0, timers_fired=1, errors=(), cursor=cursor or SupervisionCursor()
        )


@pytest.fixture
def service(database_url: str, owner_url: str) -> Service:
    return Service(database_url, owner_url)


def test_a_worker_serves_tenants_that_come_after_it_and_wakes_what_they_sleep(service: Service, run: Run) -> None:
    async def work() -> None:
        async with service.of_every_tenant() as app, app.worker(OPTIONS):
            await asyncio.sleep(0.1)  # the worker has looked and found nobody
            for tenant, wait in (("early", None), ("late", "timer")):
                run_ids = await service.submit(tenant, wait=wait)
                snapshot = await app.runs.wait(TenantId(tenant), run_ids[tenant], timeout=PATIENCE)
                assert snapshot.status is RunStatus.SUCCEEDED

    run(work())


def test_a_deadline_of_a_tenant_that_nobody_named_ends_its_run(service: Service, run: Run) -> None:
    async def work() -> None:
        async with service.of_every_tenant() as app:
            async with app.worker(OPTIONS):
                deadline = Timestamp.from_datetime(datetime.now(UTC)).plus(timedelta(seconds=6))
                run_ids = await service.submit("late", wait="late timer", limits=BudgetLimits(deadline=deadline))
                snapshot = await app.runs.wait(TenantId("late"), run_ids["late"], timeout=PATIENCE)
            assert snapshot.status is RunStatus.CANCELLED

    run(work())


def test_tenants_with_something_due_are_those_for_which_a_tick_finds_something(service: Service, run: Run) -> None:
    async def work() -> None:
        due = ["deadline", "expired", "timer", "two"]
        never = ["isolated", "later", "of-another-graph", "over", "ready"]
        async with service.of_every_tenant() as app:
            await service.submit(*due[1:], *never[:-1], wait="late timer")
            await service.submit("two", wait="late timer")
            await app.run_until_idle()
            await service.submit("deadline", "ready")
            await service.execute(
                "UPDATE agentruns.run_waits SET due_at = now() - interval '1 min' WHERE tenant_id <> 'later'"
            )
            await service.execute(
                "UPDATE agentruns.run_waits SET kind = 'approval', due_at = NULL, expires_at = now() - interval '1 min'"
                " WHERE tenant_id = 'expired'"
            )
            # Each run has a deadline, if only the last instant that can be stored: without one only waits can be due.
            await service.execute("UPDATE agentruns.runs SET agent_deadline_at = NULL")
            for tenant, change in {
                "deadline": "agent_deadline_at = now() - interval '1 min'",
                "isolated": "quarantined_at = now(), agent_deadline_at = now() - interval '1 min'",
                "of-another-graph": "graph_definition_digest = sha256('another')",
                "later": "agent_deadline_at = now() + interval '1 h'",
            }.items():
                await service.execute(f"UPDATE agentruns.runs SET {change} WHERE tenant_id = :tenant", tenant=tenant)  # noqa: S608  # stands above
            over = "UPDATE agentruns.run_waits SET status = 'fired', settled_sequence = 99 WHERE tenant_id = 'over'"
            await service.execute(over)
            found = await app.discovery.due_tenants()
            assert found == tuple(map(TenantId, due))
            assert await app.discovery.due_tenants(limit=2) == found[:2]
            assert await app.discovery.due_tenants(after=found[1], limit=2) == found[2:]
            assert await app.discovery.due_tenants(after=found[3]) == ()
            supervisor = DurableRunSupervisor(app.store, app.graphs.executables)
            touched = []
            for tenant in sorted([*due, *never]):
                tick = await supervisor.tick(TenantId(tenant))
                if tick.cancellations_requested + tick.runs_failed + tick.timers_fired + len(tick.errors):
                    touched.append(TenantId(tenant))
            assert tuple(touched) == found

    run(work())


def test_a_round_settles_more_tenants_than_a_page_has(service: Service, run: Run) -> None:
    async def work() -> None:
        async with service.of_every_tenant() as app:
            await service.submit("t0", wait="late timer")
            await app.run_until_idle()
            await service.execute(
                "INSERT INTO agentruns.runs SELECT"
                " (jsonb_populate_record(r, jsonb_build_object('tenant_id', 't' || n))).*"
                " FROM agentruns.runs AS r, generate_series(1, 150) AS s (n)"
            )
            await service.execute(
                "INSERT INTO agentruns.run_waits SELECT (jsonb_populate_record(w,"
                " jsonb_build_object('tenant_id', 't' || n, 'due_at', w.due_at - interval '2 h'))).*"
                " FROM agentruns.run_waits AS w, generate_series(1, 150) AS s (n)"
            )
            supervisor = Listening(app.store, app.graphs.executables)
            assert await Supervision(supervisor, app.discovery, tenants=None, interval=HOUR).round() == 150
            assert [each.text for each in supervisor.asked] == sorted(f"t{n}" for n in range(1, 151))
            assert await Supervision(supervisor, app.discovery, tenants=None, interval=None).round() == 0

    run(work())


def test_with_weights_and_no_tenants_whoever_has_a_weight_is_served_and_nobody_else(service: Service, run: Run) -> None:
    async def work() -> None:
        async with service.of_every_tenant() as app:
            sleeping = await service.submit("stranger", wait="timer")
            await app.run_until_idle(AgentWorkerOptions(supervision_interval=None))
            await asyncio.sleep(1.7)
            run_ids = await service.submit("a", "b", "stranger")
            shard = FairShard(app.store, ShardId("main"), TenantFairnessPolicy.of({"a": 3, "b": 1, "absent": 2}))
            report = await app.run_until_idle(fairness=shard)
            assert report.outcomes == {AgentLoopOutcome.SUCCEEDED: 2}
            assert report.settled_count == 0
            assert await app.discovery.due_tenants() == (TenantId("stranger"),)
            assert (await app.runs.load(TenantId("stranger"), sleeping["stranger"])).status is RunStatus.WAITING
            statuses = {each: (await app.runs.load(TenantId(each), run_ids[each])).status for each in run_ids}
            assert statuses == {"a": RunStatus.SUCCEEDED, "b": RunStatus.SUCCEEDED, "stranger": RunStatus.ACTIVE}

    run(work())
