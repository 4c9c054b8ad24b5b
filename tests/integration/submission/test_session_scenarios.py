"""An application's own session around a submission, and texts that no column of text could hold."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from attrs import asdict, evolve
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from agentruns.domain.canonical import JsonTree
from agentruns.domain.graph.returns import Finish
from agentruns.domain.outcome import SucceededOutcome
from agentruns.domain.scalars import TenantId
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import InvalidValueError, UnitOfWorkError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.store.transient import sqlstate_of
from agentruns.testing.drives import DriveWorld, chain
from agentruns.testing.samples import cancellation, graph_state

Run = Callable[[Coroutine[Any, Any, Any]], Any]
InWorld = Callable[..., None]

COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT
ONE_RUN = {"agent_admissions": 1, "agent_submission_keys": 1, "run_checkpoints": 1, "run_events": 1, "runs": 1}
MANY = 200
NUL: dict[str, JsonTree] = {"t": "a\0b", "k\0": "\0"}
NUL_BYTES = b'{"k\\u0000":"\\u0000","t":"a\\u0000b"}'


def fresh() -> AgentSubmissionKey:
    return AgentSubmissionKey.generate()


def test_O1_what_was_answered_needs_no_session(kit: Any, run: Run) -> None:
    async def work() -> None:
        key, request = fresh(), kit.request()
        async with kit.runs() as runs, kit.engine() as engine:
            async with AsyncSession(engine) as session:
                assert session.sync_session.expire_on_commit
                admitted = await runs.submit(key, request, session=session)
                await session.commit()
            read = await runs.load_by_key(request.tenant_id, key)
        # Every attribute of every part of it, with the engine gone.
        assert asdict(admitted.snapshot) == asdict(read)
        assert (admitted.snapshot, admitted.outcome) == (read, COMMITTED)
        with pytest.raises(AttributeError):
            admitted.snapshot.status = None
        # It is no row of an object that some session follows.
        assert not hasattr(admitted.snapshot, "_sa_instance_state")

    run(work())


def test_O6_a_session_that_has_read_works_and_one_that_cannot_commit_is_refused(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine, kit.engine(isolation_level="AUTOCOMMIT") as automatic:
            async with AsyncSession(engine) as session:
                await session.execute(text("SELECT count(*) FROM agentruns.runs"))
                assert (await runs.submit(fresh(), kit.request(), session=session)).outcome is COMMITTED
                await session.commit()
            async with AsyncSession(automatic) as session:
                with pytest.raises(UnitOfWorkError) as refused:
                    await runs.submit(fresh(), kit.request(), session=session)
                assert refused.value.reason == "autocommit"
            async with AsyncSession(engine) as session:
                await session.execute(text("SET TRANSACTION READ ONLY"))
                with pytest.raises(UnitOfWorkError) as refused:
                    await runs.submit(fresh(), kit.request(), session=session)
                assert refused.value.reason == "read_only"
                assert (await session.execute(text("SELECT 1"))).scalar_one() == 1

    run(work())
    assert run(kit.rows()) == ONE_RUN


def test_N5_the_last_of_two_hundred_submits_in_one_transaction_costs_what_the_first_does(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine, AsyncSession(engine) as session:
            sent, costs = kit.sent(engine), []
            for number in range(MANY):
                before = len(sent)
                await runs.submit(fresh(), kit.request(input={"n": number}), session=session)
                costs.append(len(sent) - before)
            assert session.get_nested_transaction() is None
            # A subtransaction would have an id of its own above that of the whole.
            written = await session.execute(text("SELECT count(DISTINCT xmin::text) FROM agentruns.run_events"))
            assert written.scalar_one() == 1
            assert not any("SAVEPOINT" in statement.upper() for statement in sent)
            assert set(costs[1:]) == {costs[-1]}
            assert costs[0] <= costs[-1] + 1
            await session.commit()

    run(work())
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, MANY)


def test_K1_a_nul_lives_in_documents_and_nowhere_else(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        request = world.request(NUL)
        initial = graph_state(NUL, schema=world.bundle.graph.state_schema)
        request, key = evolve(request, initial_state=initial), fresh()
        for outcome in (COMMITTED, IDEMPOTENT):
            assert (await world.runs.submit(key, request)).outcome is outcome
        assert (await world.driven(request.run_id)).outcome is AgentLoopOutcome.SUCCEEDED
        ended = (await world.loaded(request.run_id)).outcome
        assert isinstance(ended, SucceededOutcome)
        assert ended.result.output.value == NUL
        states = await world.rows("SELECT state FROM agentruns.run_checkpoints ORDER BY superstep")
        assert [row.state for row in states] == [NUL_BYTES] * 3
        # Views open on it, and say what JSON is; only a text of it cannot be.
        views = await world.rows(
            "SELECT table_name AS name FROM information_schema.views WHERE table_schema = 'agentruns'"
        )
        for view in views:
            await world.rows(f"SELECT * FROM agentruns.{view.name}")  # noqa: S608  # our own names
        shown = await world.rows("SELECT document::text AS document FROM agentruns.run_checkpoints_json")
        assert NUL_BYTES.decode() in [row.document for row in shown]
        for extract in ("document->>'t'", "document::jsonb"):
            with pytest.raises(DBAPIError) as refused:
                await world.rows(f"SELECT {extract} FROM agentruns.run_checkpoints_json WHERE superstep > 0")  # noqa: S608
            assert sqlstate_of(refused.value) == "22P05"

    in_world(work, chain(a=lambda _context: dict(NUL), b=lambda context: Finish({**context.state})))


def test_K1_no_name_and_no_message_holds_a_nul() -> None:
    for make in (lambda: TenantId("a\0b"), lambda: cancellation(message="a\0b")):
        with pytest.raises(InvalidValueError):
            make()
