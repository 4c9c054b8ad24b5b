"""One migration at a time: transactions, threads and tasks that all want to be first."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from alembic.operations import Operations
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from agentruns import migrations
from agentruns.errors import ContentionError
from agentruns.migrations import environment
from agentruns.migrations.locking import lock_key

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Within = Callable[[str, Callable[[Connection], Any]], Any]

WAITERS = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0
"""


async def upgrade(url: str, schema: str = "agentruns") -> None:
    async with create_async_engine(url, poolclass=NullPool).connect() as connection:
        await connection.run_sync(lambda sync: migrations.upgrade(sync, schema=schema))


def applied(connection: Connection, schema: str = "agentruns") -> list[int]:
    table = f'"{schema}".applied_revisions'
    return list(connection.execute(text(f"SELECT number FROM {table} ORDER BY number")).scalars())  # noqa: S608


def test_J2_two_threads_upgrade_two_schemas(empty_database_url: str, within: Within) -> None:
    threads = [
        threading.Thread(target=lambda name=schema: asyncio.run(upgrade(empty_database_url, name)))
        for schema in ("left", "right")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert within(empty_database_url, lambda connection: applied(connection, "left")) == [*range(1, 17)]
    assert within(empty_database_url, lambda connection: applied(connection, "right")) == [*range(1, 17)]


def test_tasks_of_one_event_loop_take_turns(empty_database_url: str, run: Run, within: Within) -> None:
    async def work() -> None:
        await asyncio.gather(upgrade(empty_database_url), upgrade(empty_database_url), upgrade(empty_database_url, "b"))

    run(work())
    assert within(empty_database_url, applied) == [*range(1, 17)]
    assert within(empty_database_url, lambda connection: applied(connection, "b")) == [*range(1, 17)]


def test_wait_that_runs_out_names_the_holder(empty_database_url: str, run: Run) -> None:
    async def work() -> tuple[ContentionError, int, Any]:
        engine = create_async_engine(
            empty_database_url, connect_args={"server_settings": {"application_name": "the holder"}}
        )
        async with engine.connect() as holder, engine.connect() as waiter:
            await holder.execute(text(f"SELECT pg_advisory_xact_lock({lock_key('agentruns')})"))
            pid = (await holder.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            with pytest.raises(ContentionError) as caught:
                await waiter.run_sync(lambda sync: migrations.upgrade(sync, lock_wait=timedelta(milliseconds=50)))
            schemas = await waiter.execute(text("SELECT to_regnamespace('agentruns')::text"))
            made = schemas.scalar_one()
        await engine.dispose()
        return caught.value, pid, made

    error, pid, made = run(work())
    assert (error.reason, error.retryable, made) == ("migration_lock", True, None)
    assert re.fullmatch(rf"pid {pid}, the holder, [0-9] s", error.holder)


def test_turn_lasts_until_the_connection_goes_back_with_a_transaction_per_revision(
    empty_database_url: str, run: Run
) -> None:
    def migrate(connection: Connection) -> None:
        connection.execute(text("CREATE SCHEMA agentruns"))
        connection.commit()
        context = environment.configured(
            connection, environment.upgrade_to("3"), schema="agentruns", transaction_per_migration=True
        )
        with context.begin_transaction():
            migrations.wait_turn(context)
            with Operations.context(context):
                context.run_migrations()

    async def seen(connection: AsyncConnection) -> tuple[bool, str]:
        free = await connection.execute(text(f"SELECT pg_try_advisory_xact_lock({lock_key('agentruns')})"))
        waits = await connection.execute(text("SELECT current_setting('lock_timeout')"))
        return bool(free.scalar_one()), str(waits.scalar_one())

    async def work() -> list[tuple[bool, str]]:
        engine = create_async_engine(empty_database_url, pool_size=2, max_overflow=0)
        async with engine.connect() as connection:
            await connection.run_sync(migrate)
            during = await seen(connection)
        async with engine.connect() as one, engine.connect() as other:
            after = [await seen(one), await seen(other)]
        await engine.dispose()
        return [during, *after]

    assert run(work()) == [(False, "5s"), (True, "0"), (False, "0")]


def test_lock_key_is_the_documented_one() -> None:
    # The first 8 bytes of SHA-256("agentruns.migrate.v1" NUL "agentruns"), signed.
    assert lock_key("agentruns") == 6813506442099862616


def test_failed_upgrade_gives_the_turn_back(empty_database_url: str, within: Within) -> None:
    def squat(connection: Connection) -> None:
        connection.execute(text("CREATE SCHEMA agentruns"))
        connection.execute(text("CREATE TABLE agentruns.runs (squatter integer)"))

    within(empty_database_url, squat)
    with suppress(Exception):
        within(empty_database_url, migrations.upgrade)
    within(empty_database_url, lambda connection: connection.execute(text("DROP TABLE agentruns.runs")))
    within(empty_database_url, migrations.upgrade)
    assert within(empty_database_url, applied) == [*range(1, 17)]


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_turn_that_was_waited_for_shows_what_the_winner_did_at_every_level(
    empty_database_url: str, run: Run, within: Within, level: Any
) -> None:
    async def work() -> None:
        engine = create_async_engine(empty_database_url, poolclass=NullPool, isolation_level=level)
        async with engine.connect() as winner, engine.connect() as loser, engine.connect() as watcher:
            await winner.begin()
            await winner.run_sync(migrations.upgrade)
            waiting = asyncio.create_task(loser.run_sync(migrations.upgrade))
            while not (await watcher.execute(text(WAITERS))).scalar_one():
                await asyncio.sleep(0.01)
            await winner.commit()
            await waiting
        await engine.dispose()

    run(work())
    assert within(empty_database_url, applied) == [*range(1, 17)]
