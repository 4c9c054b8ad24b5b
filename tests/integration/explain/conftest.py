"""A world whose clock stands at noon of a day to come, and a run in it that is explained."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import define

from agentruns.domain.explanation.explanation import RunExplanation
from agentruns.domain.ids import RunId
from agentruns.runtime.agent_loop import DurableAgentLoop
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.supervisor import DurableRunSupervisor
from agentruns.testing.drives import TENANT, DriveWorld
from agentruns.testing.movable_clock import MovableClock

NOON = datetime(2040, 1, 1, 12, tzinfo=UTC)
LEASE = timedelta(minutes=1)


@define
class Explained:
    """A world, and what an operator asks in it.

    Attributes:
        clock: of its database; it stands still until a test moves it.
    """

    world: DriveWorld
    clock: MovableClock

    async def explain(self, run_id: RunId) -> RunExplanation:
        """Ask the process that has the graph."""
        return await self.world.runs.explain(TENANT, run_id)

    async def said(self, run_id: RunId) -> tuple[str, dict[str, str]]:
        """Give the verdict, and the sentence of each code in the order of the reasons."""
        explanation = await self.explain(run_id)
        said = {reason.code.value: reason.sentence for reason in explanation.reasons}
        assert len(said) == len(explanation.reasons)
        return explanation.verdict.value, said

    async def after(self, **span: float) -> None:
        """Let time pass."""
        await self.clock.advance(timedelta(**span))

    def supervisor(self) -> DurableRunSupervisor:
        """Make what acts on what time has decided."""
        return DurableRunSupervisor(self.world.store, self.world.executables)

    def loop(self, **parts: Any) -> DurableAgentLoop:
        """Make a worker's loop of other parts than the world's."""
        options = DurableGraphDriverOptions(lease_renewal_interval=LEASE / 4)
        return DurableAgentLoop(self.world.store, self.world.executables, driver_options=options, **parts)


@pytest.fixture
def explaining(in_world: Any, owner_url: str, run: Any) -> Callable[..., None]:
    """Run a test at noon in a world of one graph: ``explaining(work, graph)``."""

    def call(work: Callable[[Explained], Coroutine[Any, Any, None]], graph: GraphBundle) -> None:
        clock = MovableClock(owner_url)
        run(clock.install())
        run(clock.set(NOON))

        async def opened(world: DriveWorld) -> None:
            world.store.clock.monotonic = lambda: 0.0
            await work(Explained(world, clock))

        in_world(opened, graph, lease=LEASE)

    return call
