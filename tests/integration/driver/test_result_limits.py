"""The results of one superstep are held at once, so a process bounds them: in reading, and before it plans."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import RunId
from agentruns.errors import ExecutableGraphUnavailableError, InvalidOptionError
from agentruns.runtime.agent_loop import AgentLoopOutcome, DurableAgentLoop
from agentruns.runtime.driver.options import DurableGraphDriverOptions, GraphReplayLimits
from agentruns.runtime.replay import RunReader
from agentruns.runtime.replay_windows import ReadingBounds
from agentruns.store import journal
from agentruns.store.journal import HistoryRow
from agentruns.testing.drives import TENANT, DriveWorld, fan

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
DELAY = timedelta(seconds=30)
#: Two starts, two completions, the barrier: then the drive gives the run back.
FIRST_SUPERSTEP = 5
SIZE = 3000

#: In one statement, in one window, superstep by superstep, and event by event.
BOUNDS = [
    ReadingBounds(),
    ReadingBounds(short_events=0),
    ReadingBounds(short_events=0, window_events=6),
    ReadingBounds(short_events=0, window_events=1),
    ReadingBounds(maximum_bytes=SIZE + 500),
]


def siblings(calls: list[str] | None = None) -> Any:
    """Two nodes with a large result each, and the last one."""

    def large(name: str) -> Any:
        def node(_context: Any) -> Any:
            if calls is not None:
                calls.append(name)
            return {name: name * SIZE}

        return node

    return fan(first={"a": large("a"), "b": large("b")}, last=lambda _context: Finish({}))


async def stored_result_bytes(world: DriveWorld) -> int:
    found = await world.rows("SELECT sum(octet_length(body)) FROM agentruns.node_results WHERE superstep = 0")
    return int(found[0][0])


def loop_with(world: DriveWorld, limit: int, **options: Any) -> DurableAgentLoop:
    """Drive with a limit of one's own."""
    driver_options = DurableGraphDriverOptions(
        replay=GraphReplayLimits(maximum_barrier_result_bytes=limit), maximum_parallel_nodes=2, **options
    )
    return DurableAgentLoop(world.store, world.executables, driver_options=driver_options, error_release_delay=DELAY)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[HistoryRow]:
    """Every row of a history that a statement brings, as it comes from the server."""
    rows: list[HistoryRow] = []
    read = journal.history_of

    def seen(row: Any) -> Any:
        history = read(row)
        rows.extend(history.rows)
        return history

    monkeypatch.setattr(journal, "history_of", seen)
    return rows


@pytest.mark.parametrize("bounds", BOUNDS)
def test_LED_15_a_superstep_of_the_limit_folds_and_of_one_byte_more_is_refused_unfetched(
    in_world: InWorld, fetched: list[HistoryRow], bounds: ReadingBounds
) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.YIELDED
        size = await stored_result_bytes(world)
        assert size > 2 * SIZE
        before = await world.everything()

        def reader(limit: int) -> RunReader:
            limits = GraphReplayLimits(maximum_barrier_result_bytes=limit)
            return RunReader(world.store, world.executables, limits=limits, bounds=bounds)

        report = (await reader(size).read(TENANT, run_id)).report
        assert (report.maximum_barrier_result_bytes, report.results_verified) == (size, 2)
        assert [row.source for row in fetched].count("result") == 2

        fetched.clear()
        with pytest.raises(ExecutableGraphUnavailableError) as refused:
            await reader(size - 1).read(TENANT, run_id)
        error = refused.value
        assert (error.reason, error.superstep, error.size, error.limit) == ("result_limit", 0, size, size - 1)
        assert error.graph == world.bundle.graph.definition_digest
        assert [row.source for row in fetched if row.source == "result"] == []
        assert await world.everything() == before

    in_world(work, siblings(), lease=LONG, maximum_durable_events=FIRST_SUPERSTEP, maximum_parallel_nodes=2)


def test_the_sentence_says_what_to_change() -> None:
    error = ExecutableGraphUnavailableError(reason="result_limit", graph="graph", superstep=3, size=65, limit=64)
    assert str(error) == (
        "the results of one superstep are too large here: raise maximum_barrier_result_bytes"
        " (reason=result_limit, graph=graph, superstep=3, size=65, limit=64); correct the deployment"
    )


@pytest.mark.parametrize("limit", [0, 512 * 1024 * 1024 + 1])
def test_the_limit_has_bounds(limit: int) -> None:
    with pytest.raises(InvalidOptionError):
        GraphReplayLimits(maximum_barrier_result_bytes=limit)


async def waits_for_another_process(world: DriveWorld, run_id: RunId) -> None:
    """The run is not isolated, nobody holds it, and nobody takes it before the delay has passed."""
    (row,) = await world.rows(
        "SELECT quarantined_at, lease_attempt_id, scheduler_not_before - clock_timestamp() AS left"
        " FROM agentruns.runs WHERE run_id = :run_id",
        run_id=run_id.text,
    )
    assert (row.quarantined_at, row.lease_attempt_id) == (None, None)
    assert timedelta(0) < row.left <= DELAY
    await world.rows("UPDATE agentruns.runs SET scheduler_not_before = NULL")


@pytest.mark.parametrize("is_fused", [True, False])
def test_results_above_the_limit_are_committed_but_not_planned_and_a_larger_process_goes_on(
    in_world: InWorld, *, is_fused: bool
) -> None:
    calls: list[str] = []

    async def work(world: DriveWorld) -> None:
        await world.driven(await world.submitted())
        size = await stored_result_bytes(world)
        calls.clear()

        run_id = await world.submitted()
        small = loop_with(world, size - 1, fuse_supersteps=is_fused)
        for _ in range(2):
            with pytest.raises(ExecutableGraphUnavailableError) as refused:
                await small.run(await world.claimed(run_id), world.shutdown)
            error = refused.value
            assert (error.reason, error.superstep, error.size, error.limit) == ("result_limit", 0, size, size - 1)
            await waits_for_another_process(world, run_id)
        started, succeeded = "graph-node-attempt-started", "graph-node-attempt-succeeded"
        kinds = await world.rows(
            "SELECT kind FROM agentruns.run_events WHERE run_id = :run_id ORDER BY sequence", run_id=run_id.text
        )
        assert [row.kind for row in kinds] == ["agent-admitted", started, started, succeeded, succeeded]

        exact = loop_with(world, size, fuse_supersteps=is_fused)
        result = await exact.run(await world.claimed(run_id), world.shutdown)
        assert result.outcome is AgentLoopOutcome.SUCCEEDED
        assert sorted(calls) == ["a", "b"]

    in_world(work, siblings(calls), lease=LONG, maximum_durable_events=FIRST_SUPERSTEP, maximum_parallel_nodes=2)


def test_results_of_the_limit_are_fused(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        await world.driven(await world.submitted())
        size = await stored_result_bytes(world)
        for limit, fused in ((size, 2), (8 * size, 2)):
            run_id = await world.submitted()
            result = await loop_with(world, limit).run(await world.claimed(run_id), world.shutdown)
            assert (result.outcome, result.report.fused_commits) == (AgentLoopOutcome.SUCCEEDED, fused)

    in_world(work, siblings(), lease=LONG, maximum_durable_events=FIRST_SUPERSTEP, maximum_parallel_nodes=2)
