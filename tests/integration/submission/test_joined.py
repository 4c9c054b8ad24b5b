"""Submissions inside a caller's transaction: nothing of it is touched, and it always stays usable."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from sqlalchemy import Text, Uuid, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from agentruns.domain.submission import MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import (
    AgentAdmissionConflictError,
    AgentSubmissionConflictError,
    AgentSubmissionNotFoundError,
    CorruptDataError,
)

Run = Callable[[Coroutine[Any, Any, Any]], Any]


COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT


ONE_RUN = {"agent_admissions": 1, "agent_submission_keys": 1, "run_checkpoints": 1, "run_events": 1, "runs": 1}


class AppBase(DeclarativeBase):
    """The application's own models."""


class Order(AppBase):
    """A row of the application that names a run of ours."""

    __tablename__ = "app_orders"

    number: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    tenant_id: Mapped[str | None] = mapped_column(Text(collation="C"))
    run_id: Mapped[str | None] = mapped_column(Uuid(as_uuid=False))


CREATE = """CREATE TABLE public.app_orders (number bigint PRIMARY KEY, title text NOT NULL, tenant_id text COLLATE "C",
    run_id uuid, FOREIGN KEY (tenant_id, run_id) REFERENCES agentruns.runs (tenant_id, run_id))"""


async def create_orders(kit: Any) -> None:
    """Migrate the application, which a role of its own does: a runtime may not refer to our tables."""
    async with kit.engine(as_owner=True) as engine, engine.begin() as connection:
        await connection.execute(text(CREATE))
        await connection.execute(text("GRANT ALL ON public.app_orders TO PUBLIC"))


async def orders(engine: Any) -> int:
    async with engine.connect() as connection:
        return int((await connection.execute(text("SELECT count(*) FROM app_orders"))).scalar_one())


def test_SUB_08_a_pool_of_one_without_overflow_suffices(kit: Any, run: Run) -> None:
    async def work() -> None:
        pool = kit.engine(pool_size=1, max_overflow=0, pool_timeout=2)
        async with kit.runs() as runs, pool as engine, AsyncSession(engine) as session:
            await session.execute(text("SELECT 1"))
            admitted = await runs.submit(AgentSubmissionKey.generate(), kit.request(), session=session)
            assert admitted.outcome is COMMITTED
            assert session.get_nested_transaction() is None
            await session.commit()

    run(work())
    assert run(kit.rows()) == ONE_RUN


