"""A worker folds once what it has folded itself; what disagrees with that is read from the beginning."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Continue, Finish
from agentruns.domain.ids import RunId
from agentruns.errors import CorruptDataError, RunQuarantinedError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.kept_runs import KeptRuns
from agentruns.runtime.replay import RunReader
from agentruns.store import journal
from agentruns.store.journal import HistoryRow
from agentruns.testing.drives import TENANT, DriveWorld, builder

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
#: One step is a start, a completion and a barrier; so many events are one drive.
EVENTS = 12
STEPS = EVENTS // 3


def circle(*, rounds: int = 3) -> Any:
    graph = builder()

    @graph.node(entry=True, then="a", terminal=True)
    async def a(context: Any) -> Any:
        count = context.state.get("count", 0) + 1
        return Finish({"count": count}) if count == rounds * STEPS else Continue({"count": count})

    return graph.build()


async def yielded(world: DriveWorld) -> RunId:
    """A run that this driver has given back after so many events."""
    run_id = await world.submitted()
    first = await world.driven(run_id)
    assert first.outcome is AgentLoopOutcome.YIELDED
    assert first.report.replay is not None
    assert (first.report.replay.prefix_sequence, first.report.replay.events_verified) == (None, 1)
    return run_id


@pytest.mark.parametrize("is_reused", [True, False])
def test_N4_the_next_drive_folds_only_what_came_after(in_world: InWorld, *, is_reused: bool) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await yielded(world)
        for drive in (1, 2):
            result = await world.driven(run_id)
            assert result.report.replay is not None
            head = 1 + drive * EVENTS
            seen = (result.report.replay.prefix_sequence, result.report.replay.events_verified)
            assert seen == ((head, 0) if is_reused else (None, head))
        assert result.outcome is AgentLoopOutcome.SUCCEEDED
        whole = await RunReader(world.store, world.executables).read(TENANT, run_id)
        assert whole.report.events_verified == 1 + 3 * EVENTS

    in_world(work, circle(), lease=LONG, maximum_durable_events=EVENTS, reuse_verified_prefix=is_reused)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE agentruns.run_events SET digest = sha256(digest) WHERE sequence = 13",
        "UPDATE agentruns.run_checkpoints SET state = state || ' '::bytea WHERE superstep = 4",
        "UPDATE agentruns.run_checkpoints SET ready = ready || ' '::bytea WHERE superstep = 4",
        "UPDATE agentruns.runs SET revision = revision + 1",
    ],
)
def test_what_disagrees_with_the_kept_part_is_found_from_the_beginning(in_world: InWorld, damage: str) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await yielded(world)
        await world.rows(damage)
        with pytest.raises(RunQuarantinedError):
            await world.driven(run_id)

    in_world(work, circle(), lease=LONG, maximum_durable_events=EVENTS)


def test_LED_03_what_is_damaged_below_is_found_by_the_next_process(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await yielded(world)
        await world.rows("UPDATE agentruns.run_events SET event_id = gen_random_uuid() WHERE sequence = 1")
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.YIELDED
        with pytest.raises(CorruptDataError) as corrupt:
            await RunReader(world.store, world.executables).read(TENANT, run_id)
        assert corrupt.value.component in ("run_events", "chain")

    in_world(work, circle(), lease=LONG, maximum_durable_events=EVENTS)


def test_what_is_kept_has_bounds_and_the_least_recently_used_goes_first(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_ids = [await yielded(world) for _ in range(3)]
        reader = RunReader(world.store, world.executables)
        runs = [await reader.read(TENANT, run_id) for run_id in run_ids]
        kept = KeptRuns(maximum_runs=2)
        for run in runs:
            kept.keep(run.state, run.graph, run.intent)
        assert [kept.find(TENANT, run_id) is not None for run_id in run_ids] == [False, True, True]
        (found,) = [kept.find(TENANT, run_ids[2])]
        assert found is not None
        small = KeptRuns(maximum_bytes=found.size)
        for run in runs[1:]:
            small.keep(run.state, run.graph, run.intent)
        assert [small.find(TENANT, run_id) is not None for run_id in run_ids] == [False, False, True]
        small.forget(TENANT, run_ids[2])
        assert small.find(TENANT, run_ids[2]) is None

    in_world(work, circle(), lease=LONG, maximum_durable_events=EVENTS)


def test_a_run_that_is_over_is_not_kept(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await world.driven(run_id)
        run = await RunReader(world.store, world.executables).read(TENANT, run_id)
        kept = KeptRuns()
        kept.keep(run.state, run.graph, run.intent)
        assert kept.find(TENANT, run_id) is None

    in_world(work, circle(rounds=1), lease=LONG)


@pytest.mark.parametrize(("rounds", "is_kept"), [(1, False), (3, True)])
def test_a_driver_keeps_a_run_only_while_it_may_go_on(in_world: InWorld, *, rounds: int, is_kept: bool) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        outcome = AgentLoopOutcome.YIELDED if is_kept else AgentLoopOutcome.SUCCEEDED
        assert (await world.driven(run_id)).outcome is outcome
        kept = world.loop._driver._reader._kept  # what the driver holds on to
        assert kept is not None
        assert (kept.find(TENANT, run_id) is not None) is is_kept

    in_world(work, circle(rounds=rounds), lease=LONG, maximum_durable_events=EVENTS)


WRITTEN = {
    "run_events": "kind, epoch::text",
    "run_checkpoints": "superstep::text, encode(ready, 'escape'), encode(state, 'escape')",
    "node_attempts": "superstep::text, node_id, attempt::text",
    "node_results": "superstep::text, node_id, attempt::text, encode(body, 'escape')",
    "run_outcomes": "kind, encode(body, 'escape')",
    "runs": "status, revision::text, superstep::text, fencing_epoch::text",
}


async def written(world: DriveWorld, run_id: RunId) -> list[list[tuple[str, ...]]]:
    """Everything that drives of the run wrote, but for ids, instants and what is made from them."""
    found = []
    for table, columns in WRITTEN.items():
        order = "" if table == "runs" else " ORDER BY sequence"
        of_run = f"SELECT {columns} FROM agentruns.{table} WHERE run_id = :run_id{order}"  # noqa: S608  # stands above
        found.append([tuple(row) for row in await world.rows(of_run, run_id=run_id.text)])
    return found


async def driven_to_the_end(world: DriveWorld, run_id: RunId, drops: random.Random | None = None) -> list[bool]:
    """Drive in many turns, and let the kept part go before some of them; say before which it was used."""
    used, outcome = [], AgentLoopOutcome.YIELDED
    while outcome is AgentLoopOutcome.YIELDED:
        if drops is not None and drops.random() < 0.5:
            world.loop._driver._reader.forget(TENANT, run_id)  # nothing else lets one go
        result = await world.driven(run_id)
        outcome = result.outcome
        used.append(result.report.replay.prefix_sequence is not None)
    assert outcome is AgentLoopOutcome.SUCCEEDED
    return used


def test_LED_10_letting_kept_parts_go_at_random_changes_no_outcome_and_no_row(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        first = await world.submitted()
        assert await driven_to_the_end(world, first) == [False] + [True] * 11
        undisturbed, patterns = await written(world, first), set()
        for seed in range(4):
            run_id = await world.submitted()
            patterns.add(tuple(await driven_to_the_end(world, run_id, random.Random(seed))))
            assert await written(world, run_id) == undisturbed
        assert len(patterns) == 4

    in_world(work, circle(), lease=LONG, maximum_durable_events=3)


def test_LED_10_nothing_below_the_kept_head_is_read(in_world: InWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[HistoryRow] = []
    read = journal.history_of

    def noted(row: Any) -> Any:
        history = read(row)
        seen.extend(history.rows)
        return history

    async def work(world: DriveWorld) -> None:
        run_id = await yielded(world)
        monkeypatch.setattr(journal, "history_of", noted)
        result = await world.driven(run_id)
        assert result.report.replay.prefix_sequence == 1 + EVENTS
        # The event at the kept head, which made the checkpoint that the run stands on; both are compared.
        assert sorted((row.source, row.sequence, row.superstep) for row in seen) == [
            ("checkpoint", 1 + EVENTS, STEPS),
            ("event", 1 + EVENTS, None),
        ]

    in_world(work, circle(), lease=LONG, maximum_durable_events=EVENTS)
