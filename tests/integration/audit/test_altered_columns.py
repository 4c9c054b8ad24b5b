"""Whatever column of a run's rows is altered, an audit of the run finds it, but for those that are no evidence."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Table, and_, delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from agentruns.errors import RunNotFoundError
from agentruns.operations.audit import AuditScope, audit_runs
from agentruns.store import tables
from agentruns.testing.drives import TENANT
from agentruns.testing.tampering import altered

#: What no digest covers: a fence may be any later one, and instants of the control plane stand beside bodies. Whatever
#: stands in place of a key's digest could be one.
NO_EVIDENCE = {
    "runs": {"fencing_epoch", "scheduler_ready_at"},
    "agent_submission_keys": {"key_digest"},
}
#: A row of each, in a run that has one.
ROWS: list[tuple[Table, str]] = [
    (tables.runs, "queued"),
    (tables.events, "retried"),
    (tables.checkpoints, "succeeded"),
    (tables.attempts, "superseded"),
    (tables.results, "retried"),
    (tables.waits, "waiting"),
    (tables.outcomes, "cancelled"),
    (tables.admissions, "queued"),
    (tables.keys, "queued"),
    (tables.quarantines, "quarantined"),
]


@pytest.mark.parametrize(("table", "state"), ROWS, ids=[f"{table.name}-{state}" for table, state in ROWS])
def test_DB_06_every_column_is_audited(damaged: Any, table: Table, state: str) -> None:
    scope = AuditScope.run(TENANT, damaged.runs[state])

    async def work(connection: AsyncConnection) -> None:
        assert [each async for each in audit_runs(connection, scope)] == []
        of_run = select(table).where(table.c.run_id == damaged.runs[state].text)
        rows = (await connection.execute(of_run.order_by(*table.primary_key.columns))).mappings().all()
        row = dict(rows[len(rows) // 2])
        passed = set()
        for name in [name for name, value in row.items() if value is not None]:
            step = await connection.begin_nested()
            key = and_(*(column == row[column.key] for column in table.primary_key.columns))
            await connection.execute(delete(table).where(key))
            await connection.execute(insert(table).values({**row, name: altered(row[name])}))
            if not await _is_found(connection, scope):
                passed.add(name)
            await step.rollback()
        assert passed == NO_EVIDENCE.get(table.name, set())

    damaged.within(work)


async def _is_found(connection: AsyncConnection, scope: AuditScope) -> bool:
    """A row that is in another run or tenant now is missed here: by the laws, or because the run itself is gone."""
    try:
        return any([True async for _ in audit_runs(connection, scope)])
    except RunNotFoundError:
        return any([True async for _ in audit_runs(connection)])
