"""Submissions and reads over a wire that breaks, on connections that are ended: the same key converges to one run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.admission import AgentAdmissionBudgetLayer
from agentruns.domain.submission import (
    AgentRunIds,
    DurableAgentAdmissionRequest,
    MutationOutcome,
    key_digest,
    keyless_digest,
)
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import CommitOutcomeUnknownError, StoreUnavailableError
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import StoreOptions
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, DriveWorld, chain
from agentruns.testing.faults import WireProxy

Behind = Callable[..., None]

COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT
ADMITTED = b"agent-admitted"
GRAPH = chain(a=lambda _context: None)
COUNTS = "SELECT (SELECT count(*) FROM agentruns.runs), (SELECT count(*) FROM agentruns.agent_submission_keys)"


def fresh() -> AgentSubmissionKey:
    return AgentSubmissionKey.generate()


def request(*, deadline: Timestamp = Timestamp.STORED_MAX, n: int = 0) -> DurableAgentAdmissionRequest:
    graph = GRAPH.graph
    return samples.admission_request(
        ids=AgentRunIds.generate(),
        descriptor=samples.agent(input_schema=graph.input_schema, output_schema=graph.output_schema),
        request=samples.agent_request(input={"n": n}, input_schema=graph.input_schema),
        budget_layers=(AgentAdmissionBudgetLayer.system_default(deadline=deadline),),
        graph=graph.reference,
        initial_state=samples.graph_state({}, schema=graph.state_schema),
    )


async def counts(world: DriveWorld) -> tuple[int, int]:
    """Count runs and keys."""
    (row,) = await world.rows(COUNTS)
    return tuple(row)


async def passed(world: DriveWorld, instant: Timestamp) -> None:
    """Return when the database's clock has passed an instant."""
    await world.rows("SELECT pg_sleep_until(:instant)", instant=instant.to_datetime())


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_A5_a_submit_whose_answers_are_lost_is_found_by_its_key_even_after_the_deadline(
    behind_a_wire: Behind, lost: int
) -> None:
    async def work(world: DriveWorld, proxy: WireProxy) -> None:
        deadline = world.store.clock.stamp().plus(timedelta(seconds=4))
        key, first = fresh(), request(deadline=deadline)
        for _ in range(lost):
            proxy.lose_answer(ADMITTED)
        if lost < StoreOptions().attempts:
            admitted = await world.runs.submit(key, first)
            assert (admitted.outcome, admitted.snapshot.provenance.run_id) == (IDEMPOTENT, first.run_id)
        else:
            with pytest.raises(CommitOutcomeUnknownError) as doubt:
                await world.runs.submit(key, first)
            assert (doubt.value.attempts, doubt.value.retryable) == (lost, True)
        assert proxy.lost == lost
        again = await world.runs.submit(key, request(deadline=deadline))
        assert (again.outcome, again.snapshot.provenance.run_id) == (IDEMPOTENT, first.run_id)
        await passed(world, deadline)
        late = await world.runs.submit(key, request(deadline=deadline))
        assert (late.outcome, late.snapshot) == (IDEMPOTENT, again.snapshot)
        # In the application's transaction, and by a process that has just been started, the same.
        engine = create_async_engine(proxy.url, poolclass=NullPool)
        async with engine.begin() as connection, AgentRunStore(proxy.url) as store:
            for session in (connection, None):
                runs = DurableAgentRuns(store, world.executables)
                assert await runs.submit(key, request(deadline=deadline), session=session) == late
        await engine.dispose()
        assert await counts(world) == (1, 1)

    behind_a_wire(work, GRAPH)


def test_A5_an_insert_that_never_arrives_is_sent_again(behind_a_wire: Behind) -> None:
    async def work(world: DriveWorld, proxy: WireProxy) -> None:
        key, first = fresh(), request()
        held = proxy.hold(ADMITTED)
        submitting = asyncio.create_task(world.runs.submit(key, first))
        await held.arrived.wait()
        proxy.take_down()
        proxy.bring_up()
        admitted = await submitting
        assert (admitted.outcome, admitted.snapshot.provenance.run_id) == (COMMITTED, first.run_id)
        # What was cut may come late: the key is taken by then.
        held.let_go()
        assert (await world.runs.submit(key, request())).snapshot == admitted.snapshot
        assert await counts(world) == (1, 1)

    behind_a_wire(work, GRAPH)


