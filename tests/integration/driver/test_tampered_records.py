"""Whatever somebody alters in a run's record, reading finds it, and nothing of the run is executed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Table, insert

from agentruns.domain.failure import SafeAfter
from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import RunId
from agentruns.domain.numbers import DurationMillis
from agentruns.errors import (
    CorruptDataError,
    ExecutableGraphUnavailableError,
    LeaseLostError,
    NodeFailedError,
    RunQuarantinedError,
)
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.replay import RunReader
from agentruns.store.tables import admissions, attempts, checkpoints, events, outcomes, results, runs
from agentruns.testing.drives import TENANT, DriveWorld, chain
from agentruns.testing.samples import failure
from agentruns.testing.tampering import Record, superuser

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
#: Rules of the fold, which a finding names when it is not about one column.
RULES = {
    "chain",
    "kind",
    "source",
    "order",
    "position",
    "body",
    "row",
    "status",
    "admission",
    "attempt_history",
    "result",
    "failure",
    "barrier",
    "outcome",
}
#: Columns of the run row that are no evidence: who may write, when it may be claimed, and notes.
NO_EVIDENCE = {
    "fencing_epoch",
    "lease_attempt_id",
    "lease_acquired_at",
    "lease_renewed_at",
    "lease_expires_at",
    "quarantined_at",
    "scheduler_ready_at",
    "scheduler_not_before",
    "trace_context",
    "tenant_id",
    "run_id",
}


PASSING = NodeFailedError(failure=failure(retry_advice=SafeAfter(delay=DurationMillis(0))))


def counting() -> tuple[Any, list[str]]:
    """Two nodes, of which the first fails once; and the names of the nodes that were called."""
    calls: list[str] = []

    def a(context: Any) -> Any:
        calls.append("a")
        if context.attempt == 1:
            raise PASSING
        return {"a": 1}

    def b(context: Any) -> Any:
        calls.append("b")
        return Finish(context.state)

    return chain(a=a, b=b), calls


async def begun(world: DriveWorld) -> RunId:
    """A run with a failed attempt, a repeated one and a barrier behind it, that nobody holds."""
    run_id = await world.submitted()
    assert (await world.driven(run_id)).outcome is AgentLoopOutcome.YIELDED
    return run_id


async def finding(world: DriveWorld, run_id: RunId) -> str:
    """What reading the run finds."""
    with pytest.raises((CorruptDataError, ExecutableGraphUnavailableError)) as error:
        await RunReader(world.store, world.executables).read(TENANT, run_id)
    found = error.value
    return found.component if isinstance(found, CorruptDataError) else str(getattr(found, "reason", ""))


@pytest.mark.parametrize(
    "table", [events, checkpoints, attempts, results, admissions, runs], ids=lambda each: each.name
)
def test_LED_02_LED_11_every_column_of_every_row_is_held_against_the_fold(in_world: InWorld, table: Table) -> None:
    graph, calls = counting()

    async def work(world: DriveWorld) -> None:
        run_id = await begun(world)
        called = list(calls)
        async with superuser(world.url) as connection:
            record = Record(connection, table)
            before = await world.everything()
            for row in await record.rows():
                names = row.keys() - (NO_EVIDENCE if table is runs else set())
                for name in [name for name in names if row[name] is not None]:
                    async with record.with_other(row, name):
                        component = await finding(world, run_id)
                    # A run whose graph nobody here has is not read any further.
                    is_unknown = (table, name, component) == (runs, "graph_definition_digest", "not_installed")
                    named = RULES | {f"{table.name}.{name}", "agent_admissions.body"}
                    assert is_unknown or component in named, (name, component)
            # Reading has changed nothing, whatever it found.
            assert await world.everything() == before
            await RunReader(world.store, world.executables).read(TENANT, run_id)
        assert calls == called == ["a", "a"]

    in_world(work, graph, lease=LONG, maximum_durable_events=6, reuse_verified_prefix=False)


@pytest.mark.parametrize("table", [events, checkpoints, attempts, results, admissions], ids=lambda each: each.name)
def test_LED_02_a_row_too_few_or_too_many_is_found(in_world: InWorld, table: Table) -> None:
    graph, _ = counting()

    async def work(world: DriveWorld) -> None:
        run_id = await begun(world)
        async with superuser(world.url) as connection:
            record = Record(connection, table)
            for row in await record.rows():
                await record.remove(row)
                assert await finding(world, run_id)
                await record.add(row)
                if table is admissions:
                    continue  # its key is the run
                step = "superstep" if "superstep" in row else "sequence"
                extra = {**row, step: row[step] + 100}
                await record.add(extra)
                assert await finding(world, run_id)
                await record.remove(extra)
            await RunReader(world.store, world.executables).read(TENANT, run_id)

    in_world(work, graph, lease=LONG, maximum_durable_events=6, reuse_verified_prefix=False)


def test_LED_02_an_outcome_that_no_event_names_is_found(in_world: InWorld) -> None:
    graph, _ = counting()

    async def work(world: DriveWorld) -> None:
        run_id = await begun(world)
        async with superuser(world.url) as connection:
            values = {
                "tenant_id": TENANT.text,
                "run_id": run_id.text,
                "kind": "outcome",
                "body": b"{}",
                "digest": bytes(32),
                "sequence": 3,
            }
            await Record(connection, outcomes).execute(insert(outcomes).values(values))
            assert await finding(world, run_id) == "row"

    in_world(work, graph, lease=LONG, maximum_durable_events=6, reuse_verified_prefix=False)


@pytest.mark.parametrize(
    ("damage", "cause", "component"),
    [
        ("UPDATE agentruns.runs SET superstep = 0", "projection_mismatch", "runs.superstep"),
        ("UPDATE agentruns.runs SET thread_id = run_id", "projection_mismatch", "runs.thread_id"),
        ("UPDATE agentruns.run_events SET epoch = 5 WHERE sequence = 3", "integrity_failure", "chain"),
        ("DELETE FROM agentruns.run_events WHERE sequence = 4", "integrity_failure", "row"),
        (
            "UPDATE agentruns.node_attempts SET attempt_id = run_id WHERE attempt = 1",
            "projection_mismatch",
            "node_attempts.attempt_id",
        ),
        (
            "UPDATE agentruns.node_results SET retry_not_before = now() WHERE attempt = 1",
            "projection_mismatch",
            "node_results.retry_not_before",
        ),
        ("UPDATE agentruns.node_results SET body = '{}' WHERE attempt = 2", "integrity_failure", "body"),
        ("DELETE FROM agentruns.node_results WHERE attempt = 2", "missing_artifact", "body"),
        ("UPDATE agentruns.run_checkpoints SET state = '[]' WHERE superstep = 1", "integrity_failure", None),
        (
            "UPDATE agentruns.run_checkpoints SET ready = '[]' WHERE superstep = 1",
            "projection_mismatch",
            "run_checkpoints.ready",
        ),
        (
            "UPDATE agentruns.agent_admissions SET agent_name = 'x'",
            "projection_mismatch",
            "agent_admissions.agent_name",
        ),
    ],
)
def test_DRV_01_a_drive_isolates_a_record_that_contradicts_itself_and_calls_nothing(
    in_world: InWorld, damage: str, cause: str, component: str | None
) -> None:
    graph, calls = counting()

    async def work(world: DriveWorld) -> None:
        run_id = await begun(world)
        called = list(calls)
        held = await world.claimed(run_id)
        await world.rows(damage)
        (run_row,) = await world.rows("SELECT head_sequence, head_digest, status, revision FROM agentruns.runs")
        with pytest.raises(RunQuarantinedError) as isolated:
            await world.loop.run(held, world.shutdown)
        assert calls == called
        (record,) = await world.rows("SELECT * FROM agentruns.run_quarantines")
        assert str(record.quarantine_id) == str(isolated.value.quarantine_id)
        assert record.cause_kind == cause
        assert component in (None, record.component)
        assert record.epoch == held.fence.epoch.value
        (row,) = await world.rows("SELECT * FROM agentruns.runs")
        assert (row.quarantined_at, row.lease_attempt_id) == (record.quarantined_at, None)
        assert (row.head_sequence, row.head_digest, row.status, row.revision) == tuple(run_row)
        with pytest.raises(RunQuarantinedError):
            await world.claimed(run_id)

    in_world(work, graph, lease=LONG, maximum_durable_events=6, reuse_verified_prefix=False)


@pytest.mark.parametrize("is_superseded", [True, False])
def test_LED_14_a_finding_under_a_fence_that_is_gone_writes_nothing(in_world: InWorld, *, is_superseded: bool) -> None:
    graph, calls = counting()

    async def work(world: DriveWorld) -> None:
        run_id = await begun(world)
        called = list(calls)
        held = await world.claimed(run_id)
        await world.expire_leases()
        if is_superseded:
            await world.claimed(run_id)
        await world.rows("UPDATE agentruns.runs SET superstep = 0")
        with pytest.raises(LeaseLostError) as lost:
            await world.loop.run(held, world.shutdown)
        assert lost.value.reason == ("stale_fence" if is_superseded else "expired")
        assert await world.rows("SELECT * FROM agentruns.run_quarantines") == []
        (row,) = await world.rows("SELECT quarantined_at, fencing_epoch, lease_attempt_id FROM agentruns.runs")
        # Whoever owns the run now keeps it; a lease that nobody has taken over is given back.
        assert (row.quarantined_at, row.fencing_epoch) == (None, 3 if is_superseded else 2)
        assert (row.lease_attempt_id is not None) == is_superseded
        assert calls == called

    in_world(work, graph, lease=LONG, maximum_durable_events=6, reuse_verified_prefix=False)


def test_LED_23_the_corruption_of_one_run_is_no_affair_of_another(in_world: InWorld) -> None:
    graph, _ = counting()

    async def work(world: DriveWorld) -> None:
        damaged, whole = await begun(world), await begun(world)
        await world.rows(
            "UPDATE agentruns.run_events SET epoch = 5 WHERE sequence = 3 AND run_id = cast(:run_id AS uuid)",
            run_id=damaged.text,
        )
        with pytest.raises(RunQuarantinedError):
            await world.driven(damaged)
        assert (await world.driven(whole)).outcome is AgentLoopOutcome.SUCCEEDED

    in_world(work, graph, lease=LONG, maximum_durable_events=6, reuse_verified_prefix=False)
