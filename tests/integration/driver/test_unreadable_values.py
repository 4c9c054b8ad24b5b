"""A stored value that no value of the library can be is damage like any other: the run is isolated, once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.errors import CorruptDataError, RunQuarantinedError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.testing.drives import DriveWorld, chain

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
#: A UUID that PostgreSQL takes for one, of a version that the library never makes.
OTHER_VERSION = "'00000000-0000-4000-8000-000000000000'"
#: What a row of some event holds that the CHECK constraints accept, and how it is found.
DAMAGES = [
    ("run_events", "event_id", OTHER_VERSION, "run_events"),
    ("run_events", "recorded_at", "'infinity'", "run_events"),
    ("run_events", "recorded_at", "'-infinity'", "run_events"),
    ("run_events", "epoch", "9223372036854775807", "chain"),
    ("run_events", "kind", "E'\\x01'", "run_events"),
    ("run_events", "data", "'\\x00'", "chain"),
    ("run_checkpoints", "checkpoint_id", OTHER_VERSION, "run_checkpoints.checkpoint_id"),
    ("run_checkpoints", "ready", "'\\x00'", "run_checkpoints.ready"),
    ("run_checkpoints", "state", "'\\x00'", "barrier:superstep-0"),
    ("run_checkpoints", "sequence", "9223372036854775807", "row"),
    ("node_attempts", "superstep", "9223372036854775807", "row"),
    ("node_attempts", "node_id", "E'\\x01'", "row"),
    ("node_attempts", "attempt_id", OTHER_VERSION, "node_attempts.attempt_id"),
    ("node_attempts", "sequence", "9223372036854775807", "row"),
    ("node_results", "superstep", "9223372036854775807", "row"),
    ("node_results", "node_id", "E'\\x01'", "row"),
    ("node_results", "body", "'\\x00'", "body"),
    ("node_results", "sequence", "9223372036854775807", "row"),
    ("agent_admissions", "agent_name", "E'\\x01'", "agent_admissions.agent_name"),
    ("agent_admissions", "agent_version", "''", "agent_admissions.agent_version"),
    ("agent_admissions", "body", "'\\x00'", "agent_admissions.body"),
    ("runs", "revision", "9223372036854775807", "runs.revision"),
    ("runs", "changed_at", "'-infinity'", "runs.changed_at"),
    ("runs", "head_sequence", "9223372036854775807", "runs.head_sequence"),
    ("runs", "head_recorded_at", "'infinity'", "runs.head_recorded_at"),
    ("runs", "superstep", "9223372036854775807", "runs.superstep"),
]


def two() -> Any:
    return chain(a=lambda _: {"a": 1}, b=lambda context: Finish(context.state))


async def damage(world: DriveWorld, table: str, column: str, value: str) -> None:
    """Write a value into the newest row of a table."""
    newest = f"sequence = (SELECT max(sequence) FROM agentruns.{table})"  # noqa: S608 - our own words
    where = "true" if table in ("runs", "agent_admissions") else newest
    await world.rows(f"UPDATE agentruns.{table} SET {column} = {value} WHERE {where}")  # noqa: S608 - our own words


@pytest.mark.parametrize(("table", "column", "value", "component"), DAMAGES)
def test_a_value_that_no_class_takes_isolates_the_run(
    in_world: InWorld, table: str, column: str, value: str, component: str
) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.YIELDED
        await damage(world, table, column, value)
        held = await world.claimed(run_id)
        with pytest.raises(RunQuarantinedError):
            await world.loop.run(held, world.shutdown)
        (record,) = await world.rows("SELECT component FROM agentruns.run_quarantines")
        assert record.component == component
        (row,) = await world.rows("SELECT quarantined_at, lease_attempt_id FROM agentruns.runs")
        assert row.quarantined_at is not None
        assert row.lease_attempt_id is None

    in_world(work, two(), lease=LONG, maximum_durable_events=4, reuse_verified_prefix=False)


@pytest.mark.parametrize(
    ("column", "value"), [("lease_acquired_at", "'-infinity'"), ("lease_expires_at", "'infinity'")]
)
def test_a_lease_that_cannot_be_read_is_given_back_and_the_run_goes_on(
    in_world: InWorld, column: str, value: str
) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        held = await world.claimed(run_id)
        await damage(world, "runs", column, value)
        with pytest.raises(CorruptDataError) as found:
            await world.loop.run(held, world.shutdown)
        assert found.value.component == f"runs.{column}"
        # A lease is no evidence, so nothing is isolated; the next claim writes all of it anew.
        (row,) = await world.rows("SELECT quarantined_at, lease_attempt_id, lease_expires_at FROM agentruns.runs")
        assert tuple(row) == (None, None, None)
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED

    in_world(work, two(), lease=LONG, reuse_verified_prefix=False)


def test_an_instant_of_scheduling_that_cannot_be_read_is_in_nobodys_way(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await damage(world, "runs", "scheduler_ready_at", "'-infinity'")
        with pytest.raises(CorruptDataError) as found:
            await world.loaded(run_id)
        assert found.value.component == "runs.scheduler_ready_at"
        await world.store.release((await world.claimed(run_id)).fence)
        await damage(world, "runs", "scheduler_ready_at", "'-infinity'")
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
        assert (await world.loaded(run_id)).revision.value == 2

    in_world(work, two(), lease=LONG, reuse_verified_prefix=False)


def test_a_gate_that_cannot_be_read_is_named_to_who_claims(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await damage(world, "runs", "scheduler_not_before", "'infinity'")
        with pytest.raises(CorruptDataError) as found:
            await world.claimed(run_id)
        assert found.value.component == "runs.scheduler_not_before"

    in_world(work, two(), lease=LONG)
