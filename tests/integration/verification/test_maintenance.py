"""Routine maintenance of indexes is no fault of the schema: not while it goes on, and not after it was broken off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.store.verification import verify_schema

TWIN = "CREATE UNIQUE INDEX pk_runs_ccnew ON agentruns.runs USING btree (tenant_id, run_id)"


def test_OPS_04_a_reindex_beside_a_verification_changes_no_verdict(run: Callable[..., Any], owner_url: str) -> None:
    async def work() -> list[tuple[str, ...]]:
        engine = create_async_engine(owner_url, poolclass=NullPool)
        async with engine.connect() as maintaining, engine.connect() as verifying:
            for connection in (maintaining, verifying):
                await connection.execution_options(isolation_level="AUTOCOMMIT")
            warnings = list[tuple[str, ...]]()
            reindexing = asyncio.create_task(reindex(maintaining, warnings))
            while not reindexing.done():
                warnings.append((await verifying.run_sync(verify_schema)).warnings)
            await reindexing
        await engine.dispose()
        return warnings

    async def reindex(connection: Any, warnings: list[tuple[str, ...]]) -> None:
        count = 0
        while count < 25 or len(warnings) <= 20:  # another task verifies
            count += 1
            await connection.exec_driver_sql("REINDEX TABLE CONCURRENTLY agentruns.runs")
            await asyncio.sleep(0.05)

    warnings = run(work())
    assert len(warnings) > 20
    seen = {line for lines in warnings for line in lines if line.startswith("unexpected")}
    assert {line for line in seen if not line.startswith("unexpected index runs.")} == set()


@pytest.mark.parametrize("state", ["indisvalid", "indisready, indisvalid"])
def test_OPS_04_what_a_broken_reindex_leaves_is_a_warning(undone: Callable[..., Any], state: str) -> None:
    def work(connection: Connection) -> tuple[str, ...]:
        connection.exec_driver_sql(TWIN)
        sets = ", ".join(f"{column} = false" for column in state.split(", "))
        connection.exec_driver_sql(
            f"UPDATE pg_index SET {sets} WHERE indexrelid = 'agentruns.pk_runs_ccnew'::regclass"  # noqa: S608
        )
        return verify_schema(connection).warnings

    assert "unexpected index runs.pk_runs_ccnew" in undone(work)
