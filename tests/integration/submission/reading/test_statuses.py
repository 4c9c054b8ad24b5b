"""What a verified read shows, in every status."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.domain.status import RunStatus
from agentruns.domain.submission import MutationOutcome, key_digest
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import (
    AgentSubmissionNotFoundError,
    CorruptDataError,
    RunNotFoundError,
)
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore
from agentruns.store.ends import MAXIMUM_BODY_BYTES, Ends, RunLookup
from agentruns.store.options import StoreOptions
from agentruns.store.unit_of_work import UnitOfWork
from agentruns.testing import samples

pytestmark = pytest.mark.slow

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def test_SUB_18_load_and_load_by_key_agree_in_every_status(kit: Any, run: Run, tell: Any, story: str) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            told = await tell(runs, story)
            state = told.story.state
            shown = await runs.load(told.tenant_id, told.run_id)
            assert await runs.load_by_key(told.tenant_id, told.key) == shown
            assert (shown.status, shown.revision) == (told.status, state.revision)
            assert (shown.changed_at, shown.quarantined) == (state.changed_at, story == "quarantined")
            assert shown.graph == kit.graph.reference
            assert (shown.outcome is None) is not shown.status.is_terminal
            theirs = RunLookup(tenant_id=TenantId("tenant-b"), key_digest=key_digest(told.tenant_id, told.key))
            async with kit.engine() as engine, engine.connect() as connection:
                (ends,) = await connection.run_sync(lambda raw: Ends(UnitOfWork(raw)).read([theirs]))
            assert (ends.run_id, ends.run, ends.admitted) == (None, None, None)
            for other in (TenantId("tenant-b"), TenantId("tenant"), TenantId("TENANT-A")):
                await not_found(runs, other, told.run_id, told.key)
            await not_found(runs, told.tenant_id, RunId.generate(), AgentSubmissionKey.generate())

    run(work())


async def not_found(runs: Any, tenant_id: TenantId, run_id: RunId, key: AgentSubmissionKey) -> None:
    with pytest.raises(RunNotFoundError) as missing:
        await runs.load(tenant_id, run_id)
    assert (missing.value.tenant_id, missing.value.id) == (tenant_id, run_id)
    with pytest.raises(AgentSubmissionNotFoundError) as unknown:
        await runs.load_by_key(tenant_id, key)
    assert (unknown.value.tenant_id, unknown.value.id) == (tenant_id, None)


def test_SUB_05_a_retry_is_idempotent_in_every_status(kit: Any, run: Run, tell: Any, story: str) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine:
            told = await tell(runs, story)
            before = await kit.rows()
            shown = await runs.load(told.tenant_id, told.run_id)
            for request in (told.request, kit.request()):
                again = await runs.submit(told.key, request)
                assert (again.outcome, again.snapshot) == (MutationOutcome.IDEMPOTENT, shown)
                async with engine.begin() as connection:
                    assert await runs.submit(told.key, request, session=connection) == again
            assert await kit.rows() == before

    run(work())


def test_SUB_05_the_stories_reach_every_status(kit: Any, run: Run, tell: Any) -> None:
    async def work() -> set[RunStatus]:
        async with kit.runs() as runs:
            return {(await tell(runs, story)).status for story in tell.stories}

    assert run(work()) == set(RunStatus) - {RunStatus.PENDING}


def test_the_outcomes_are_those_of_the_record(kit: Any, run: Run, tell: Any) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            told = await tell(runs, "succeeded")
            outcome = (await runs.load(told.tenant_id, told.run_id)).outcome
            assert outcome.result.output == tell.output
            assert outcome.result.usage == tell.usage
            assert outcome.result.completed_at == told.story.state.changed_at
            told = await tell(runs, "failed")
            assert (await runs.load(told.tenant_id, told.run_id)).outcome.failure == samples.failure()
            told = await tell(runs, "cancelled")
            assert (await runs.load(told.tenant_id, told.run_id)).outcome.failure == samples.cancellation()

    run(work())


def test_wait_gives_the_end_or_what_was_seen_last(kit: Any, run: Run, tell: Any) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            active, over = await tell(runs, "between"), await tell(runs, "succeeded")
            shown = await runs.wait(active.tenant_id, active.run_id, timeout=timedelta(milliseconds=200))
            assert shown == await runs.load(active.tenant_id, active.run_id)
            ended = await runs.wait(over.tenant_id, over.run_id, timeout=timedelta(seconds=30))
            assert ended.status is RunStatus.SUCCEEDED
            with pytest.raises(RunNotFoundError):
                await runs.wait(over.tenant_id, RunId.generate(), timeout=timedelta(seconds=30))

    run(work())


def test_a_released_quarantine_is_over(kit: Any, run: Run, tell: Any) -> None:
    release = (
        "INSERT INTO agentruns.run_quarantine_releases SELECT tenant_id, run_id, quarantine_id, clock_timestamp(),"
        " body, digest FROM agentruns.run_quarantines"
    )

    async def work() -> None:
        async with kit.runs() as runs, kit.engine(as_owner=True) as engine:
            told = await tell(runs, "quarantined")
            assert (await runs.load(told.tenant_id, told.run_id)).quarantined
            async with engine.begin() as connection:
                await connection.execute(text(release))
                await connection.execute(text("UPDATE agentruns.runs SET quarantined_at = NULL"))
            assert not (await runs.load(told.tenant_id, told.run_id)).quarantined

    run(work())


def limited(read: Callable[..., Any], limit: int) -> Callable[..., Any]:
    """Bound the bodies of one read."""

    def bounded(ends: Ends, lookups: Any) -> Any:
        return read(ends, lookups, maximum_bytes=limit)

    return bounded


def test_loads_that_wait_together_share_a_statement_and_each_has_its_own_answer(
    kit: Any, run: Run, tell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with AgentRunStore(kit.url, StoreOptions(pool_size=1)) as store:
            runs = DurableAgentRuns(store, kit.executables)
            tenant = kit.request().tenant_id
            await runs.publish(tenant, kit.graph)
            told = [await tell(runs, name) for name in ("fresh", "succeeded", "cancelled", "waiting")]
            shown = [await runs.load(tenant, each.run_id) for each in told]
            async with kit.engine(as_owner=True) as engine, engine.begin() as connection:
                await connection.execute(text("SET LOCAL session_replication_role = replica"))
                damage = f"DELETE FROM agentruns.run_waits WHERE run_id = '{told[3].run_id}'"  # noqa: S608
                await connection.execute(text(damage))
            read = Ends.read
            for limit, least, most in ((MAXIMUM_BODY_BYTES, 1, 12), (1, 12, 20)):
                monkeypatch.setattr(Ends, "read", limited(read, limit))
                sent = kit.sent(store._engine)
                calls = [runs.load(tenant, told[number % 4].run_id) for number in range(12)]
                calls += [runs.load_by_key(tenant, told[1].key), runs.load(tenant, RunId.generate())]
                *answers, by_key, missing = await asyncio.gather(*calls, return_exceptions=True)
                assert [each for number, each in enumerate(answers) if number % 4 != 3] == shown[:3] * 3
                assert all(isinstance(each, CorruptDataError) for each in answers[3::4])
                assert by_key == shown[1]
                assert isinstance(missing, RunNotFoundError)
                assert least <= len(sent) <= most

    run(work())