def test_H5_a_set_whose_answer_is_lost_leaves_every_item_its_own(behind_a_wire: Behind) -> None:
    async def work(world: DriveWorld, proxy: WireProxy) -> None:
        taken = fresh()
        await world.runs.submit(taken, request(n=1))
        async with AgentRunStore(proxy.url, StoreOptions(pool_size=1, lane_connections=1)) as store:
            runs = DurableAgentRuns(store, world.executables)
            proxy.lose_answer(ADMITTED)
            asked = {fresh(): request() for _ in range(20)}
            calls = [runs.submit(key, each) for key, each in asked.items()]
            calls.append(runs.submit(taken, request(n=1)))
            *answers, other = await asyncio.gather(*calls)
        assert proxy.lost == 1
        assert other.outcome is IDEMPOTENT
        # The commit was one, so all of the set find what it made.
        assert Counter(each.outcome for each in answers) == {IDEMPOTENT: 20}
        assert [each.snapshot.provenance.run_id for each in answers] == [each.run_id for each in asked.values()]
        assert await counts(world) == (21, 21)

    behind_a_wire(work, GRAPH)


def test_H5_an_attach_whose_answer_is_lost_is_idempotent(behind_a_wire: Behind) -> None:
    async def work(world: DriveWorld, proxy: WireProxy) -> None:
        async with AgentRunStore(proxy.url, StoreOptions(pool_size=1)) as store:
            runs = DurableAgentRuns(store, world.executables)
            keyless, key = request(), fresh()
            await runs.admit(keyless)
            proxy.lose_answer(keyless_digest(TENANT, keyless.run_id).hex.encode())
            attached = await runs.submit(key, keyless)
            assert proxy.lost == 1
            assert (attached.outcome, attached.snapshot.provenance.run_id) == (IDEMPOTENT, keyless.run_id)
            assert await runs.load_by_key(TENANT, key) == attached.snapshot
        assert await counts(world) == (1, 2)

    behind_a_wire(work, GRAPH)


@pytest.mark.parametrize("by", ["run", "key"])
def test_H5_a_read_whose_answer_is_lost_is_read_again(behind_a_wire: Behind, by: str) -> None:
    async def work(world: DriveWorld, proxy: WireProxy) -> None:
        key, asked = fresh(), request()
        admitted = await world.runs.submit(key, asked)
        run_id = asked.run_id
        needle = key_digest(TENANT, key).hex.encode() if by == "key" else run_id.text.encode()
        for _ in range(2):
            proxy.lose_answer(needle)
            proxy.lose_answer(needle)
            load = world.runs.load_by_key(TENANT, key) if by == "key" else world.runs.load(TENANT, run_id)
            assert await load == admitted.snapshot
        assert proxy.lost == 4

    behind_a_wire(work, GRAPH)


def test_a_database_that_stays_away_answers_retryable_and_the_same_key_works_afterwards(behind_a_wire: Behind) -> None:
    async def work(world: DriveWorld, proxy: WireProxy) -> None:
        key, asked = fresh(), request()
        proxy.take_down()
        for call in (world.runs.submit(key, asked), world.runs.load(TENANT, asked.run_id)):
            with pytest.raises((StoreUnavailableError, CommitOutcomeUnknownError)) as away:
                await call
            assert away.value.retryable
            assert f"attempts={StoreOptions().attempts}" in str(away.value)
            assert key.text not in f"{away.value!r} {away.value}"
        proxy.bring_up()
        admitted = await world.runs.submit(key, request())
        assert admitted.outcome is COMMITTED
        assert await counts(world) == (1, 1)

    behind_a_wire(work, GRAPH)


async def waiting_for(connection: AsyncConnection, pid: int) -> int:
    """Return the server's process of a statement that waits for the transaction of ``pid``."""
    waiting = text("SELECT pid FROM pg_stat_activity WHERE :pid = ANY (pg_blocking_pids(pid))")
    async with asyncio.timeout(30):
        while (found := (await connection.execute(waiting, {"pid": pid})).scalars().first()) is None:
            await asyncio.sleep(0.005)
    return int(found)


@pytest.mark.parametrize("commits", [True, False])
def test_a_submit_that_waits_survives_the_end_of_its_connection(behind_a_wire: Behind, *, commits: bool) -> None:
    async def work(world: DriveWorld, _proxy: WireProxy) -> None:
        key = fresh()
        engine = create_async_engine(world.url, poolclass=NullPool)
        async with engine.connect() as theirs, engine.connect() as referee:
            await referee.execution_options(isolation_level="AUTOCOMMIT")
            first = await world.runs.submit(key, request(), session=theirs)
            pid = (await theirs.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            ours = asyncio.create_task(world.runs.submit(key, request()))
            ended = await waiting_for(referee, pid)
            assert (await referee.execute(text(f"SELECT pg_terminate_backend({ended}, 5000)"))).scalar_one()
            assert await waiting_for(referee, pid) != ended
            await (theirs.commit() if commits else theirs.rollback())
            answer = await ours
            assert answer.outcome is (IDEMPOTENT if commits else COMMITTED)
            assert (answer.snapshot == first.snapshot) is commits
        await engine.dispose()
        assert await counts(world) == (1, 1)

    behind_a_wire(work, GRAPH)
