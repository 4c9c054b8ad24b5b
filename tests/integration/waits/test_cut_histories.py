"""A wait may be registered in one window of a history and answered in the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentruns.domain.ids import WaitId
from agentruns.domain.waits import NodeWait
from agentruns.runtime.kept_runs import KeptRuns
from agentruns.runtime.replay import RunReader
from agentruns.runtime.replay_windows import ReadingBounds
from agentruns.testing.drives import TENANT, DriveWorld

InWorld = Callable[..., None]


def test_an_answer_is_found_in_the_window_after_the_one_that_asked(
    in_world: InWorld, sleeper: Any, payload: Any
) -> None:
    wait_id = WaitId.generate()
    sleeping = sleeper(lambda: (NodeWait.interrupt("approval", request=payload({}), id=wait_id),))

    async def work(world: DriveWorld) -> None:
        run_id, kept = await sleeping.asleep(world), KeptRuns()
        reader = RunReader(world.store, world.executables, kept=kept)
        assert (await reader.read(TENANT, run_id)).report.prefix_sequence is None
        await sleeping.service(world).resolve_interrupt(**sleeping.answering(run_id, wait_id))

        # After admission, start, result and the barrier that waits comes the answer alone.
        after = await reader.read(TENANT, run_id)
        assert (after.report.prefix_sequence, after.report.events_verified) == (4, 1)
        whole = await RunReader(world.store, world.executables).read(TENANT, run_id)
        for events in (1, 2, 3, 4):
            bounds = ReadingBounds(short_events=0, window_events=events)
            cut = await RunReader(world.store, world.executables, bounds=bounds).read(TENANT, run_id)
            assert cut.state == whole.state == after.state
            assert cut.report.bytes_verified == whole.report.bytes_verified
            assert cut.report.events_verified == 5

    in_world(work, sleeping.graph())
