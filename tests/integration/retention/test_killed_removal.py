"""Whatever kills a removal, and wherever, each run is whole or gone, and the next removal goes on."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.util import await_only

from agentruns.errors import CommitOutcomeUnknownError
from agentruns.operations.retention import RetentionPolicy, remove_runs
from agentruns.runtime.engine import create_engine
from agentruns.store.options import StoreOptions
from agentruns.store.statements.retention import TABLES
from agentruns.testing.samples import TENANT

Run = Callable[[Coroutine[Any, Any, Any]], Any]

HOUR = timedelta(hours=1)
POLICY = RetentionPolicy(keep_succeeded=HOUR, keep_failed=HOUR, keep_cancelled=HOUR, retry_guarantee=HOUR)
SCRIPT = Path(__file__).with_name("doomed_removal.py")
#: Of so many events that a batch has room for two.
EVENTS = 25_000
RUNS = 4
#: What a removal of two batches sends, in order: a third one finds nothing, and then it looks for runs passed over.
SENT = (
    *("tables", "commit", "clock", "commit"),
    *("permit", "remove", "commit") * 3,
    *("clock", "commit", "places", "commit"),
)


def written(archive: Any, sample: Any) -> list[Any]:
    first = sample().since - 10 * HOUR
    samples = [sample(since=first + timedelta(seconds=place), events=EVENTS) for place in range(RUNS)]
    archive.write(*samples, sample(status="active", tenant="other"))
    return samples


def whole_runs(archive: Any, samples: list[Any]) -> int:
    """Count the runs that are there, all of which have all their rows; receipts prove the others."""
    each = "SELECT '{0}' AS name, run_id FROM agentruns.{0} WHERE tenant_id = 'tenant-a'"
    rows = archive.execute(" UNION ALL ".join(each.format(name) for name in TABLES))
    there = Counter(str(row.run_id) for row in rows)
    assert set(there.values()) <= {len(TABLES)}
    assert there.keys() <= {each.run_id for each in samples}
    (removed,) = archive.execute("SELECT coalesce(sum(run_count), 0) AS runs FROM agentruns.retention_receipts")
    assert removed.runs == len(samples) - len(there)
    return len(there)


async def backend_ended(admin: AsyncConnection, pid: int) -> None:
    async with asyncio.timeout(20):
        query = text("SELECT 1 FROM pg_stat_activity WHERE pid = :pid")
        while (await admin.execute(query, {"pid": pid})).first():  # it happens in the server
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("number", range(len(SENT)), ids=lambda number: f"before_{number}_{SENT[number]}")
def test_OPS_09_a_backend_that_ends_at_any_statement_leaves_each_run_whole_or_gone(
    archive: Any, sample: Any, run: Run, number: int
) -> None:
    """Before one is after the other: what was sent before is answered."""
    samples = written(archive, sample)
    sent: list[str] = []

    async def work() -> None:
        engine = create_engine(archive.url, StoreOptions())
        admin_engine = create_async_engine(archive.url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        async with admin_engine.connect() as admin, engine.connect() as connection:
            pid = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            await connection.rollback()

            async def end() -> None:
                await admin.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
                await backend_ended(admin, pid)

            def before(*_: object) -> None:
                if len(sent) == number:
                    await_only(end())
                sent.append(SENT[len(sent)])

            for name in ("before_cursor_execute", "commit"):
                event.listen(engine.sync_engine, name, before)
            with pytest.raises(CommitOutcomeUnknownError):
                await connection.run_sync(lambda sync: list(remove_runs(sync, POLICY, tenant_id=TENANT)))
        await engine.dispose()

    run(work())
    assert len(sent) == number + 1
    committed = max(sent[:-1].count("commit") - 2, 0)
    assert whole_runs(archive, samples) == RUNS - 2 * min(committed, 2)
    archive.steps()
    assert whole_runs(archive, samples) == 0


def test_OPS_09_a_process_that_is_killed_while_it_deletes_loses_one_batch(archive: Any, sample: Any, run: Run) -> None:
    samples = written(archive, sample)

    async def work() -> None:
        engine = create_async_engine(archive.url, poolclass=NullPool)
        async with engine.connect() as holder, engine.connect() as admin:
            # The second batch comes as far as the rows of this run, and waits there in the midst of its statement.
            query = text("SELECT 1 FROM agentruns.agent_admissions WHERE run_id = :run_id FOR KEY SHARE")
            await holder.execute(query, {"run_id": samples[2].run_id})
            process = subprocess.Popen([sys.executable, str(SCRIPT), archive.url])  # noqa: ASYNC220, S603  # our own script
            try:
                pid = await waiting_backend(admin)
            finally:
                process.send_signal(signal.SIGKILL)
                assert process.wait(20) == -signal.SIGKILL
            await holder.rollback()
            await admin.execution_options(isolation_level="AUTOCOMMIT")
            await backend_ended(admin, pid)

    run(work())
    assert whole_runs(archive, samples) == 2
    assert archive.removed() == [2]
    assert whole_runs(archive, samples) == 0


async def waiting_backend(admin: AsyncConnection) -> int:
    """Return once somebody in this database waits for a lock."""
    query = text("SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")
    async with asyncio.timeout(60):
        while (row := (await admin.execute(query)).first()) is None:  # it happens in another process
            await admin.rollback()
            await asyncio.sleep(0.02)
    await admin.rollback()
    pid: int = row.pid
    return pid
