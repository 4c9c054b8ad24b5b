"""What a client finds of a run that was driven by the library, before and after it was removed, and in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.util import await_only

from agentruns.domain.admission import AgentAdmissionBudgetLayer
from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import RunId
from agentruns.domain.status import RunStatus
from agentruns.domain.submission import AgentRunIds, DurableAgentAdmissionRequest, MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import AgentSubmissionNotFoundError, NodeFailedError, RunNotFoundError
from agentruns.operations.retention import RetentionBatch, RetentionPolicy, remove_runs
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.store.retention import FIRST, LAST, Retention, Terms
from agentruns.store.statements.retention import TABLES
from agentruns.store.unit_of_work import UnitOfWork
from agentruns.testing import samples
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import TENANT, DriveWorld, chain

InWorld = Callable[..., None]

HOUR = timedelta(hours=1)
POLICY = RetentionPolicy(keep_succeeded=HOUR, keep_failed=HOUR, keep_cancelled=HOUR, retry_guarantee=HOUR)
#: What no policy can say, for a run that ended just now and whose evidence stays as it is.
AT_ONCE = Terms(
    tenant_id=TENANT,
    keeps={status: timedelta(0) for status in RunStatus if status.is_terminal},
    keep_isolated=timedelta(0),
    policy=b"{}",
)
KEY = AgentSubmissionKey("0123456789abcdef")


def graph(*, fails: bool = False) -> GraphBundle:
    async def last(_context: Any) -> Finish:
        if fails:
            raise NodeFailedError(failure=samples.failure())
        return Finish({"answer": 42})

    return chain(a=lambda _context: {}, b=last)


def request_of(world: DriveWorld) -> DurableAgentAdmissionRequest:
    """Ask for the same work with fresh ids."""
    pinned = world.bundle.graph
    return samples.admission_request(
        ids=AgentRunIds.generate(),
        descriptor=samples.agent(input_schema=pinned.input_schema, output_schema=pinned.output_schema),
        request=samples.agent_request(input={}, input_schema=pinned.input_schema),
        budget_layers=(AgentAdmissionBudgetLayer.system_default(),),
        graph=pinned.reference,
        initial_state=samples.graph_state({}, schema=pinned.state_schema),
    )


async def submitted(world: DriveWorld) -> tuple[MutationOutcome, RunId]:
    admitted = await world.runs.submit(KEY, request_of(world))
    return admitted.outcome, admitted.snapshot.provenance.run_id


async def ended(world: DriveWorld, status: str = "succeeded") -> RunId:
    """Submit a run and bring it to its end."""
    outcome, run_id = await submitted(world)
    assert outcome is MutationOutcome.COMMITTED
    if status == "cancelled":
        await request_cancellation(world, run_id)
    await world.driven(run_id)
    assert (await world.loaded(run_id)).status is RunStatus(status)
    return run_id


async def age(world: DriveWorld, run_id: RunId) -> None:
    """Let a run have ended two hours ago; for retention the run row alone counts."""
    await world.rows(
        "UPDATE agentruns.runs SET changed_at = changed_at - interval '2 h' WHERE run_id = :run_id", run_id=run_id.text
    )


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[AsyncConnection]:
    engine = create_async_engine(url, poolclass=NullPool)
    async with engine.connect() as connection:
        yield connection
    await engine.dispose()


async def removed(world: DriveWorld) -> list[int]:
    async with connected(world.url) as connection:
        steps = await connection.run_sync(lambda sync: list(remove_runs(sync, POLICY, tenant_id=TENANT)))
    return [step.run_count for step in steps if isinstance(step, RetentionBatch)]


@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled"])
def test_L3_after_the_guarantee_run_and_key_go_together_and_the_key_admits_a_new_run(
    in_world: InWorld, status: str
) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await ended(world, status)
        assert await removed(world) == []
        assert await submitted(world) == (MutationOutcome.IDEMPOTENT, run_id)
        await age(world, run_id)
        assert await removed(world) == [1]
        with pytest.raises(RunNotFoundError):
            await world.runs.load(TENANT, run_id)
        with pytest.raises(AgentSubmissionNotFoundError):
            await world.runs.load_by_key(TENANT, KEY)
        each = "SELECT '{0}' AS name FROM agentruns.{0}"
        assert await world.rows(" UNION ALL ".join(each.format(name) for name in TABLES)) == []
        outcome, new = await submitted(world)
        assert outcome is MutationOutcome.COMMITTED
        assert new != run_id
        await world.driven(new)
        assert (await world.loaded(new)).status is RunStatus("failed" if status == "failed" else "succeeded")

    in_world(work, graph(fails=status == "failed"))


@pytest.mark.parametrize("commits", [True, False])
def test_a_retry_waits_for_the_removal_of_its_run(in_world: InWorld, *, commits: bool) -> None:
    """It is a new run when the removal is committed, and the old one when it is not."""

    async def work(world: DriveWorld) -> None:
        run_id = await ended(world)
        async with connected(world.url) as connection, connected(world.url) as admin:
            transaction = await connection.begin()
            await connection.run_sync(_remove_within)
            retry = asyncio.create_task(submitted(world))
            await somebody_waits(admin)
            await (transaction.commit() if commits else transaction.rollback())
            outcome, found = await retry
        assert outcome is (MutationOutcome.COMMITTED if commits else MutationOutcome.IDEMPOTENT)
        assert (found == run_id) is not commits

    in_world(work, graph())


@pytest.mark.parametrize("is_joined", [True, False])
@pytest.mark.parametrize("commits", [True, False])
def test_a_key_for_a_run_that_is_being_removed_waits_and_finds_what_is_left(
    in_world: InWorld, *, commits: bool, is_joined: bool
) -> None:
    """The removal leaves nothing to attach to, so the same request admits anew; a caller's transaction stays usable."""

    async def work(world: DriveWorld) -> None:
        request = request_of(world)
        await world.runs.admit(request)
        await world.driven(request.run_id)
        async with connected(world.url) as removing, connected(world.url) as joined, connected(world.url) as admin:
            transaction = await removing.begin()
            await removing.run_sync(_remove_within)
            attaching = asyncio.create_task(world.runs.submit(KEY, request, session=joined if is_joined else None))
            await somebody_waits(admin)
            await (transaction.commit() if commits else transaction.rollback())
            answer = await attaching
            await joined.commit()
        assert answer.outcome is MutationOutcome.COMMITTED
        assert answer.snapshot.status is (RunStatus.ACTIVE if commits else RunStatus.SUCCEEDED)
        assert await world.runs.load_by_key(TENANT, KEY) == answer.snapshot

    in_world(work, graph())


