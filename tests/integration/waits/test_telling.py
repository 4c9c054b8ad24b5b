"""Listening workers are told of a run when the last of its waits is settled, and not before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from agentruns.domain.status import RunStatus
from agentruns.domain.waits import NodeWait
from agentruns.runtime.supervisor import DurableRunSupervisor
from agentruns.testing.drives import TENANT, DriveWorld
from agentruns.testing.listening import Ear, all_told
from agentruns.testing.movable_clock import MovableClock

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
HOUR = timedelta(hours=1)
#: Longer than a notification that was sent takes to be heard.
HEARD = 0.3


def test_SCH_13_the_last_answer_and_the_last_timer_are_told_of_and_no_earlier_one(
    in_world: InWorld, sleeper: Any, payload: Any, clock: MovableClock
) -> None:
    sleeping = sleeper(lambda: (NodeWait.interrupt("approval", request=payload("may I?")), NodeWait.timer(due_in=HOUR)))

    async def work(world: DriveWorld) -> None:
        sleeping.stands_still(world)
        await clock.advance(timedelta(0))
        run_id = await sleeping.asleep(world)
        question, timer = await sleeping.service(world).outstanding(TENANT, run_id)
        await all_told(world.store)
        async with Ear.at(world.store_url) as ear:
            await sleeping.service(world).resolve_interrupt(**sleeping.answering(run_id, question.wait_id))
            await asyncio.sleep(HEARD)
            assert ear.payloads == []
            await clock.set(timer.due_at.to_datetime())
            assert (await DurableRunSupervisor(world.store, world.executables).tick(TENANT)).timers_fired == 1
            assert (await world.loaded(run_id)).status is RunStatus.ACTIVE
            assert await ear.hears(1) == [TENANT.text]

    in_world(work, sleeping.graph(), lease=LONG)
