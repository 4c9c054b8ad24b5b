"""A long record is read in windows, and where they are cut changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from attrs import evolve

from agentruns.domain.graph.returns import Continue, Finish
from agentruns.domain.ids import RunId
from agentruns.errors import CorruptDataError
from agentruns.runtime import replay
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.replay import ReplayedRun, RunReader
from agentruns.store.journal import Window
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


async def read(world: DriveWorld, run_id: RunId) -> ReplayedRun:
    return await RunReader(world.store, world.executables).read(TENANT, run_id)


async def is_corrupt(world: DriveWorld, run_id: RunId) -> bool:
    try:
        await read(world, run_id)
    except CorruptDataError:
        return True
    return False


def cut(patch: pytest.MonkeyPatch, *, supersteps: int, events: int) -> None:
    """Cut windows after that many supersteps when there are more than that many events."""
    patch.setattr(replay, "_SUPERSTEPS", supersteps)
    patch.setattr(replay, "Window", partial(Window, maximum_events=events))


def test_LED_09_windows_of_any_size_give_the_same_state_and_report(
    in_world: InWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await went_round(world)
        before = await world.everything()
        found = {}
        for windows, (supersteps, events) in {1: (64, 10**6), 4: (64, 512), 3: (99, 512), 101: (1, 0)}.items():
            with monkeypatch.context() as patch:
                cut(patch, supersteps=supersteps, events=events)
                found[windows] = await read(world, run_id)
        reports = {evolve(each.report, windows=0, duration=0.0) for each in found.values()}
        assert len(reports) == 1
        assert all(each.state == found[1].state and each.intent == found[1].intent for each in found.values())
        assert {windows: each.report.windows for windows, each in found.items()} == {n: n for n in found}
        assert found[1].report.events_verified == 1 + 3 * STEPS
        assert found[1].report.supersteps_replayed == STEPS
        # LED-11: reading has changed nothing.
        assert await world.everything() == before

    in_world(work, circle(), lease=LONG, maximum_durable_events=3 * STEPS)


def test_a_long_run_goes_on_where_it_stood_and_ends(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await went_round(world)
        result = await world.driven(run_id)
        assert result.report.replay.windows == 4
        # The last node's event is written, its end is not: a drive of its own does that.
        while result.outcome is AgentLoopOutcome.YIELDED:
            result = await world.driven(run_id)
        assert result.outcome is AgentLoopOutcome.SUCCEEDED
        attempts = await world.attempts()
        assert [(node, attempt) for node, attempt, _ in attempts] == [("a", 1)] * (2 * STEPS)

    in_world(work, circle(), lease=LONG, maximum_durable_events=3 * STEPS)


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


def test_LED_02_what_is_odd_in_a_long_record_is_found_wherever_windows_are_cut(
    in_world: InWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await went_round(world)
        for what, (damage, repair) in DAMAGES.items():
            await world.rows(damage)
            for supersteps, events in ((64, 10**6), (64, 512), (99, 512)):
                with monkeypatch.context() as patch:
                    cut(patch, supersteps=supersteps, events=events)
                    assert await is_corrupt(world, run_id), (what, supersteps, events)
            await world.rows(repair)
        await read(world, run_id)

    in_world(work, circle(), lease=LONG, maximum_durable_events=3 * STEPS)
