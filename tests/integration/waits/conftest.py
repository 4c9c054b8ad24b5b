"""A run that waits: its first node suspends, its second one reads what became of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import define, field

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import EventId, RunId, WaitId
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scalars import JournalEventKind
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.waits import AnyNodeWait, WaitResolver
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.waits import DurableRunWaits
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, DriveWorld, builder
from agentruns.testing.movable_clock import MovableClock


def payload(data: Any, *, name: str = "evidence") -> JournalPayload:
    """Say something in a document whose schema is installed."""
    return JournalPayload(
        schema=samples.schema_reference(name), kind=JournalEventKind("answer"), data=BoundedJson.of(data)
    )


@define
class Sleeper:
    """Make a graph whose first node waits, and collect what the next one reads.

    Attributes:
        waits: makes what the first node waits for.
        read: what each attempt of the second node was given.
    """

    waits: Callable[[], tuple[AnyNodeWait, ...]]
    read: list[Any] = field(factory=list)

    def graph(self) -> GraphBundle:
        graph = builder()

        async def ask(_context: Any) -> Any:
            return Suspend(*self.waits())

        async def go_on(context: Any) -> Any:
            self.read.append(await context.resolutions())
            return Finish({})

        graph.node(name="ask", entry=True, then="go_on", wait_to="go_on")(ask)
        graph.node(name="go_on", terminal=True)(go_on)
        return graph.build()

    @staticmethod
    def stands_still(world: DriveWorld) -> None:
        """Let the store's clock move only as the database's does, which a test holds and moves."""
        world.store.clock.monotonic = lambda: 0.0

    @staticmethod
    async def asleep(world: DriveWorld) -> RunId:
        """Bring a run to where it waits."""
        run_id = await world.submitted()
        await world.driven(run_id)
        return run_id

    @staticmethod
    def answering(run_id: RunId, wait_id: WaitId, **changes: Any) -> dict[str, Any]:
        """Name the arguments of a resolution with a fresh event."""
        resolver = WaitResolver(principal=samples.principal(), scopes=ScopeSet.of())
        return {
            "tenant_id": TENANT,
            "run_id": run_id,
            "wait_id": wait_id,
            "event_id": EventId.generate(),
            "resolution": payload({"ok": True}),
            "resolver": resolver,
            **changes,
        }

    @staticmethod
    def service(world: DriveWorld) -> DurableRunWaits:
        return DurableRunWaits(world.store, world.executables)


@pytest.fixture
def sleeper() -> type[Sleeper]:
    return Sleeper


@pytest.fixture(name="payload")
def give_payload() -> Callable[..., JournalPayload]:
    return payload


@pytest.fixture
def clock(owner_url: str, run: Any) -> MovableClock:
    """The clock of the test's database, which stands still until the test moves it."""
    movable = MovableClock(owner_url)
    run(movable.install())
    return movable
