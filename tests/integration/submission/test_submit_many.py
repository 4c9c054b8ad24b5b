"""Many submissions in one call: each with its own outcome, in the order in which they were given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from attrs import evolve
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.domain.submission import AgentRunIds, MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import (
    AgentAdmissionConflictError,
    AgentAdmissionRejectedError,
    AgentSubmissionConflictError,
    InvalidValueError,
    SchemaRejectedError,
)
from agentruns.runtime.joined import JoinedAgentRuns

Run = Callable[[Coroutine[Any, Any, Any]], Any]

COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT
MIB = 1024 * 1024


def outcomes(answers: Sequence[Any]) -> list[Any]:
    """Name what became of each item."""
    return [type(each) if isinstance(each, Exception) else each.outcome for each in answers]


async def many(runs: Any, items: Any, how: str, engine: Any) -> Any:
    """Submit as a call of our own, in a session, on a connection, or from synchronous code."""
    if how == "own":
        return await runs.submit_many(items)
    if how == "connection":
        async with engine.begin() as connection:
            return await runs.submit_many(items, session=connection)
    async with AsyncSession(engine) as session, session.begin():
        if how == "session":
            return await runs.submit_many(items, session=session)
        joined: JoinedAgentRuns = runs._joined
        return await session.run_sync(lambda transaction: joined.submit_many(items, transaction))


@pytest.mark.parametrize("how", ["own", "session", "connection", "synchronous"])
def test_SUB_15_mixed_outcomes_come_in_the_order_of_the_input(kit: Any, run: Run, how: str) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine:
            known, taken, keyless = (kit.request(input={"n": n}) for n in range(3))
            key, other_key = AgentSubmissionKey.generate(), AgentSubmissionKey.generate()
            first = await runs.submit(key, known)
            await runs.submit(other_key, taken)
            await runs.admit(keyless)
            fresh = AgentSubmissionKey.generate
            stolen = kit.request(input={"n": 9}, ids=taken.ids)
            items = [
                (fresh(), kit.request(input={"n": 10})),
                (key, kit.request(input={"n": 0})),
                (key, kit.request(input={"n": 11})),
                (fresh(), kit.request(input=["no object"])),
                (fresh(), stolen),
                (fresh(), keyless),
                (fresh(), kit.request(deadline=Timestamp.from_datetime(datetime(2001, 1, 1, tzinfo=UTC)))),
                (fresh(), kit.request(input={"n": 12})),
            ]
            answers = await many(runs, items, how, engine)
            assert outcomes(answers) == [
                COMMITTED,
                IDEMPOTENT,
                AgentSubmissionConflictError,
                SchemaRejectedError,
                AgentAdmissionConflictError,
                COMMITTED,
                AgentAdmissionRejectedError,
                COMMITTED,
            ]
            assert answers[1].snapshot == first.snapshot
            for position in (0, 5, 7):
                submission_key, request = items[position]
                loaded = await runs.load_by_key(request.tenant_id, submission_key)
                assert loaded == answers[position].snapshot
                assert loaded.provenance.run_id == request.run_id
            rows = await kit.rows()
            # Three before, two fresh ones; the run without a key has an attached one now.
            assert (rows["runs"], rows["agent_submission_keys"]) == (5, 6)

    run(work())


@pytest.mark.parametrize("how", ["own", "connection"])
def test_SUB_15_a_key_or_a_run_id_twice_is_decided_after_the_first(kit: Any, run: Run, how: str) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine:
            key, first = AgentSubmissionKey.generate(), kit.request()
            items = [
                (key, first),
                (key, kit.request()),
                (key, kit.request(input={"other": True})),
                (AgentSubmissionKey.generate(), kit.request(ids=first.ids)),
                (AgentSubmissionKey.generate(), kit.request(ids=first.ids, input={"other": True})),
                (key, kit.request()),
            ]
            answers = await many(runs, items, how, engine)
            assert outcomes(answers) == [
                COMMITTED,
                IDEMPOTENT,
                AgentSubmissionConflictError,
                AgentSubmissionConflictError,
                AgentAdmissionConflictError,
                IDEMPOTENT,
            ]
            assert {answers[n].snapshot.provenance.run_id for n in (0, 1, 5)} == {first.run_id}
            assert (await kit.rows())["runs"] == 1

    run(work())


def test_an_item_refused_before_any_sql_does_not_hold_its_key(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            key = AgentSubmissionKey.generate()
            answers = await runs.submit_many([(key, kit.request(input=[1])), (key, kit.request())])
            assert outcomes(answers) == [SchemaRejectedError, COMMITTED]

    run(work())


def test_a_set_of_ours_is_one_insert_for_each_connection_of_the_lane(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs(lane_connections=2) as runs:
            await runs.submit(AgentSubmissionKey.generate(), kit.request())
            sent = kit.sent(runs._store._engine)
            answers = await runs.submit_many([(AgentSubmissionKey.generate(), kit.request()) for _ in range(64)])
            assert outcomes(answers) == [COMMITTED] * 64
            assert len(sent) == 2

    run(work())


def test_a_joined_set_is_one_probe_and_one_insert(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine, engine.begin() as connection:
            await connection.execute(text("SELECT 1"))
            sent = kit.sent(engine)
            items = [(AgentSubmissionKey.generate(), kit.request()) for _ in range(256)]
            assert outcomes(await runs.submit_many(items, session=connection)) == [COMMITTED] * 256
            assert len(sent) == 2
            again = [(key, evolve(kit.request())) for key, _ in items]
            assert outcomes(await runs.submit_many(again, session=connection)) == [IDEMPOTENT] * 256
            assert len(sent) == 4
            await connection.rollback()

    run(work())
    assert run(kit.rows()) == {}


def test_SUB_15_two_batches_in_opposite_order_do_not_deadlock(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine(pool_size=2) as engine:
            for _ in range(10):
                keys = [AgentSubmissionKey.generate() for _ in range(32)]

                async def batch(order: list[AgentSubmissionKey]) -> Any:
                    async with engine.begin() as connection:
                        items = [(key, kit.request()) for key in order]
                        return await runs.submit_many(items, session=connection)

                one, other = await asyncio.gather(batch(keys), batch(keys[::-1]))
                assert {tuple(outcomes(one)), tuple(outcomes(other))} == {(COMMITTED,) * 32, (IDEMPOTENT,) * 32}
                assert [each.snapshot for each in one] == [each.snapshot for each in other[::-1]]

    run(work())


def test_another_shape_of_a_set_is_refused_before_any_sql(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            sent = kit.sent(runs._store._engine)
            request, key = kit.request(), AgentSubmissionKey.generate()
            large = kit.request(state={"a": "x" * (MIB - 100), "b": "x" * (MIB - 100)})
            refused = {
                "wrong_count": [[], [(key, request)] * 257],
                "tenant_mismatch": [[(key, request), (key, kit.request(tenant_id=TenantId("tenant-b")))]],
                "too_large": [[(key, large)] * 33],
            }
            for reason, sets in refused.items():
                for items in sets:
                    with pytest.raises(InvalidValueError) as invalid:
                        await runs.submit_many(items)
                    assert (invalid.value.type_name, invalid.value.reason) == ("submit_many", reason)
            with pytest.raises(TypeError, match="pass key as AgentSubmissionKey, not str"):
                await runs.submit_many([("key", request)])
            with pytest.raises(TypeError):
                await runs.submit_many([(key, request)], session=object())
            assert sent == []

    run(work())


def test_SUB_15_64_mib_are_admitted_within_the_age_of_their_stamp(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            await runs.submit(AgentSubmissionKey.generate(), kit.request())
            state = {"a": "x" * (MIB - 100), "b": "x" * (MIB - 100)}
            items = [
                (AgentSubmissionKey.generate(), kit.request(state=state, ids=AgentRunIds.generate())) for _ in range(31)
            ]
            answers = await runs.submit_many(items)
            assert outcomes(answers) == [COMMITTED] * 31
            found: set[RunId] = {each.snapshot.provenance.run_id for each in answers}
            assert found == {request.run_id for _, request in items}

    run(work())
