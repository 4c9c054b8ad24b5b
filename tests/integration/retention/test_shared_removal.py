"""Several connections at once share the work; a run that somebody brings back meanwhile stays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from attrs import evolve
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

from agentruns.operations.retention import RetentionBatch, RetentionPolicy, remove_runs, retention_receipts
from agentruns.runtime.engine import create_engine
from agentruns.store.options import StoreOptions
from agentruns.store.retention import FIRST, LAST, RemovedBatch, Retention
from agentruns.store.unit_of_work import UnitOfWork
from agentruns.testing.samples import TENANT

HOUR = timedelta(hours=1)
POLICY = RetentionPolicy(keep_succeeded=HOUR, keep_failed=HOUR, keep_cancelled=HOUR, retry_guarantee=HOUR)
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[AsyncConnection]:
    engine = create_engine(url, StoreOptions())
    async with engine.connect() as connection:
        yield connection
    await engine.dispose()


def one_batch(connection: Connection) -> RemovedBatch | None:
    """Remove a batch in the transaction that is open."""
    retention = Retention(UnitOfWork(connection))
    retention.permit("agentruns")
    return retention.remove(POLICY.terms_for(TENANT), "ended", after=FIRST, until=LAST)


def in_order(sample: Any, count: int) -> list[Any]:
    first = sample().since - 10 * HOUR
    return [sample(since=first + timedelta(seconds=place)) for place in range(count)]


def test_two_transactions_at_once_take_different_runs(archive: Any, sample: Any, run: Run) -> None:
    samples = in_order(sample, 150)
    archive.write(*samples, bare=True)

    async def work() -> list[int]:
        async with connected(archive.url) as one, connected(archive.url) as two:
            for connection in (one, two):
                await connection.execution_options(isolation_level="READ COMMITTED")
            async with one.begin():
                first = await one.run_sync(one_batch)
                async with two.begin():
                    second = await two.run_sync(one_batch)
            assert first is not None
            assert second is not None
            return [first.run_count, second.run_count]

    assert run(work()) == [100, 50]
    assert archive.left() == set()


def test_many_processes_remove_each_run_once(archive: Any, sample: Any, run: Run) -> None:
    samples = in_order(sample, 700)
    archive.write(*samples, bare=True)

    async def removed() -> int:
        async with connected(archive.url) as connection:
            steps = await connection.run_sync(lambda sync: list(remove_runs(sync, POLICY, tenant_id=TENANT)))
        return sum(step.run_count for step in steps if isinstance(step, RetentionBatch))

    async def work() -> list[int]:
        return await asyncio.gather(*(removed() for _ in range(4)))

    assert sum(run(work())) == len(samples)
    assert archive.left() == set()
    receipts = archive.on_connection(lambda connection: list(retention_receipts(connection, TENANT)))
    assert sum(receipt.run_count for receipt in receipts) == len(samples)
    assert sum(receipt.row_count for receipt in receipts) == len(samples)


def test_OPS_09_a_run_that_is_being_released_stays(archive: Any, sample: Any, run: Run) -> None:
    """While its release is under way its row is held; afterwards it is a run like others."""
    released = sample(status="active", quarantined_at=sample().since)
    archive.write(released)
    policy = evolve(POLICY, include_quarantined=True)

    async def work() -> None:
        async with connected(archive.url) as operator, connected(archive.url) as connection:
            await operator.execution_options(isolation_level="READ COMMITTED")

            async def steps() -> list[Any]:
                return await connection.run_sync(lambda sync: list(remove_runs(sync, policy, tenant_id=TENANT)))

            async with operator.begin():
                await operator.execute(text("UPDATE agentruns.runs SET quarantined_at = NULL"))
                (held,) = await steps()
                assert (held.run_id.text, held.reason) == (released.run_id, "locked")
            assert await steps() == []

    run(work())
    assert archive.left() == {released.run_id}


def test_stopping_between_batches_keeps_what_was_done_and_goes_on(archive: Any, sample: Any) -> None:
    archive.write(*in_order(sample, 250), bare=True)
    first = archive.on_connection(lambda connection: next(remove_runs(connection, POLICY, tenant_id=TENANT)))
    assert first.run_count == 100
    assert len(archive.left()) == 150
    assert archive.removed() == [100, 50]
