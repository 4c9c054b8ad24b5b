"""A worker whose run is taken over while it reads the record writes nothing, whatever it finds there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Continue, Finish
from agentruns.domain.ids import AttemptId
from agentruns.domain.lease import RunFence
from agentruns.errors import LeaseLostError
from agentruns.runtime import replay_reading
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.replay_windows import ReadingBounds
from agentruns.runtime.store import AgentRunStore
from agentruns.store.run_view import HeadVersion
from agentruns.testing.drives import TENANT, DriveWorld, builder

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
EVENTS = 6
#: The last of the events that the run has then.
DAMAGE = "UPDATE agentruns.run_events SET digest = sha256(digest) WHERE sequence = 7"
#: What a takeover changes in the run row; nothing else may change.
TAKEN = "fencing_epoch|lease_attempt_id|lease_acquired_at|lease_renewed_at|lease_expires_at"


def circle(calls: list[int]) -> Any:
    graph = builder()

    @graph.node(entry=True, then="a", terminal=True)
    async def a(context: Any) -> Any:
        count = context.state.get("count", 0) + 1
        calls.append(count)
        return Finish({}) if count == 100 else Continue({"count": count})

    return graph.build()


async def evidence(world: DriveWorld) -> tuple[list[tuple[str, str]], list[tuple[Any, ...]]]:
    """Read every row, of the run row all but what says who owns it."""
    (row,) = await world.rows("SELECT * FROM agentruns.runs")
    kept = [(name, getattr(row, name)) for name in row._fields if name not in TAKEN.split("|")]
    return [each for each in await world.everything() if each[0] not in ("runs", "tenant_slots")], kept


@pytest.mark.parametrize("is_damaged", [False, True])
def test_LED_14_whoever_is_overtaken_at_any_window_of_its_reading_writes_nothing(
    in_world: InWorld, monkeypatch: pytest.MonkeyPatch, *, is_damaged: bool
) -> None:
    calls: list[int] = []
    read = replay_reading.read_window
    overtaken_at, windows = [0], [0]
    worlds: list[DriveWorld] = []

    async def overtaken(store: Any, run: Any, window: Any) -> Any:
        if windows[0] == overtaken_at[0]:
            await worlds[0].store.supersede(TENANT, run.run_id, AttemptId.generate())
        windows[0] += 1
        return await read(store, run, window)

    async def work(world: DriveWorld) -> None:
        worlds.append(world)
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.YIELDED
        called = list(calls)
        if is_damaged:
            await world.rows(DAMAGE)
        monkeypatch.setattr("agentruns.runtime.replay.read_window", overtaken)
        monkeypatch.setattr(replay_reading, "read_window", overtaken)
        world.loop._driver._reader._bounds = ReadingBounds(short_events=0, window_events=3)
        before = await evidence(world)
        while True:
            windows[0] = 0
            held = await world.store.supersede(TENANT, run_id, AttemptId.generate())
            epoch = held.fence.epoch.value
            with pytest.raises(LeaseLostError) as lost:
                await world.loop.run(held, world.shutdown)
            assert lost.value.reason == "stale_fence"
            assert await evidence(world) == before
            (row,) = await world.rows("SELECT fencing_epoch FROM agentruns.runs")
            # The taker keeps the run.
            assert row.fencing_epoch == epoch + 1
            assert calls == called
            overtaken_at[0] += 1
            if windows[0] <= overtaken_at[0]:
                break
        # At the first statement of a reading, between its windows, and at the last one.
        assert overtaken_at[0] >= 3

    options = {"maximum_durable_events": EVENTS, "reuse_verified_prefix": False}
    in_world(work, circle(calls), lease=LONG, **options)


def test_LED_14_whoever_is_overtaken_just_before_it_isolates_a_run_isolates_nothing(
    in_world: InWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    observe = AgentRunStore.observe_version

    async def overtaken(store: AgentRunStore, fence: RunFence) -> HeadVersion:
        seen = await observe(store, fence)
        await store.supersede(TENANT, fence.run_id, AttemptId.generate())
        return seen

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.YIELDED
        called = list(calls)
        await world.rows(DAMAGE)
        monkeypatch.setattr(AgentRunStore, "observe_version", overtaken)
        before = await evidence(world)
        with pytest.raises(LeaseLostError) as lost:
            await world.driven(run_id)
        assert lost.value.reason == "stale_fence"
        assert await evidence(world) == before
        assert calls == called

    options = {"maximum_durable_events": EVENTS, "reuse_verified_prefix": False}
    in_world(work, circle(calls), lease=LONG, **options)
