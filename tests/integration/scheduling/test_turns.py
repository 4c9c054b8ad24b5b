"""Which tenant's run is started next, by rotation and by a shared cycle, as the journals of real workers show it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.fairness import TenantFairnessPolicy
from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.scalars import ShardId, TenantId
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import IdConflictError, InvalidOptionError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.deployment import Deployment
from agentruns.runtime.deployment_open import OpenDeployment
from agentruns.runtime.fair_shard import FairShard
from agentruns.runtime.graph_builder import GraphBuilder
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.tenant_turns import FairTurns, TenantRotation
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_options import AgentWorkerOptions

Run = Callable[[Coroutine[Any, Any, Any]], Any]

A, B, C = TenantId("a"), TenantId("b"), TenantId("c")
ANY = {"type": "object"}
ONE_SLOT = AgentWorkerOptions(slots=1, poll_interval=timedelta(milliseconds=20), supervision_interval=None)


class Served:
    """A deployment whose only node notes whose run it is."""

    def __init__(self) -> None:
        self.tenants: list[str] = []
        self.deployment = Deployment(issuer="https://example.com/", subject="turns")
        graph = GraphBuilder("turn", "1.0.0", input=ANY, state=ANY, output=ANY)

        @graph.node(entry=True, terminal=True)
        async def note(context: Any) -> Finish:
            self.tenants.append(context.tenant_id.text)
            return Finish({})

        self.graph = self.deployment.add(graph)

    @asynccontextmanager
    async def opened(self, url: str, *tenants: TenantId) -> AsyncIterator[OpenDeployment]:
        async with self.deployment.open(url, tenant=tenants) as app:
            yield app

    async def submit(self, app: OpenDeployment, counts: Mapping[TenantId, int]) -> dict[TenantId, list[RunId]]:
        """Submit that many runs of each tenant, the first tenant's first."""
        runs: dict[TenantId, list[RunId]] = {}
        for tenant, count in counts.items():
            for _ in range(count):
                key = AgentSubmissionKey.generate()
                admitted = await app.runs.submit(key, app.request(self.graph, input={}, tenant=tenant))
                runs.setdefault(tenant, []).append(admitted.snapshot.provenance.run_id)
        return runs

    async def until(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.tenants) < count:  # the worker is another task
                await asyncio.sleep(0.01)


@pytest.fixture
def served() -> Served:
    return Served()


@pytest.mark.parametrize("are_named", [True, False], ids=["named", "found"])
def test_SCH_16_a_backlog_of_one_tenant_delays_anothers_run_by_one_turn(
    served: Served, database_url: str, run: Run, *, are_named: bool
) -> None:
    async def work() -> None:
        async with served.opened(database_url, A, B, C) as app:
            await served.submit(app, {A: 12, C: 2, B: 1})
            tenants = app.tenants if are_named else None
            worker = AgentWorker(app.store, app.graphs.executables, tenants=tenants, options=ONE_SLOT)
            assert (await worker.run_until_idle()).outcomes == {AgentLoopOutcome.SUCCEEDED: 15}
        assert "".join(served.tenants) == "abcacaaaaaaaaaa"

    run(work())


def test_rotation_deals_idle_slots_to_who_has_work_in_turns(served: Served, database_url: str, run: Run) -> None:
    async def work() -> None:
        async with served.opened(database_url, A, B, C) as app:
            turns = TenantRotation(app.discovery, [C, A, B])
            assert await turns.deal(5) == {}
            await served.submit(app, {A: 1, C: 1})
            assert await turns.deal(3) == {A: 2, C: 1}
            assert await turns.deal(1) == {C: 1}
            await served.submit(app, {B: 1})
            assert await turns.deal(4) == {A: 2, B: 1, C: 1}
            assert await TenantRotation(app.discovery, [B]).deal(7) == {B: 7}
            found = TenantRotation(app.discovery)
            assert [await found.deal(idle) for idle in (2, 2, 5)] == [{A: 1, B: 1}, {C: 1, A: 1}, {B: 2, C: 2, A: 1}]

    run(work())


