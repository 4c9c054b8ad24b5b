"""Spans and counts of what keeps runs and tables in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, cast

import pytest
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns import migrations
from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import RunId
from agentruns.errors import RunNotFoundError
from agentruns.operations.audit import AuditScope, audit_runs
from agentruns.operations.retention import RetentionBatch, RetentionPolicy, remove_runs
from agentruns.runtime.supervisor import DurableRunSupervisor
from agentruns.testing.drives import TENANT, DriveWorld, chain

InWorld = Callable[..., None]
Within = Callable[[str, Callable[[Connection], Any]], Any]
PointsOf = Callable[..., Mapping[Any, float]]
Attributes = Callable[[Any], dict[str, Any]]

LONG = timedelta(minutes=1)
DAYS = timedelta(days=30)


def test_a_round_of_supervision_tells_what_it_settled_and_nothing_else(
    in_world: InWorld, telemetry: Any, attributes: Attributes, points_of: PointsOf
) -> None:
    async def work(world: DriveWorld) -> None:
        supervisor = DurableRunSupervisor(world.store, world.executables)
        await supervisor.tick(TENANT)
        assert telemetry.named("agentruns.supervise") == []
        await world.submitted()
        await world.rows("UPDATE agentruns.runs SET agent_deadline_at = clock_timestamp() - interval '1 s'")
        tick = await supervisor.tick(TENANT)
        # The deadline of the row is no evidence: the run does not verify, and is told of.
        assert (tick.cancellations_requested, len(tick.errors)) == (0, 1)
        assert attributes(telemetry.one("agentruns.supervise")) == {
            "agentruns.tenant_id": TENANT.text,
            "agentruns.deadlines": 0,
            "agentruns.interrupts": 0,
            "agentruns.timers": 0,
            "agentruns.errors": 1,
        }
        assert points_of("agentruns.supervision", "job", "outcome") == {("errors", "failed"): 1}

    in_world(work, chain(a=lambda _context: Finish({})), lease=LONG)


def test_a_migration_is_a_span(empty_database_url: str, within: Within, telemetry: Any, attributes: Attributes) -> None:
    within(empty_database_url, migrations.upgrade)
    assert attributes(telemetry.one("agentruns.migrate")) == {"agentruns.revision": "head"}


def test_an_audit_is_a_span(in_world: InWorld, telemetry: Any, attributes: Attributes) -> None:
    async def work(world: DriveWorld) -> None:
        run_ids = [await world.submitted() for _ in range(2)]
        await world.rows("UPDATE agentruns.runs SET revision = 7")
        engine = create_async_engine(world.url, poolclass=NullPool)
        async with engine.connect() as connection:
            assert len([each async for each in audit_runs(connection)]) == 2
            scope = AuditScope.run(TENANT, run_ids[0])
            found = cast("Any", audit_runs(connection, scope))
            await anext(found)
            await found.aclose()
            with pytest.raises(RunNotFoundError):
                await anext(audit_runs(connection, AuditScope.run(TENANT, missing := RunId.generate())))
        await engine.dispose()
        counts = {"agentruns.unproven": 0, "agentruns.findings": 0, "agentruns.runs": 0, "agentruns.events": 0}
        whole, stopped, failed = telemetry.named("agentruns.audit.run")
        assert attributes(whole) == {
            **counts,
            "agentruns.outcome": "complete",
            "agentruns.findings": 2,
            "agentruns.runs": 2,
            "agentruns.events": 2,
        }
        assert attributes(stopped) == {
            **counts,
            **ids(run_ids[0]),
            "agentruns.outcome": "stopped",
            "agentruns.error": "GeneratorExit",
            "agentruns.findings": 1,
            "agentruns.runs": 1,
            "agentruns.events": 1,
        }
        assert attributes(failed) == {
            **counts,
            **ids(missing),
            "agentruns.outcome": "failed",
            "agentruns.error": "RunNotFoundError",
        }

    in_world(work, chain(a=lambda _context: Finish({})), lease=LONG)


def ids(run_id: RunId) -> dict[str, str]:
    return {"agentruns.tenant_id": TENANT.text, "agentruns.run_id": run_id.text}


def test_a_batch_of_a_removal_is_a_span(in_world: InWorld, telemetry: Any, attributes: Attributes) -> None:
    async def work(world: DriveWorld) -> None:
        await world.driven(await world.submitted())
        await world.rows("UPDATE agentruns.runs SET changed_at = changed_at - interval '366 d'")
        engine = create_async_engine(world.url, poolclass=NullPool)
        async with engine.connect() as connection:
            policy = RetentionPolicy(keep_succeeded=DAYS, keep_failed=DAYS, keep_cancelled=DAYS)
            removed = await connection.run_sync(lambda c: list(remove_runs(c, policy, tenant_id=TENANT)))
        await engine.dispose()
        (batch,) = removed
        assert isinstance(batch, RetentionBatch)
        # The one that removed the run, and the one that found nothing more.
        assert [attributes(each) for each in telemetry.named("agentruns.retention.batch")] == [
            {
                "agentruns.tenant_id": TENANT.text,
                "agentruns.count": 1,
                "agentruns.rows": batch.row_count,
                "agentruns.bytes": batch.byte_count,
            },
            {"agentruns.tenant_id": TENANT.text, "agentruns.count": 0},
        ]

    in_world(work, chain(a=lambda _context: Finish({})), lease=LONG)
