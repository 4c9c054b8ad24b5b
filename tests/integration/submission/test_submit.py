"""Submit once: races, retries, conflicts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from attrs import evolve
from sqlalchemy import text

from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.scalars import TenantId
from agentruns.domain.submission import (
    AgentRunIds,
    MutationOutcome,
    submission_digest,
)
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import (
    AgentAdmissionConflictError,
    AgentAdmissionRejectedError,
    AgentSubmissionConflictError,
    CorruptDataError,
)

Run = Callable[[Coroutine[Any, Any, Any]], Any]


COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT


ONE_RUN = {"agent_admissions": 1, "agent_submission_keys": 1, "run_checkpoints": 1, "run_events": 1, "runs": 1}


ROUNDS = 50


SUBMITTERS = 24


def test_SUB_03_of_24_concurrent_submitters_on_24_connections_one_commits(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.engine(pool_size=SUBMITTERS, max_overflow=0) as engine, kit.runs() as runs:
            for number in range(1, ROUNDS + 1):
                await one_round(engine, runs, number)

    async def one_round(engine: Any, runs: Any, number: int) -> None:
        key = AgentSubmissionKey.generate()
        barrier = asyncio.Barrier(SUBMITTERS)

        async def submitter() -> tuple[MutationOutcome, str]:
            request = kit.request(input={"round": number})
            async with engine.connect() as connection, connection.begin():
                await connection.execute(text("SELECT 1"))
                await barrier.wait()
                admitted = await runs.submit(key, request, session=connection)
            return admitted.outcome, str(admitted.snapshot.provenance.run_id)

        answers = await asyncio.gather(*(submitter() for _ in range(SUBMITTERS)))
        assert Counter(outcome for outcome, _ in answers) == {COMMITTED: 1, IDEMPOTENT: SUBMITTERS - 1}
        assert len({run_id for _, run_id in answers}) == 1

    run(work())
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, ROUNDS)


def test_SUB_03_own_submits_of_24_stores_at_once(kit: Any, run: Run) -> None:
    async def work() -> list[Any]:
        key = AgentSubmissionKey.generate()
        barrier = asyncio.Barrier(SUBMITTERS)

        async def submitter() -> Any:
            async with kit.runs(publish=False, pool_size=1) as runs:
                await barrier.wait()
                return await runs.submit(key, kit.request())

        async with kit.runs():
            return await asyncio.gather(*(submitter() for _ in range(SUBMITTERS)))

    answers = run(work())
    assert Counter(each.outcome for each in answers) == {COMMITTED: 1, IDEMPOTENT: SUBMITTERS - 1}
    assert len({each.snapshot for each in answers}) == 1
    assert run(kit.rows()) == ONE_RUN


def test_SUB_03_coalesced_submits_of_one_store(kit: Any, run: Run) -> None:
    async def work() -> list[Any]:
        async with kit.runs() as runs:
            key = AgentSubmissionKey.generate()
            return await asyncio.gather(*(runs.submit(key, kit.request()) for _ in range(SUBMITTERS)))

    answers = run(work())
    assert Counter(each.outcome for each in answers) == {COMMITTED: 1, IDEMPOTENT: SUBMITTERS - 1}
    assert run(kit.rows()) == ONE_RUN


def test_SUB_04_of_24_concurrent_identical_admissions_one_commits(kit: Any, run: Run) -> None:
    async def work() -> list[Any]:
        request = kit.request()
        barrier = asyncio.Barrier(SUBMITTERS)

        async def submitter() -> Any:
            async with kit.runs(publish=False, pool_size=1) as runs:
                await barrier.wait()
                return await runs.admit(request)

        async with kit.runs():
            return await asyncio.gather(*(submitter() for _ in range(SUBMITTERS)))

    answers = run(work())
    assert Counter(each.outcome for each in answers) == {COMMITTED: 1, IDEMPOTENT: SUBMITTERS - 1}
    assert run(kit.rows()) == ONE_RUN


def test_SUB_05_retry_with_fresh_ids_after_the_deadline_is_idempotent(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine:
            async with engine.connect() as connection:
                now = (await connection.execute(text("SELECT clock_timestamp()"))).scalar_one()
            deadline = Timestamp.from_datetime(now).plus_micros(4_000_000)
            key = AgentSubmissionKey.generate()
            first = await runs.submit(key, kit.request(deadline=deadline))
            assert first.outcome is COMMITTED
            await asyncio.sleep(4.1)
            again = await runs.submit(key, kit.request(deadline=deadline))
            assert (again.outcome, again.snapshot) == (IDEMPOTENT, first.snapshot)
            with pytest.raises(AgentAdmissionRejectedError) as refused:
                await runs.submit(AgentSubmissionKey.generate(), kit.request(deadline=deadline))
            assert refused.value.reason == "deadline"
            async with engine.connect() as connection, connection.begin():
                joined = await runs.submit(key, kit.request(deadline=deadline), session=connection)
                assert (joined.outcome, joined.snapshot) == (IDEMPOTENT, first.snapshot)

    run(work())
    assert run(kit.rows()) == ONE_RUN


def test_other_content_under_a_key_is_a_conflict_and_writes_nothing(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            key = AgentSubmissionKey.generate()
            first, other = kit.request(input={"n": 1}), kit.request(input={"n": 2})
            admitted = await runs.submit(key, first)
            with pytest.raises(AgentSubmissionConflictError) as conflict:
                await runs.submit(key, other)
            error = conflict.value
            assert error.tenant_id == first.tenant_id
            assert error.run_id == admitted.snapshot.provenance.run_id
            assert error.recorded_digest == submission_digest(first.intent, first.initial_state)
            assert error.offered_digest == submission_digest(other.intent, other.initial_state)
            assert await runs.load_by_key(first.tenant_id, key) == admitted.snapshot

    run(work())
    assert run(kit.rows()) == ONE_RUN


@pytest.mark.parametrize("changed", ["state", "evidence", "limits", "deadline"])
def test_each_part_of_the_content_counts(kit: Any, run: Run, changed: str) -> None:
    changes: dict[str, Any] = {
        "state": {"a": 1},
        "evidence": {"a": 1},
        "limits": BudgetLimits.of(tool_calls=3),
        "deadline": Timestamp.parse("9999-12-30T00:00:00.000000Z"),
    }

    async def work() -> None:
        async with kit.runs() as runs:
            key = AgentSubmissionKey.generate()
            await runs.submit(key, kit.request())
            with pytest.raises(AgentSubmissionConflictError):
                await runs.submit(key, kit.request(**{changed: changes[changed]}))

    run(work())
    assert run(kit.rows()) == ONE_RUN


def test_equal_numbers_are_equal_content(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            key = AgentSubmissionKey.generate()
            await runs.submit(key, kit.request(input={"n": 1, "z": 0}))
            assert (await runs.submit(key, kit.request(input={"n": 1.0, "z": -0.0}))).outcome is IDEMPOTENT

    run(work())


def test_a_second_key_for_a_run_is_a_conflict_and_writes_nothing(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            request = kit.request()
            await runs.submit(AgentSubmissionKey.generate(), request)
            with pytest.raises(AgentSubmissionConflictError):
                await runs.submit(AgentSubmissionKey.generate(), request)
            with pytest.raises(AgentAdmissionConflictError):
                await runs.submit(AgentSubmissionKey.generate(), kit.request(ids=request.ids, input={"n": 2}))

    run(work())
    assert run(kit.rows()) == ONE_RUN


@pytest.mark.parametrize("member", ["thread_id", "invocation_id", "admission_event_id", "initial_checkpoint_id"])
def test_admit_with_another_id_under_the_run_id_is_a_conflict(kit: Any, run: Run, member: str) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            request = kit.request()
            await runs.admit(request)
            other = evolve(request.ids, **{member: getattr(AgentRunIds.generate(), member)})
            with pytest.raises(AgentAdmissionConflictError) as conflict:
                await runs.admit(kit.request(ids=other))
            assert conflict.value.run_id == request.run_id

    run(work())
    assert run(kit.rows()) == ONE_RUN


def test_a_stored_run_without_its_submission_is_corrupt_for_own_calls_too(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine(as_owner=True) as engine:
            request, key = kit.request(), AgentSubmissionKey.generate()
            await runs.submit(key, request)
            async with engine.begin() as connection:
                await connection.execute(text("SET LOCAL session_replication_role = replica"))
                await connection.execute(text("DELETE FROM agentruns.agent_submission_keys"))
            for call in (runs.submit(key, request), runs.admit(request)):
                with pytest.raises(CorruptDataError) as corrupt:
                    await call
                assert corrupt.value.component == "agent_submission_keys"
            assert (await runs.submit(key, kit.request())).outcome is COMMITTED

    run(work())


def test_tenants_and_spellings_of_keys_are_independent(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            other = TenantId("tenant-b")
            await runs.publish(other, kit.graph)
            lower, upper = AgentSubmissionKey("abcdefghijklmnop"), AgentSubmissionKey("ABCDEFGHIJKLMNOP")
            answers = [
                await runs.submit(lower, kit.request()),
                await runs.submit(upper, kit.request()),
                await runs.submit(lower, kit.request(tenant_id=other)),
            ]
            assert [each.outcome for each in answers] == [COMMITTED] * 3

    run(work())
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, 3)
