"""A long record is read in windows, and where they are cut changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from agentruns.domain.graph.returns import Continue, Finish
from agentruns.domain.ids import RunId
from agentruns.errors import CorruptDataError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.replay import ReplayedRun, RunReader
from agentruns.runtime.replay_windows import ReadingBounds
from agentruns.testing.drives import TENANT, DriveWorld, builder

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
STEPS = 200


def circle() -> Any:
    graph = builder()

    @graph.node(entry=True, then="a", terminal=True)
    async def a(context: Any) -> Any:
        count = context.state.get("count", 0) + 1
        return Finish({"count": count}) if count == 2 * STEPS else Continue({"count": count})

    return graph.build()


async def went_round(world: DriveWorld) -> RunId:
    """A run that stands after ``STEPS`` steps, given back."""
    run_id = await world.submitted()
    result = await world.driven(run_id)
    assert result.outcome is AgentLoopOutcome.YIELDED
    assert result.report.barriers_committed == STEPS
    return run_id


async def read(world: DriveWorld, run_id: RunId, bounds: ReadingBounds | None = None) -> ReplayedRun:
    return await RunReader(world.store, world.executables, bounds=bounds).read(TENANT, run_id)


async def is_corrupt(world: DriveWorld, run_id: RunId, bounds: ReadingBounds) -> bool:
    try:
        await read(world, run_id, bounds)
    except CorruptDataError:
        return True
    return False


def cut(events: int, *, size: int = 8 * 1024 * 1024) -> ReadingBounds:
    """Take no history for a short one, and cut it after so many events or bytes."""
    return ReadingBounds(short_events=0, window_events=events, maximum_bytes=size)


ONE_STATEMENT = ReadingBounds(short_events=10**6)

#: By the windows that they need: the last one is what was written after the head that was seen, and is empty here.
#: A step has three events, and the first one has the admission, too.
BOUNDS = {
    1: ONE_STATEMENT,
    2: ReadingBounds(),
    4: cut(300),
    201: cut(4),
    202: cut(3),
    602: cut(1),
}


@pytest.mark.slow
def test_LED_09_windows_of_any_size_give_the_same_state_and_report(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await went_round(world)
        before = await world.everything()
        found = {windows: await read(world, run_id, bounds) for windows, bounds in BOUNDS.items()}
        found[0] = await read(world, run_id, cut(1024, size=4000))
        assert found[0].report.windows > found[4].report.windows
        reports = {evolve(each.report, windows=0, duration=0.0) for each in found.values()}
        assert len(reports) == 1
        assert all(each.state == found[1].state and each.intent == found[1].intent for each in found.values())
        assert {windows: found[windows].report.windows for windows in BOUNDS} == {n: n for n in BOUNDS}
        assert found[1].report.events_verified == 1 + 3 * STEPS
        assert found[1].report.supersteps_replayed == STEPS
        # LED-11: reading has changed nothing.
        assert await world.everything() == before

    in_world(work, circle(), lease=LONG, maximum_durable_events=3 * STEPS)


def test_a_long_run_goes_on_where_it_stood_and_ends(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await went_round(world)
        result = await world.driven(run_id)
        assert result.report.replay.windows == 2
        # The last node's event is written, its end is not: a drive of its own does that.
        while result.outcome is AgentLoopOutcome.YIELDED:
            result = await world.driven(run_id)
        assert result.outcome is AgentLoopOutcome.SUCCEEDED
        attempts = await world.attempts()
        assert [(node, attempt) for node, attempt, _ in attempts] == [("a", 1)] * (2 * STEPS)

    in_world(work, circle(), lease=LONG, maximum_durable_events=3 * STEPS, reuse_verified_prefix=False)


def odd_attempt(*, superstep: int, sequence: int) -> tuple[str, str]:
    """A start of a node that nobody knows, and its removal."""
    columns = f"tenant_id, run_id, {superstep}, 'x', 1, attempt_id, {sequence}"
    add = f"INSERT INTO agentruns.node_attempts SELECT {columns} FROM agentruns.node_attempts WHERE superstep = 0"  # noqa: S608  # numbers
    return add, "DELETE FROM agentruns.node_attempts WHERE node_id = 'x'"


def changed(table: str, *, to: str, back: str) -> tuple[str, str]:
    return f"UPDATE agentruns.{table} SET {to}", f"UPDATE agentruns.{table} SET {back}"  # noqa: S608  # stands below


DAMAGES = {
    "an attempt of a late step that names an early event": odd_attempt(superstep=150, sequence=3),
    "an attempt of an early step that names a late event": odd_attempt(superstep=0, sequence=500),
    "an attempt of the step at which windows meet": odd_attempt(superstep=64, sequence=3),
    "an attempt of a step that the run has not reached": odd_attempt(superstep=5000, sequence=3),
    "a checkpoint whose event is another one": changed(
        "run_checkpoints", to="sequence = 4 WHERE superstep = 64", back="sequence = 193 WHERE superstep = 64"
    ),
    "a head beyond the last event": changed(
        "runs", to="head_sequence = head_sequence + 1", back="head_sequence = head_sequence - 1"
    ),
    "a missing event in the middle": changed(
        "run_events", to="sequence = 100000 WHERE sequence = 300", back="sequence = 300 WHERE sequence = 100000"
    ),
}


#: The first one of these cuts after step 63.
CUTS = (cut(193), cut(300), ReadingBounds(), ONE_STATEMENT, cut(2))


@pytest.mark.slow
def test_LED_02_what_is_odd_in_a_long_record_is_found_wherever_windows_are_cut(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await went_round(world)
        for what, (damage, repair) in DAMAGES.items():
            await world.rows(damage)
            for bounds in CUTS:
                assert await is_corrupt(world, run_id, bounds), (what, bounds)
            await world.rows(repair)
        for bounds in CUTS:
            await read(world, run_id, bounds)

    in_world(work, circle(), lease=LONG, maximum_durable_events=3 * STEPS)