def test_SCH_01_a_tenant_has_work_exactly_when_a_claim_would_find_some(
    served: Served, database_url: str, run: Run
) -> None:
    async def work() -> None:
        async with served.opened(database_url, A, B, C) as app:
            digests = app.graphs.executables.graph_digests

            async def ready(tenants: Sequence[TenantId] = (A, B, C)) -> tuple[TenantId, ...]:
                return await app.discovery.ready_among(tenants)

            runs = await served.submit(app, {A: 1, B: 1})
            assert await ready() == (A, B)
            assert await ready((B, A)) == (B, A)
            assert await app.store.read(lambda work: work.discovery.ready_among((A, B), [])) == ()
            held = await app.store.claim(A, runs[A][0], AttemptId.generate())
            assert await ready() == (B,)
            await app.store.release(held.fence, delay=timedelta(minutes=1))
            assert await ready() == (B,)
            (held,) = await app.store.claim_ready(B, 1, attempt_ids=[AttemptId.generate()], graph_digests=digests)
            assert await ready() == ()
            await app.store.release(held.fence)
            assert await ready() == (B,)

    run(work())


def test_SCH_04_the_shared_cycle_starts_runs_in_its_order(served: Served, database_url: str, run: Run) -> None:
    async def work() -> None:
        async with served.opened(database_url, A, B) as app:
            shard = FairShard(app.store, ShardId("main"), TenantFairnessPolicy.of({"a": 3, "b": 1}))
            await served.submit(app, {B: 4, A: 12})
            async with app.worker(ONE_SLOT, fairness=shard):
                await served.until(16)
        assert "".join(served.tenants) == "aaba" * 4

    run(work())


def test_SCH_06_workers_that_share_a_cycle_keep_its_proportion_together(
    served: Served, database_url: str, run: Run
) -> None:
    async def work() -> None:
        async with served.opened(database_url, A, B) as app:
            await served.submit(app, {B: 30, A: 60})
            policy = TenantFairnessPolicy.of({"a": 3, "b": 1})
            workers = [app.worker(ONE_SLOT, fairness=FairShard(app.store, ShardId("main"), policy)) for _ in range(3)]
            async with workers[0], workers[1], workers[2]:
                await served.until(40)
        # Three workers may have reserved one turn each that is not yet started.
        assert abs(served.tenants[:40].count("a") - 30) <= 3

    run(work())


def test_fair_turns_pass_over_who_has_no_work_and_reserve_nothing_for_nobody(
    served: Served, database_url: str, run: Run
) -> None:
    async def work() -> None:
        async with served.opened(database_url, A, B) as app:
            policy = TenantFairnessPolicy.of({"a": 3, "b": 1, "elsewhere": 5})
            shard = FairShard(app.store, ShardId("main"), policy)
            turns = FairTurns(app.discovery, [A, B], shard=shard)
            assert await turns.deal(3) == {}
            await served.submit(app, {B: 1})
            assert await turns.deal(2) == {B: 2}
            await served.submit(app, {A: 1})
            assert await turns.deal(4) == {A: 3, B: 1}
            statement = "SELECT count(*) FROM agentruns.scheduler_fairness_reservations"
            assert await app.store.run(lambda work: work.connection.exec_driver_sql(statement).scalar_one()) == 6

    run(work())


def test_a_worker_with_other_weights_than_the_shard_ends_and_claims_nothing(
    served: Served, database_url: str, run: Run
) -> None:
    async def work() -> None:
        async with served.opened(database_url, A, B) as app:
            await FairShard(app.store, ShardId("main"), TenantFairnessPolicy.of({"a": 1, "b": 1})).publish()
            await served.submit(app, {A: 1})
            shard = FairShard(app.store, ShardId("main"), TenantFairnessPolicy.of({"a": 2, "b": 1}))
            with pytest.raises(IdConflictError) as refused:
                await app.make_worker(ONE_SLOT, fairness=shard).run(ShutdownSignal())
            assert refused.value.kind == "fairness_policy"
        assert served.tenants == []

    run(work())


def test_a_worker_for_a_tenant_without_a_weight_is_refused(served: Served, database_url: str, run: Run) -> None:
    async def work() -> None:
        async with served.opened(database_url, A, C) as app:
            shard = FairShard(app.store, ShardId("main"), TenantFairnessPolicy.of({"a": 3, "b": 1}))
            with pytest.raises(InvalidOptionError) as refused:
                app.make_worker(ONE_SLOT, fairness=shard)
            assert (refused.value.option, refused.value.reason, refused.value.value) == ("tenants", "no_weight", "c")

    run(work())
