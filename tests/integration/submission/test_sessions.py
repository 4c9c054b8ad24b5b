"""What may be passed as a session, and what is refused."""

from __future__ import annotations

import gc
from collections.abc import Callable, Coroutine
from typing import Any

import asyncpg
import pytest
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from agentruns.domain.submission import MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import (
    AgentSubmissionConflictError,
    UnitOfWorkError,
)
from agentruns.runtime.joined import JoinedAgentRuns

Run = Callable[[Coroutine[Any, Any, Any]], Any]


COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT


ONE_RUN = {"agent_admissions": 1, "agent_submission_keys": 1, "run_checkpoints": 1, "run_events": 1, "runs": 1}


def fresh() -> AgentSubmissionKey:
    return AgentSubmissionKey.generate()


def test_SUB_10_every_kind_of_session_gets_the_stated_answer(kit: Any, run: Run) -> None:
    async def work() -> None:
        joined = JoinedAgentRuns(kit.executables)
        async with kit.runs() as runs, kit.engine() as engine:
            async with engine.begin() as connection:
                assert (await runs.submit(fresh(), kit.request(), session=connection)).outcome is COMMITTED
            async with AsyncSession(engine) as session:
                await session.execute(text("SELECT 1"))
                assert (await runs.submit(fresh(), kit.request(), session=session)).outcome is COMMITTED
                await session.commit()

            def synchronous(connection: Connection) -> None:
                assert joined.submit(fresh(), kit.request(), connection).outcome is COMMITTED
                with Session(connection, join_transaction_mode="create_savepoint") as session:
                    assert joined.submit(fresh(), kit.request(), session).outcome is COMMITTED
                    session.commit()

            async with engine.begin() as connection:
                await connection.run_sync(synchronous)
            await refused(kit, runs, joined, engine)

    run(work())
    gc.collect()
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, 4)


async def refused(kit: Any, runs: Any, joined: Any, engine: Any) -> None:
    """A3: each kind that a method does not take is refused by a type error that says what to pass."""
    raw = await asyncpg.connect(dsn=engine.url.set(drivername="postgresql").render_as_string(hide_password=False))
    async with engine.connect() as connection, AsyncSession(engine) as session:
        for given in (raw, session.sync_session, connection.sync_connection, object(), engine):
            with pytest.raises(TypeError, match="AsyncSession or AsyncConnection"):
                await runs.submit(fresh(), kit.request(), session=given)
            with pytest.raises(TypeError, match="AsyncSession or AsyncConnection"):
                await runs.load(kit.request().tenant_id, kit.request().run_id, session=given)
        for given in (raw, session, connection, object()):
            with pytest.raises(TypeError, match="Session or Connection"):
                joined.submit(fresh(), kit.request(), given)
    await raw.close()


def test_SUB_10_autocommit_is_refused(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine(isolation_level="AUTOCOMMIT") as engine, engine.connect() as opened:
            for call in (
                runs.submit(fresh(), kit.request(), session=opened),
                runs.admit(kit.request(), session=opened),
                runs.load(kit.request().tenant_id, kit.request().run_id, session=opened),
            ):
                with pytest.raises(UnitOfWorkError) as refusal:
                    await call
                assert refusal.value.reason == "autocommit"

    run(work())
    assert run(kit.rows()) == {}


def test_SUB_10_a_read_only_transaction_is_refused_but_known_evidence_wins(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine:
            key, known, keyless = fresh(), kit.request(), kit.request(input={"n": 2})
            await runs.submit(key, known)
            await runs.admit(keyless)
            async with engine.connect() as connection, connection.begin():
                await connection.execute(text("SET TRANSACTION READ ONLY"))
                for each, request in ((fresh(), kit.request()), (fresh(), keyless)):
                    with pytest.raises(UnitOfWorkError) as refusal:
                        await runs.submit(each, request, session=connection)
                    assert refusal.value.reason == "read_only"
                assert (await runs.submit(key, known, session=connection)).outcome is IDEMPOTENT
                assert (await runs.admit(keyless, session=connection)).outcome is IDEMPOTENT
                with pytest.raises(AgentSubmissionConflictError):
                    await runs.submit(key, keyless, session=connection)
                assert (await connection.execute(text("SELECT 1"))).scalar_one() == 1

    run(work())
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, 2)