def test_a_retry_whose_run_goes_between_its_probe_and_its_load_starts_again(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await ended(world)
        await age(world, run_id)
        engine = create_async_engine(world.url, poolclass=NullPool)
        sent: list[str] = []

        def before(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            sent.append(statement)
            if len(sent) == 2:
                # The probe has found the key. What it found is removed before the load is sent.
                assert await_only(removed(world)) == [1]

        event.listen(engine.sync_engine, "before_cursor_execute", before)
        async with engine.begin() as connection:
            admitted = await world.runs.submit(KEY, request_of(world), session=connection)
        await engine.dispose()
        assert admitted.outcome is MutationOutcome.COMMITTED
        assert admitted.snapshot.provenance.run_id != run_id
        assert (await world.runs.load_by_key(TENANT, KEY)).provenance == admitted.snapshot.provenance
        assert "agent_submission_keys" in sent[0]

    in_world(work, graph())


def _remove_within(connection: Any) -> None:
    """Remove in the transaction that is open."""
    retention = Retention(UnitOfWork(connection))
    retention.permit("agentruns")
    batch = retention.remove(AT_ONCE, "ended", after=FIRST, until=LAST)
    assert batch is not None
    assert batch.run_count == 1


async def somebody_waits(admin: AsyncConnection) -> None:
    query = text("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")
    async with asyncio.timeout(20):
        while not (await admin.execute(query)).first():  # it happens in the server
            await admin.rollback()
            await asyncio.sleep(0.01)
