"""Whatever column of a run's rows is altered, an audit of the run finds it, but for those that are no evidence."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Table, and_, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agentruns.errors import RunNotFoundError
from agentruns.operations.audit import AuditScope, Finding, audit_runs
from agentruns.store import tables
from agentruns.testing.drives import TENANT
from agentruns.testing.invariants import ASSERTIONS, BrokenLawError
from agentruns.testing.tampering import altered

#: What no digest covers: a fence may be any later one, and instants of the control plane stand beside bodies. Whatever
#: stands in place of a key's digest could be one.
NO_EVIDENCE = {
    "runs": {"fencing_epoch", "scheduler_ready_at"},
    "agent_submission_keys": {"key_digest"},
}
#: What states, questions and inputs of these runs hold.
SECRETS = ("decided", "worked", "question", '"what"')
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
            found = await _found(connection, scope)
            assert not [each for each in found if any(secret in each.sentence for secret in SECRETS)]
            if not found:
                passed.add(name)
            await step.rollback()
        assert passed == NO_EVIDENCE.get(table.name, set())

    damaged.within(work)


async def _found(connection: AsyncConnection, scope: AuditScope) -> list[Finding]:
    """A row that is in another run or tenant now is missed here: by the laws, or because the run itself is gone."""
    try:
        return [each async for each in audit_runs(connection, scope)]
    except RunNotFoundError:
        return [each async for each in audit_runs(connection)]


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe\x00",
        b"[]",
        b'"text"',
        b'{"superstep":"99999999999999999999","attempt":"x","node_id":1e999999}',
        b'{"retry_not_before":"never","revision":null,"abandoned":{},"waits":"none"}',
        b'{"waits":[1,null,{}],"abandoned":[[]],"node_id":"\\u0000"}',
    ],
)
def test_bytes_that_no_event_may_have_are_a_finding_and_stop_nothing(damaged: Any, data: bytes) -> None:
    async def work(connection: AsyncConnection) -> None:
        await connection.execute(update(tables.events).where(tables.events.c.sequence > 1).values(data=data))
        found = [each async for each in audit_runs(connection)]
        assert {(each.label, each.place) for each in found} == {("LED-2", "run_events[sequence=2].digest")}
        assert len(found) == len(damaged.runs) - 2
        for check in ASSERTIONS:
            with suppress(BrokenLawError):
                await check(connection)

    damaged.within(work)
