"""How many statements each call needs, and who shares them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from agentruns.domain.scalars import TenantId
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import (
    AgentAdmissionRejectedError,
    AgentSubmissionConflictError,
    ExecutableGraphUnavailableError,
    InvariantError,
    StoreUnavailableError,
)
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import StoreOptions

Run = Callable[[Coroutine[Any, Any, Any]], Any]


COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT


ONE_RUN = {"agent_admissions": 1, "agent_submission_keys": 1, "run_checkpoints": 1, "run_events": 1, "runs": 1}


def kinds(sent: list[str]) -> list[str]:
    """Name the statements in the order in which they were sent, and forget them."""
    marks = {"INSERT INTO agentruns.runs": "insert", "is_head_passed": "ends", "is_read_only": "probe"}
    found = [next((kind for mark, kind in marks.items() if mark in each), each) for each in sent]
    sent.clear()
    return found


async def execute(kit: Any, *statements: str) -> None:
    async with kit.engine(as_owner=True) as engine, engine.begin() as connection:
        for statement in statements:
            await connection.execute(text(statement))


def test_SUB_27_the_statements_of_each_call(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with AgentRunStore(kit.url) as store:
            runs = DurableAgentRuns(store, kit.executables)
            await runs.publish(kit.request().tenant_id, kit.graph)
            sent = kit.sent(store._engine)
            key = AgentSubmissionKey.generate()
            await runs.submit(key, kit.request())
            assert kinds(sent) == ["insert"]
            await runs.submit(key, kit.request())
            probe = sent[1]
            assert kinds(sent) == ["insert", "probe", "ends"]
            for body in ("agent_admissions", "run_events", "run_outcomes", "run_checkpoints", ".body", ".data"):
                assert body not in probe
            await runs.load_by_key(kit.request().tenant_id, key)
            assert kinds(sent) == ["ends"]
            async with kit.engine() as engine:
                joined = kit.sent(engine)
                async with engine.begin() as connection:
                    await runs.submit(AgentSubmissionKey.generate(), kit.request(), session=connection)
                assert kinds(joined) == ["probe", "insert"]

    run(work())


def test_SUB_26_a_hundred_submits_on_a_pool_of_one_share_statements(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with AgentRunStore(kit.url, StoreOptions(pool_size=1)) as store:
            runs = DurableAgentRuns(store, kit.executables)
            tenant = kit.request().tenant_id
            await runs.publish(tenant, kit.graph)
            taken = AgentSubmissionKey.generate()
            await runs.submit(taken, kit.request(input={"n": 1}))
            unpublished = kit.request(tenant_id=TenantId("tenant-b"))
            twice, torn = AgentSubmissionKey.generate(), AgentSubmissionKey.generate()
            sent = kit.sent(store._engine)
            special = [
                runs.submit(taken, kit.request(input={"n": 2})),
                runs.submit(
                    AgentSubmissionKey.generate(), kit.request(deadline=Timestamp.parse("2020-01-01T00:00:00.000000Z"))
                ),
                runs.submit(AgentSubmissionKey.generate(), unpublished),
                runs.submit(twice, kit.request()),
                runs.submit(twice, kit.request()),
                runs.submit(torn, kit.request(input={"n": 1})),
                runs.submit(torn, kit.request(input={"n": 2})),
            ]
            ordinary = [runs.submit(AgentSubmissionKey.generate(), kit.request()) for _ in range(93)]
            answers: list[Any] = await asyncio.gather(*special, *ordinary, return_exceptions=True)
            assert len(sent) < 20
        conflict, late, missing, *rest = answers
        assert isinstance(conflict, AgentSubmissionConflictError)
        assert isinstance(late, AgentAdmissionRejectedError)
        assert late.reason == "deadline"
        assert isinstance(missing, ExecutableGraphUnavailableError)
        assert missing.reason == "not_registered"
        first, second, one, other, *others = rest
        assert (first.outcome, second.outcome) == (COMMITTED, IDEMPOTENT)
        assert first.snapshot == second.snapshot
        assert one.outcome is COMMITTED
        assert isinstance(other, AgentSubmissionConflictError)
        assert [each.outcome for each in others] == [COMMITTED] * 93

    run(work())
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, 96)


def test_SUB_26_an_item_that_the_server_refuses_stands_alone(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs(pool_size=1) as runs:
            broken = """CREATE FUNCTION public.broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF NEW.agent_name = 'sample-agent' AND position('poison'::bytea in NEW.body) > 0 THEN
                RAISE EXCEPTION 'broken'; END IF; RETURN NEW; END $$"""
            table = "agentruns.agent_admissions"
            trigger = f"CREATE TRIGGER broken BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION broken()"
            await execute(kit, broken, trigger)
            inputs = [{"text": "poison" if number == 7 else "fine"} for number in range(40)]
            calls = [runs.submit(AgentSubmissionKey.generate(), kit.request(input=each)) for each in inputs]
            answers: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(answers.pop(7), InvariantError)
            assert [each.outcome for each in answers] == [COMMITTED] * 39

    run(work())
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, 39)


@pytest.mark.direct("a pooler gives backends, not a store, their timeouts")
def test_a_submit_behind_an_uncommitted_competitor_times_out_and_can_be_repeated(kit: Any, run: Run) -> None:
    async def work() -> None:
        key = AgentSubmissionKey.generate()
        options = {
            "lock_timeout": timedelta(milliseconds=200),
            "statement_timeout": timedelta(seconds=2),
            "attempts": 2,
        }
        async with kit.runs(**options) as runs, kit.engine() as engine, engine.connect() as connection:
            transaction = await connection.begin()
            await runs.submit(key, kit.request(), session=connection)
            with pytest.raises(StoreUnavailableError) as failure:
                await runs.submit(key, kit.request())
            assert (failure.value.attempts, failure.value.sqlstate, failure.value.retryable) == (2, "55P03", True)
            await transaction.rollback()
            assert (await runs.submit(key, kit.request())).outcome is COMMITTED

    run(work())
    assert run(kit.rows()) == ONE_RUN
