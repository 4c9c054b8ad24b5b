"""How a record is read: in a thread when it is large, with a report, and after a run that goes on meanwhile."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from agentruns.domain.failure import SafeAfter
from agentruns.domain.graph.returns import Continue, Finish
from agentruns.domain.ids import RunId
from agentruns.domain.numbers import DurationMillis
from agentruns.errors import (
    CorruptDataError,
    LeaseLostError,
    NodeFailedError,
    RunNotRunnableError,
    RunQuarantinedError,
    StaleHeadError,
)
from agentruns.runtime import replay_reading
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.driver.report import GraphReplayReport
from agentruns.runtime.kept_runs import KeptRuns
from agentruns.runtime.replay import RunReader
from agentruns.runtime.replay_windows import ReadingBounds
from agentruns.store.journal import RunHistory, Window
from agentruns.store.run_owner import check_owner
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, DriveWorld, builder, fan

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
KIB = 1024


# --- the report ------------------------------------------------------------------------------------------------------


def failing_once() -> Any:
    """Two siblings of which one fails once, and the last node."""

    def a(context: Any) -> Any:
        if context.attempt == 1:
            raise NodeFailedError(failure=samples.failure(retry_advice=SafeAfter(delay=DurationMillis(0))))
        return {"a": "a" * 100}

    return fan(first={"a": a, "b": lambda _context: {"b": "b"}}, last=lambda _context: Finish({}))


BYTES = """SELECT sum(size) FROM (
    SELECT octet_length(data) AS size FROM agentruns.run_events UNION ALL
    SELECT octet_length(body) FROM agentruns.agent_admissions UNION ALL
    SELECT octet_length(state) FROM agentruns.run_checkpoints UNION ALL
    SELECT octet_length(body) FROM agentruns.node_results) AS of_rows"""
LARGEST = "SELECT sum(octet_length(body)) FROM agentruns.node_results WHERE superstep = 0 AND status = 'succeeded'"


def test_a_report_has_counts_and_sizes_of_what_was_folded(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id, kept = await world.submitted(), KeptRuns()
        # Two starts, two completions, the repeated start and its completion, the barrier.
        while await world.kinds() == [] or (await world.kinds())[-1] != "graph-barrier-continued":
            assert (await world.driven(run_id)).outcome is AgentLoopOutcome.YIELDED
        reader = RunReader(world.store, world.executables, kept=kept)
        report = (await reader.read(TENANT, run_id)).report
        largest = int((await world.rows(LARGEST))[0][0])
        assert report.duration > 0.0
        assert evolve(report, duration=0.0) == GraphReplayReport(
            events_verified=8,
            supersteps_replayed=1,
            attempts_verified=3,
            results_verified=3,
            bytes_verified=int((await world.rows(BYTES))[0][0]),
            windows=1,
            maximum_barrier_result_bytes=largest,
            prefix_sequence=None,
            superstep=1,
            duration=0.0,
        )
        again = (await reader.read(TENANT, run_id)).report
        assert evolve(again, duration=0.0) == GraphReplayReport(windows=1, prefix_sequence=8, superstep=1)

    in_world(work, failing_once(), lease=LONG, maximum_durable_events=4, maximum_parallel_nodes=2)


# --- a run that goes on meanwhile -------------------------------------------------------------------------------------


def circle(*, size: int = 0, rounds: int = 10_000) -> Any:
    """A node that goes round, each time with a result and a state of a size."""
    graph = builder(maximum_supersteps=2 * rounds)

    @graph.node(entry=True, then="a", terminal=True)
    async def a(context: Any) -> Any:
        count = context.state.get("count", 0) + 1
        update = {"count": count, "text": chr(97 + count % 26) * size}
        return Finish({}, update) if count == rounds else Continue(update)

    return graph.build()


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], Any]]:
    """What happens before each statement that reads what was written after the head that had been seen."""
    steps: list[Callable[[], Any]] = []
    moving: list[Callable[[], Any]] = []
    read = replay_reading.read_window

    async def moved(store: Any, run: Any, window: Window) -> RunHistory:
        is_rest = window.until_sequence == Window().until_sequence and window.after_sequence > 0
        if is_rest and steps and not moving:
            moving.append(steps.pop())
            await moving[0]()
            moving.clear()
        return await read(store, run, window)

    monkeypatch.setattr(replay_reading, "read_window", moved)
    return steps


@pytest.mark.parametrize(("moves", "is_followed"), [(0, True), (7, True), (8, False)])
def test_a_run_that_goes_on_is_followed_eight_times(
    in_world: InWorld, meanwhile: list[Callable[[], Any]], *, moves: int, is_followed: bool
) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await world.driven(run_id)
        # Three events are more than this window holds, so each move is a new head to read up to.
        reader = RunReader(world.store, world.executables, bounds=ReadingBounds(short_events=0, window_events=2))
        meanwhile.extend([lambda: world.driven(run_id)] * moves)
        if is_followed:
            replayed = await reader.read(TENANT, run_id)
            assert replayed.report.events_verified == 1 + 3 * (1 + moves)
            assert replayed.history.run["head_sequence"] == 1 + 3 * (1 + moves)
        else:
            with pytest.raises(StaleHeadError) as stale:
                await reader.read(TENANT, run_id)
            assert stale.value.reason == "recovery"
        assert meanwhile == []
        assert (await world.rows("SELECT count(quarantined_at) FROM agentruns.runs"))[0][0] == 0
        whole = await RunReader(world.store, world.executables).read(TENANT, run_id)
        assert whole.report.events_verified == 1 + 3 * (1 + moves)

    in_world(work, circle(), lease=LONG, maximum_durable_events=3)


def test_what_fits_is_folded_with_the_run_row_at_once(in_world: InWorld, meanwhile: list[Callable[[], Any]]) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await world.driven(run_id)
        meanwhile.append(lambda: world.driven(run_id))
        reader = RunReader(world.store, world.executables, bounds=ReadingBounds(short_events=0))
        report = (await reader.read(TENANT, run_id)).report
        assert (report.events_verified, report.windows) == (7, 2)

    in_world(work, circle(), lease=LONG, maximum_durable_events=3)


def test_a_kept_part_is_followed_in_windows_too(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await world.driven(run_id)
        bounds = ReadingBounds(short_events=4, window_events=6)
        reader = RunReader(world.store, world.executables, kept=KeptRuns(), bounds=bounds)
        first = (await reader.read(TENANT, run_id)).report
        assert (first.prefix_sequence, first.events_verified, first.windows) == (None, 4, 1)
        for _ in range(5):
            await world.driven(run_id)
        later = await reader.read(TENANT, run_id)
        # Five supersteps of three events, two in a window; then what came after the head, which is nothing.
        assert (later.report.prefix_sequence, later.report.events_verified, later.report.windows) == (4, 15, 4)
        assert later.state == (await RunReader(world.store, world.executables).read(TENANT, run_id)).state
        # What is damaged above the kept head is found from the beginning.
        for _ in range(2):
            await world.driven(run_id)
        await world.rows("UPDATE agentruns.run_events SET digest = sha256(digest) WHERE sequence = 21")
        with pytest.raises(CorruptDataError) as corrupt:
            await reader.read(TENANT, run_id)
        assert corrupt.value.component == "chain"

    in_world(work, circle(), lease=LONG, maximum_durable_events=3)


async def refusal(world: DriveWorld, run_id: RunId, fence: Any) -> tuple[type, str]:
    history = (await RunReader(world.store, world.executables).read(TENANT, run_id)).history
    try:
        check_owner(fence, history)
    except (LeaseLostError, RunNotRunnableError, RunQuarantinedError) as error:
        return type(error), getattr(error, "reason", "")
    return type(None), ""


def test_the_last_read_says_whether_the_run_is_still_the_workers(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        held = await world.claimed(run_id)
        assert await refusal(world, run_id, held.fence) == (type(None), "")
        history = (await RunReader(world.store, world.executables).read(TENANT, run_id)).history
        with pytest.raises(RunNotRunnableError) as terminal:
            check_owner(held.fence, evolve(history, run={**history.run, "status": "succeeded"}))
        assert terminal.value.reason == "terminal"
        await world.expire_leases()
        assert await refusal(world, run_id, held.fence) == (LeaseLostError, "expired")
        second = await world.claimed(run_id)
        assert await refusal(world, run_id, held.fence) == (LeaseLostError, "stale_fence")
        await world.store.release(second.fence)
        assert await refusal(world, run_id, second.fence) == (LeaseLostError, "no_lease")
        await world.rows("UPDATE agentruns.runs SET quarantined_at = clock_timestamp()")
        assert await refusal(world, run_id, second.fence) == (RunQuarantinedError, "quarantined")

    in_world(work, circle(), lease=LONG)


def test_a_drive_whose_lease_has_gone_ends_with_its_reading(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        held = await world.claimed(run_id)
        await world.expire_leases()
        await world.claimed(run_id)
        before = await world.everything()
        with pytest.raises(LeaseLostError) as lost:
            await world.loop.run(held, world.shutdown)
        assert lost.value.reason == "stale_fence"
        assert await world.everything() == before

    in_world(work, circle(), lease=LONG)


# --- memory -----------------------------------------------------------------------------------------------------------


async def peak_of_reading(world: DriveWorld, run_id: RunId, bounds: ReadingBounds) -> int:
    """Bytes that a reading holds at most, beyond what is held before it."""
    reader = RunReader(world.store, world.executables, bounds=bounds)
    await reader.read(TENANT, run_id)
    tracemalloc.start()
    try:
        await reader.read(TENANT, run_id)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_LED_15_what_a_reading_holds_does_not_grow_with_the_history(in_world: InWorld) -> None:
    size, window = 20 * KIB, 256 * KIB
    bounds = ReadingBounds(short_events=0, maximum_bytes=window)

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        peaks = {}
        for supersteps in (10, 200):
            while len(await world.kinds()) < 1 + 3 * supersteps:
                assert (await world.driven(run_id)).outcome is AgentLoopOutcome.YIELDED
            peaks[supersteps] = await peak_of_reading(world, run_id, bounds)
        # What 200 supersteps weigh together is eight megabytes; a window and what is made of it stays the same.
        assert int((await world.rows(BYTES))[0][0]) > 7 * KIB * KIB
        assert peaks[200] < peaks[10] + 2 * window

    in_world(work, circle(size=size), lease=LONG, maximum_durable_events=30)
