"""Whatever error of ours a joined call raises, the caller's transaction goes on, and what it wrote commits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import (
    AgentAdmissionConflictError,
    AgentAdmissionRejectedError,
    AgentSubmissionConflictError,
    AgentSubmissionNotFoundError,
    CorruptDataError,
    ExecutableGraphUnavailableError,
    RunNotFoundError,
    SchemaRejectedError,
    UnitOfWorkError,
)

Race = Callable[[Any], None]
#: What a party asks for in vain, when a run stands under a key.
Ask = Callable[[Any, Any, AgentSubmissionKey, Any], Awaitable[Any]]

ONE_RUN = {"agent_admissions": 1, "agent_submission_keys": 1, "run_checkpoints": 1, "run_events": 1, "runs": 1}
LONG_AGO = Timestamp.parse("2020-01-01T00:00:00.000000Z")


def fresh() -> AgentSubmissionKey:
    return AgentSubmissionKey.generate()


async def other_content(arena: Any, party: Any, key: AgentSubmissionKey, _first: Any) -> None:
    await party.submit(key, arena.request(input={"n": 2}))


async def second_key(_arena: Any, party: Any, _key: AgentSubmissionKey, first: Any) -> None:
    await party.submit(fresh(), first)


async def other_run(arena: Any, party: Any, _key: AgentSubmissionKey, first: Any) -> None:
    await party.admit(arena.request(ids=first.ids, input={"n": 2}))


async def too_late(arena: Any, party: Any, _key: AgentSubmissionKey, _first: Any) -> None:
    await party.submit(fresh(), arena.request(deadline=LONG_AGO))


async def unpublished(arena: Any, party: Any, _key: AgentSubmissionKey, _first: Any) -> None:
    await party.submit(fresh(), arena.request(tenant_id=TenantId("nobody")))


async def not_installed(arena: Any, party: Any, _key: AgentSubmissionKey, _first: Any) -> None:
    executables = arena.kit.executables_of(graphs=())
    async with arena.kit.runs(publish=False, executables=executables) as runs:
        await runs.submit(fresh(), arena.request(), session=party.connection)


async def invalid(arena: Any, party: Any, _key: AgentSubmissionKey, _first: Any) -> None:
    await party.submit(fresh(), arena.request(input=[1]))


async def unknown_run(arena: Any, party: Any, _key: AgentSubmissionKey, _first: Any) -> None:
    await arena.runs.load(arena.tenant, RunId.generate(), session=party.connection)


async def unknown_key(arena: Any, party: Any, _key: AgentSubmissionKey, _first: Any) -> None:
    await arena.runs.load_by_key(arena.tenant, fresh(), session=party.connection)


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (other_content, AgentSubmissionConflictError),
        (second_key, AgentSubmissionConflictError),
        (other_run, AgentAdmissionConflictError),
        (too_late, AgentAdmissionRejectedError),
        (unpublished, ExecutableGraphUnavailableError),
        (not_installed, ExecutableGraphUnavailableError),
        (invalid, SchemaRejectedError),
        (unknown_run, RunNotFoundError),
        (unknown_key, AgentSubmissionNotFoundError),
    ],
    ids=lambda each: each.__name__,
)
def test_SUB_07_after_each_refusal_earlier_and_later_rows_commit(
    race: Race, joined: Any, ask: Ask, error: type[Exception]
) -> None:
    async def work(arena: Any) -> None:
        key, first = fresh(), arena.request()
        await arena.runs.submit(key, first)
        async with arena.joining(joined.level) as party:
            await party.write()
            mine = await party.submit(fresh(), arena.request())
            with pytest.raises(error) as refused:
                await ask(arena, party, key, first)
            assert type(refused.value) is error
            assert await party.is_usable()
            await party.write()
            await party.commit()
        assert await arena.notes() == 2
        assert await arena.rows() == dict.fromkeys(ONE_RUN, 2)
        assert await arena.runs.load(arena.tenant, mine.snapshot.provenance.run_id) == mine.snapshot

    race(work)


@pytest.mark.parametrize("missing", ["agent_submission_keys", "agent_admissions", "run_events", "run_checkpoints"])
def test_SUB_07_after_corruption_earlier_and_later_rows_commit(race: Race, joined: Any, missing: str) -> None:
    async def work(arena: Any) -> None:
        key, first = fresh(), arena.request()
        await arena.runs.submit(key, first)
        await arena.damage(f"DELETE FROM agentruns.{missing} WHERE tenant_id = '{arena.tenant}'")  # noqa: S608
        with pytest.raises(CorruptDataError):
            await arena.runs.submit(fresh(), first)
        async with arena.joining(joined.level) as party:
            await party.write()
            for ask in (party.submit(fresh(), first), party.submit(key, first), party.admit(first)):
                with pytest.raises(CorruptDataError) as corrupt:
                    await ask
                assert corrupt.value.run_id == first.run_id
                assert await party.is_usable()
            await party.write()
            await party.commit()
        assert await arena.notes() == 2
        assert await arena.rows() == {name: 1 for name in ONE_RUN if name != missing}

    race(work)


def test_SUB_10_a_read_only_transaction_can_read_on(race: Race, joined: Any) -> None:
    async def work(arena: Any) -> None:
        key = fresh()
        first = await arena.runs.submit(key, arena.request())
        async with arena.joining(joined.level) as party:
            await party.execute("SET TRANSACTION READ ONLY")
            with pytest.raises(UnitOfWorkError) as refused:
                await party.submit(fresh(), arena.request())
            assert refused.value.reason == "read_only"
            assert await arena.runs.load_by_key(arena.tenant, key, session=party.connection) == first.snapshot
            await party.commit()
        assert await arena.rows() == ONE_RUN

    race(work)


def test_SUB_08_no_transaction_is_begun_ended_or_nested(race: Race, joined: Any) -> None:
    async def work(arena: Any) -> None:
        async with arena.joining(joined.level) as party, arena.listening(party) as said:
            key, keyless = fresh(), arena.request(input={"n": 2})
            await party.submit(key, arena.request())
            await party.submit(key, arena.request())
            with pytest.raises(AgentSubmissionConflictError):
                await party.submit(key, arena.request(input={"n": 3}))
            await party.admit(keyless)
            await party.submit(fresh(), keyless)
            await arena.runs.load_by_key(arena.tenant, key, session=party.connection)
            await arena.runs.publish(arena.tenant, arena.kit.graph, session=party.connection)
            assert said == []
            await party.rollback()
            assert said == ["rollback"]
        assert await arena.rows() == {}

    race(work)
