"""Revision 0016 over a thousand runs that are older than it: what it adds, and what becomes of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from agentruns import migrations
from agentruns.domain.status import RunStatus
from agentruns.domain.submission import MutationOutcome, keyless_digest
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import AgentSubmissionNotFoundError, RefusedError
from agentruns.runtime.agent_loop import AgentLoopOutcome, DurableAgentLoop
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import StoreOptions
from agentruns.store.transient import sqlstate_of
from agentruns.store.unit_of_work import UnitOfWork
from agentruns.testing.drives import DriveWorld, executables_of
from agentruns.testing.hand_driven import HandDriven
from agentruns.testing.samples import TENANT
from agentruns.testing.stories import STORIES

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Within = Callable[[str, Callable[[Connection], Any]], Any]

KEYS = """
SELECT tenant_id, run_id::text, origin, key_digest, submission_digest, created_at FROM agentruns.agent_submission_keys
"""
LOCKS = """
SELECT c.relname, array_agg(DISTINCT l.mode ORDER BY l.mode)
FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation
WHERE l.pid = pg_backend_pid() AND l.granted AND c.relname = ANY (:names)
GROUP BY c.relname
"""
#: What a submission of release 15 inserts beside its run, for the one run that has none.
ADMISSION = """
INSERT INTO agentruns.agent_admissions
VALUES ('older', '0198c0de-0000-7000-8000-000000000001', 'agent', '1.0.0', '{}', sha256(''), 1)
"""


@asynccontextmanager
async def engine_of(url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(url, poolclass=NullPool)
    yield engine
    await engine.dispose()


def tables(connection: Connection) -> list[str]:
    found = text("SELECT relname FROM pg_class WHERE relnamespace = 'agentruns'::regnamespace AND relkind = 'r'")
    return sorted(set(connection.execute(found).scalars()) - {"alembic_version", "applied_revisions"})


def digests(connection: Connection, names: list[str]) -> dict[str, str]:
    """Digest all rows of each table."""
    each = (
        "SELECT '{0}', encode(sha256(string_agg(t::text, E'\\n' ORDER BY t::text)::bytea), 'hex') FROM agentruns.{0} t"
    )
    rows = connection.execute(text(" UNION ALL ".join(each.format(name) for name in names)))
    return {row[0]: row[1] for row in rows}


@pytest.mark.parametrize("is_script", [False, True])
def test_OPS_02_OPS_03_no_row_changes_and_each_admission_gets_its_keyless_row(
    earlier_url: str, earlier: Any, within: Within, replay: Callable[..., str], *, is_script: bool
) -> None:
    names = within(earlier_url, tables)
    before = within(earlier_url, lambda connection: digests(connection, names))
    assert (len(names), [name for name, digest in before.items() if digest is None]) == (23, [])
    if is_script:
        assert replay(earlier_url, migrations.sql("15", "16")) == ""
    else:
        within(earlier_url, migrations.upgrade)
    assert within(earlier_url, lambda connection: digests(connection, names)) == before
    assert set(within(earlier_url, tables)) - set(names) == {"agent_submission_keys", "retention_receipts"}

    def keys(connection: Connection) -> list[Any]:
        return [tuple(row) for row in connection.execute(text(KEYS))]

    assert Counter(within(earlier_url, keys)) == Counter(
        (
            *run.key,
            "admitted",
            keyless_digest(run.request.tenant_id, run.request.run_id).raw,
            run.request.submission_digest.raw,
            run.commits[0].recorded_at.to_datetime(),
        )
        for run in earlier.runs
    )


def test_F2_OPS_03_earlier_runs_load_and_may_be_given_a_key(
    earlier_url: str, earlier: Any, within: Within, run: Run
) -> None:
    async def work() -> None:
        async with AgentRunStore(earlier_url) as store:
            runs = DurableAgentRuns(store, executables_of(earlier.bundle))
            earlier_runs = earlier.runs[:200]  # twenty of each story
            loaded = await asyncio.gather(*(runs.load(TENANT, each.request.run_id) for each in earlier_runs))
            assert [each.status for each in loaded] == [STORIES[each.name][1] for each in earlier_runs]
            assert [each.provenance.run_id for each in loaded] == [each.request.run_id for each in earlier_runs]

            some = [(AgentSubmissionKey.generate(), each.request) for each in earlier_runs[:50]]
            read = [runs.load_by_key(TENANT, key) for key, _ in some]
            found = await asyncio.gather(*read, return_exceptions=True)
            assert [type(each) for each in found] == [AgentSubmissionNotFoundError] * 50
            for outcome in (MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT):
                answers = await asyncio.gather(*(runs.submit(key, request) for key, request in some))
                assert [(each.outcome, each.snapshot) for each in answers] == [(outcome, each) for each in loaded[:50]]
            assert await asyncio.gather(*(runs.load_by_key(TENANT, key) for key, _ in some)) == loaded[:50]

    within(earlier_url, migrations.upgrade)
    run(work())


def test_F2_an_earlier_run_in_each_status_is_resumed_or_refused(
    earlier_url: str, earlier: Any, within: Within, run: Run
) -> None:
    firsts = {each.name: each.request.run_id for each in reversed(earlier.runs)}
    found: dict[str, str] = {}

    async def work() -> None:
        worker = await worker_of(earlier_url, earlier)
        for name, run_id in firsts.items():
            try:
                found[name] = (await worker.driven(run_id)).outcome.value
            except RefusedError as refused:
                found[name] = f"{type(refused).__name__} {refused.reason}"
        await worker.store.close()

    within(earlier_url, migrations.upgrade)
    run(work())
    assert found == {
        "fresh": "succeeded",
        "between": "succeeded",
        "quarantined": "RunQuarantinedError quarantined",
        "waiting": "RunNotRunnableError waiting",
        "waiting_for_one": "RunNotRunnableError waiting",
        "cancelling": "cancellation_confirmed",
        "cancelling_from_wait": "cancellation_confirmed",
        "cancelled": "RunNotRunnableError terminal",
        "succeeded": "RunNotRunnableError terminal",
        "failed": "RunNotRunnableError terminal",
    }


def test_OPS_03_locks_are_no_stronger_than_share_row_exclusive(earlier_url: str, within: Within) -> None:
    def work(connection: Connection) -> dict[str, set[str]]:
        names = tables(connection)
        migrations.upgrade(connection)
        return {name: set(modes) for name, modes in connection.execute(text(LOCKS), {"names": names})}

    taken = within(earlier_url, work)
    assert {name: modes - {"AccessShareLock"} for name, modes in taken.items() if modes != {"AccessShareLock"}} == {
        "agent_admissions": {"RowShareLock", "ShareRowExclusiveLock"}
    }


class EarlierStore(AgentRunStore):
    """Stand for the store of a worker that runs already: the release of its time verified the schema of its time."""

    def _verify(self, work: UnitOfWork) -> None:
        self._observe_clock(work)


async def worker_of(url: str, earlier: Any) -> DriveWorld:
    """Make a worker that runs already, and gives up at the first lock."""
    executables = executables_of(earlier.bundle)
    store = EarlierStore(url, StoreOptions(lock_timeout=timedelta(milliseconds=200), attempts=1))
    await store.open()
    runs, loop = DurableAgentRuns(store, executables), DurableAgentLoop(store, executables)
    return DriveWorld(url, earlier.bundle, store, runs, loop, executables)


def test_OPS_03_J6_workers_read_and_drive_while_the_upgrade_is_open_and_after_it(
    earlier_url: str, earlier: Any, run: Run
) -> None:
    fresh = [each.request.run_id for each in earlier.runs if each.name == "fresh"]

    async def work() -> None:
        worker = await worker_of(earlier_url, earlier)
        begun = await HandDriven.of(worker, (await worker.claimed(fresh[0])).fence)
        await begun.commit(begun.start())
        async with engine_of(earlier_url) as engine, engine.connect() as upgrading:
            await upgrading.begin()
            await upgrading.run_sync(migrations.upgrade)
            assert (await begun.commit(begun.complete())).outcome is MutationOutcome.COMMITTED
            assert (await worker.driven(fresh[1])).outcome is AgentLoopOutcome.SUCCEEDED
            await upgrading.commit()
        assert (await worker.driven(fresh[2])).outcome is AgentLoopOutcome.SUCCEEDED
        ends = [(await worker.loaded(run_id)).status for run_id in fresh[:4]]
        assert ends == [RunStatus.ACTIVE, RunStatus.SUCCEEDED, RunStatus.SUCCEEDED, RunStatus.ACTIVE]
        await worker.store.close()

    run(work())


def test_OPS_03_a_submission_waits_for_the_upgrade_until_its_lock_timeout(earlier_url: str, run: Run) -> None:
    async def work() -> str:
        async with engine_of(earlier_url) as engine, engine.connect() as upgrading, engine.connect() as submitting:
            await submitting.execute(text("SET lock_timeout = '200ms'"))
            await upgrading.begin()
            await upgrading.run_sync(migrations.upgrade)
            with pytest.raises(DBAPIError) as caught:
                await submitting.execute(text(ADMISSION))
        return sqlstate_of(caught.value)

    assert run(work()) == "55P03"


def test_OPS_03_our_own_submission_is_sent_again_after_its_lock_timeout(
    database_url: str, owner_url: str, earlier: Any, run: Run
) -> None:
    request = earlier.runs[0].request

    async def work() -> None:
        options = StoreOptions(lock_timeout=timedelta(milliseconds=50), attempts=10)
        async with AgentRunStore(database_url, options) as store, engine_of(owner_url) as engine:
            runs = DurableAgentRuns(store, executables_of(earlier.bundle))
            await runs.publish(TENANT, earlier.bundle.graph)
            timed_out = asyncio.Event()
            states: list[str] = []

            def failed(context: Any) -> None:
                states.append(sqlstate_of(context.sqlalchemy_exception))
                timed_out.set()

            event.listen(store._engine.sync_engine, "handle_error", failed)
            async with engine.begin() as upgrading:
                await upgrading.execute(text("LOCK TABLE agentruns.agent_admissions IN SHARE ROW EXCLUSIVE MODE"))
                submission = asyncio.create_task(runs.submit(AgentSubmissionKey.generate(), request))
                await timed_out.wait()
            assert (await submission).outcome is MutationOutcome.COMMITTED
            assert set(states) == {"55P03"}

    run(work())