def test_SUB_09_rows_and_run_commit_or_roll_back_together(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine:
            await create_orders(kit)
            key, request = AgentSubmissionKey.generate(), kit.request()
            for ends_well in (False, True):
                async with AsyncSession(engine) as session:
                    before = await settings(session)
                    admitted = await runs.submit(key, request, session=session)
                    assert admitted.outcome is COMMITTED
                    run_id = str(admitted.snapshot.provenance.run_id)
                    session.add(Order(number=1, title="one", tenant_id=str(request.tenant_id), run_id=run_id))
                    await session.flush()
                    with pytest.raises(AgentSubmissionNotFoundError):
                        await runs.load_by_key(request.tenant_id, key)
                    assert await runs.load(request.tenant_id, request.run_id, session=session) == admitted.snapshot
                    assert await runs.load_by_key(request.tenant_id, key, session=session) == admitted.snapshot
                    assert session.in_transaction()
                    assert await settings(session) == before
                    await (session.commit() if ends_well else session.rollback())
                if not ends_well:
                    assert await kit.rows() == {}
            assert await orders(engine) == 1
            # O1: everything is there after the session is gone.
            assert await runs.load_by_key(request.tenant_id, key) == admitted.snapshot
            assert str(admitted.snapshot.observation.run_id) == run_id

    run(work())
    assert run(kit.rows()) == ONE_RUN


async def settings(session: AsyncSession) -> Any:
    names = "lock_timeout", "statement_timeout", "transaction_isolation", "synchronous_commit"
    shown = ", ".join(f"current_setting('{name}')" for name in names)
    return (await session.execute(text(f"SELECT {shown}, txid_current()"))).one()


def test_O5_a_retry_with_other_candidates_gives_the_id_of_the_winner(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine:
            await create_orders(kit)
            key = AgentSubmissionKey.generate()
            winner = await runs.submit(key, kit.request())
            async with AsyncSession(engine) as session:
                candidate = kit.request()
                again = await runs.submit(key, candidate, session=session)
                found = again.snapshot.provenance
                assert (again.outcome, found.run_id) == (IDEMPOTENT, winner.snapshot.provenance.run_id)
                session.add(Order(number=1, title="one", tenant_id=str(found.tenant_id), run_id=str(found.run_id)))
                await session.commit()
            assert await orders(engine) == 1

    run(work())


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_SUB_07_after_each_conflict_the_transaction_is_usable(kit: Any, run: Run, level: str) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine(isolation_level=level) as engine:
            await create_orders(kit)
            key, request = AgentSubmissionKey.generate(), kit.request()
            await runs.submit(key, request)
            conflicts = [
                (AgentSubmissionConflictError, key, kit.request(input={"other": 1})),
                (AgentSubmissionConflictError, AgentSubmissionKey.generate(), request),
                (AgentAdmissionConflictError, None, kit.request(ids=request.ids, input={"other": 1})),
            ]
            async with AsyncSession(engine) as session:
                session.add(Order(number=1, title="one"))
                await session.flush()
                for error, each, offered in conflicts:
                    with pytest.raises(error):
                        await (runs.submit(each, offered, session=session) if each else runs.admit(offered, session))
                    assert (await session.execute(text("SELECT 1"))).scalar_one() == 1
                mine = await runs.submit(AgentSubmissionKey.generate(), kit.request(), session=session)
                assert mine.outcome is COMMITTED
                await session.commit()
            assert await orders(engine) == 1

    run(work())
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, 2)


@pytest.mark.parametrize("missing", ["agent_submission_keys", "agent_admissions"])
def test_SUB_07_a_run_without_its_rows_is_corrupt_and_the_transaction_usable(kit: Any, run: Run, missing: str) -> None:
    async def work() -> None:
        async with (
            kit.runs() as runs,
            kit.engine(as_owner=True) as engine,
            engine.connect() as connection,
            connection.begin(),
        ):
            request = kit.request()
            await runs.submit(AgentSubmissionKey.generate(), request, session=connection)
            await connection.execute(text("SET LOCAL session_replication_role = replica"))
            await connection.execute(text(f"DELETE FROM agentruns.{missing}"))  # noqa: S608
            for key, offered in ((AgentSubmissionKey.generate(), request), (None, request)):
                with pytest.raises(CorruptDataError) as corrupt:
                    await (runs.submit(key, offered, connection) if key else runs.admit(offered, connection))
                assert corrupt.value.component == missing
                assert (await connection.execute(text("SELECT 1"))).scalar_one() == 1

    run(work())


def test_A4_a_conflict_inside_one_transaction_keeps_the_first_run(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine:
            async with AsyncSession(engine) as session:
                key = AgentSubmissionKey.generate()
                first = await runs.submit(key, kit.request(), session=session)
                with pytest.raises(AgentSubmissionConflictError):
                    await runs.submit(key, kit.request(input={"n": 2}), session=session)
                assert (await runs.submit(key, kit.request(), session=session)).outcome is IDEMPOTENT
                assert (await session.execute(text("SELECT 1"))).scalar_one() == 1
                await session.commit()
            assert await runs.load_by_key(kit.request().tenant_id, key) == first.snapshot

    run(work())
    assert run(kit.rows()) == ONE_RUN


def test_O4_a_hundred_submits_in_one_transaction_leave_no_savepoint(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine, AsyncSession(engine) as session:
            for number in range(50):
                key = AgentSubmissionKey.generate()
                await runs.submit(key, kit.request(input={"n": number}), session=session)
                with pytest.raises(AgentSubmissionConflictError):
                    await runs.submit(key, kit.request(input={"n": -1 - number}), session=session)
            assert session.get_nested_transaction() is None
            async with session.begin_nested() as nested:
                await runs.submit(AgentSubmissionKey.generate(), kit.request(), session=session)
                assert session.get_nested_transaction() is nested
                await nested.rollback()
            await session.commit()

    run(work())
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, 50)


def fresh() -> AgentSubmissionKey:
    return AgentSubmissionKey.generate()


def test_O3_an_invalid_pending_object_is_the_callers_own_error(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine:
            await create_orders(kit)
            async with AsyncSession(engine) as session:
                session.add(Order(number=1))
                assert (await runs.submit(fresh(), kit.request(), session=session)).outcome is COMMITTED
                assert len(session.new) == 1
                with pytest.raises(IntegrityError):
                    await session.commit()

    run(work())
    assert run(kit.rows()) == {}
