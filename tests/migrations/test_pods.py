"""Pods that start together: processes, and those whose environment does not wait for its turn."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from alembic.config import Config
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.util import await_only

from agentruns import migrations
from agentruns.errors import SchemaVerificationError
from agentruns.migrations import environment
from agentruns.migrations.locking import lock_key
from agentruns.migrations.translate import translated
from agentruns.store.transient import sqlstate_of

pytestmark = pytest.mark.slow

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Within = Callable[[str, Callable[[Connection], Any]], Any]

PROGRAMS = Path(sys.executable).parent
WAITERS = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0
"""
APPLIED = "SELECT number FROM agentruns.applied_revisions ORDER BY number"
TRANSACTIONS = "SELECT count(DISTINCT xmin::text) FROM agentruns.applied_revisions"


async def released_together(url: str, command: list[str], *, processes: int) -> list[Any]:
    """Start processes, let go once all of them wait for their turn, and give how each ended and what it wrote."""
    engine = create_async_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    async with engine.connect() as holder:
        await holder.execute(text(f"SELECT pg_advisory_lock({lock_key('agentruns')})"))
        variables = {**os.environ, "AGENTRUNS_DATABASE_URL": url}
        started = [
            await asyncio.create_subprocess_exec(*command, env=variables, stdout=PIPE, stderr=PIPE)
            for _ in range(processes)
        ]
        while (await holder.execute(text(WAITERS))).scalar_one() < processes:
            assert [process.returncode for process in started] == [None] * processes
            await asyncio.sleep(0.05)
    ends = [await process.communicate() for process in started]
    await engine.dispose()
    return [(process.returncode, out, error) for process, (out, error) in zip(started, ends, strict=True)]


def applied(connection: Connection) -> list[int]:
    return list(connection.execute(text(APPLIED)).scalars())


def transactions(connection: Connection) -> Any:
    """Count the transactions that wrote the history."""
    return connection.execute(text(TRANSACTIONS)).scalar_one()


@pytest.mark.slow
def test_OPS_01_J1_eight_processes_upgrade_an_empty_database(empty_database_url: str, run: Run, within: Within) -> None:
    command = [str(PROGRAMS / "agentruns"), "--format", "json", "db", "upgrade"]
    ends = run(released_together(empty_database_url, command, processes=8))
    assert [code for code, _, _ in ends] == [0] * 8
    assert {json.loads(out)["revision"] for _, out, _ in ends} == {"agentruns_0016"}
    assert within(empty_database_url, applied) == [*range(1, 17)]
    assert within(empty_database_url, transactions) == 1


@pytest.mark.slow
def test_OPS_01_four_processes_of_a_host_upgrade_with_a_transaction_per_revision(
    host: Config, empty_database_url: str, run: Run, within: Within
) -> None:
    host.set_main_option("per_revision", "yes")
    with Path(str(host.config_file_name)).open("w") as file:
        host.file_config.write(file)
    command = [str(PROGRAMS / "alembic"), "-c", str(host.config_file_name), "upgrade", "heads"]
    ends = run(released_together(empty_database_url, command, processes=4))
    assert ends == [(0, b"", b"")] * 4
    assert within(empty_database_url, applied) == [*range(1, 17)]
    assert within(empty_database_url, transactions) == 16


def upgrade_without_waiting(connection: Connection, planned: Callable[[], object] = lambda: None) -> None:
    """Upgrade as an ``env.py`` without ``wait_turn``; ``planned`` is called when the heads have been read."""
    steps = environment.upgrade_to("head")

    def plan(heads: Any, context: Any) -> Any:
        planned()
        return steps(heads, context)

    context = environment.configured(connection, plan, schema="agentruns")
    with translated("agentruns"), context.begin_transaction():
        environment.run(context)


def test_OPS_01_pod_that_does_not_wait_is_told_that_the_revision_is_applied(
    empty_database_url: str, run: Run, within: Within
) -> None:
    script = migrations.sql("15")

    async def work() -> SchemaVerificationError:
        engine = create_async_engine(empty_database_url, poolclass=NullPool)
        async with engine.connect() as faster, engine.connect() as slower:
            driver: Any = (await faster.get_raw_connection()).driver_connection
            with pytest.raises(SchemaVerificationError) as caught:
                await slower.run_sync(upgrade_without_waiting, lambda: await_only(driver.execute(script)))
        await engine.dispose()
        return caught.value

    within(empty_database_url, lambda connection: migrations.upgrade(connection, to="15"))
    assert run(work()).reason == "already_applied"
    assert within(empty_database_url, applied) == [*range(1, 17)]


def test_OPS_01_pod_that_does_not_wait_fails_beside_an_open_upgrade_and_leaves_one_history(
    empty_database_url: str, run: Run, within: Within
) -> None:
    async def work() -> str:
        engine = create_async_engine(empty_database_url, poolclass=NullPool)
        async with engine.connect() as faster, engine.connect() as slower, engine.connect() as watcher:
            await faster.begin()
            await faster.run_sync(migrations.upgrade)
            overtaken = asyncio.create_task(slower.run_sync(upgrade_without_waiting))
            while not (await watcher.execute(text(WAITERS))).scalar_one():
                await asyncio.sleep(0.01)
            await faster.commit()
            with pytest.raises(DBAPIError) as caught:
                await overtaken
            await slower.rollback()
            await slower.run_sync(upgrade_without_waiting)
        await engine.dispose()
        return sqlstate_of(caught.value)

    within(empty_database_url, lambda connection: migrations.upgrade(connection, to="15"))
    assert run(work()) == "23505"
    assert within(empty_database_url, applied) == [*range(1, 17)]
