"""Of which tenants a supervisor hears that something is due: exactly those for which a tick would find something."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.waits import NodeWait
from agentruns.runtime.supervisor import DurableRunSupervisor
from agentruns.testing.drives import TENANT, DriveWorld
from agentruns.testing.movable_clock import MovableClock

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
HOUR = timedelta(hours=1)
MICROSECOND = timedelta(microseconds=1)
OTHER = TenantId("other")


async def overdue(world: DriveWorld, *tenants: TenantId, digests: Sequence[Any] | None = None) -> tuple[TenantId, ...]:
    known = world.executables.graph_digests if digests is None else digests
    return await world.store.run_once(lambda work: work.discovery.due_among(tenants or (OTHER, TENANT), known))


@pytest.mark.parametrize("kind", ["timer", "interrupt"])
def test_a_wait_is_heard_of_at_its_instant_where_its_graph_is_known_and_until_it_is_settled(
    in_world: InWorld, sleeper: Any, payload: Any, clock: MovableClock, kind: str
) -> None:
    waits: dict[str, Callable[[], Any]] = {
        "timer": lambda: NodeWait.timer(due_in=HOUR),
        "interrupt": lambda: NodeWait.interrupt("approval", request=payload("may I?"), expires_in=HOUR),
    }
    sleeping = sleeper(lambda: (waits[kind](),))

    async def work(world: DriveWorld) -> None:
        sleeping.stands_still(world)
        await clock.advance(timedelta(0))
        run_id = await sleeping.asleep(world)
        (wait,) = await sleeping.service(world).outstanding(TENANT, run_id)
        instant = (wait.due_at if kind == "timer" else wait.expires_at).to_datetime()
        await clock.set(instant - MICROSECOND)
        assert await overdue(world) == ()
        await clock.set(instant)
        assert await overdue(world) == (TENANT,)
        assert await overdue(world, OTHER) == ()
        assert await overdue(world, digests=[]) == ()
        await DurableRunSupervisor(world.store, world.executables).tick(TENANT)
        assert await overdue(world) == ()

    in_world(work, sleeping.graph(), lease=LONG)


def test_a_deadline_is_heard_of_at_its_instant_also_where_the_graph_is_not_known(
    in_world: InWorld, sleeper: Any, clock: MovableClock
) -> None:
    sleeping = sleeper(lambda: (NodeWait.timer(due_in=HOUR),))

    async def work(world: DriveWorld) -> None:
        sleeping.stands_still(world)
        await clock.advance(timedelta(0))
        at = await clock.now() + HOUR
        await world.submitted(limits=BudgetLimits.system_default(deadline=Timestamp.from_datetime(at)))
        await clock.set(at - MICROSECOND)
        assert await overdue(world) == ()
        await clock.set(at)
        assert await overdue(world) == (TENANT,)
        assert await overdue(world, digests=[]) == (TENANT,)
        await DurableRunSupervisor(world.store, world.executables).tick(TENANT)
        assert await overdue(world) == ()

    in_world(work, sleeping.graph(), lease=LONG)
