"""A run that begins and is given back, and a store for the role that may release."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from datetime import timedelta
from typing import Any

import pytest
from attrs import define, field
from sqlalchemy import Connection

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import QuarantineId, RunId
from agentruns.operations import grants
from agentruns.operations.quarantines import ReleasedQuarantine, release_quarantine
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.store import AgentRunStore
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, DriveWorld, chain
from agentruns.testing.isolating import IsolatedRun, isolate

OPERATOR = f"agentruns_operator_{os.getpid()}"
#: A start, a completion, a barrier and the next start: then the driver gives the run back.
EVENTS = 6


@define
class Chain:
    """Two nodes, of which each says that it was called."""

    calls: list[str] = field(factory=list)

    def graph(self) -> GraphBundle:
        def a(_context: Any) -> Any:
            self.calls.append("a")
            return {"a": 1}

        def b(context: Any) -> Any:
            self.calls.append("b")
            return {**context.state, "b": 1}

        def c(context: Any) -> Any:
            self.calls.append("c")
            return Finish(context.state)

        return chain(a=a, b=b, c=c)


@define
class Quarantined:
    """A world with a run that a drive has isolated, and what an operator does about it.

    Attributes:
        operator: a store for the role that may release.
        run: the run and the record that isolates it; one bit of event 2 is flipped.
        calls: the nodes that were called.
    """

    world: DriveWorld
    operator: AgentRunStore
    run: IsolatedRun
    calls: list[str]

    async def release(self, quarantine_id: QuarantineId | None = None, **changed: Any) -> ReleasedQuarantine:
        """Release under the operator role, unless another store is given."""
        given: dict[str, Any] = {
            "principal": samples.principal("operator"),
            "reason": "the page was restored",
            "evidence": BoundedJson.of({"ticket": 7}),
            "run_id": self.run.run_id,
            "store": self.operator,
            "executables": self.world.executables,
            **changed,
        }
        return await release_quarantine(
            given.pop("store"),
            given.pop("executables"),
            TENANT,
            given.pop("run_id"),
            quarantine_id or self.run.quarantine_id,
            **given,
        )

    async def releases(self) -> list[Any]:
        """All release records."""
        return await self.world.rows("SELECT * FROM agentruns.run_quarantine_releases ORDER BY released_at")

    async def row(self) -> Any:
        """The run row."""
        (row,) = await self.world.rows("SELECT * FROM agentruns.runs")
        return row


async def begun(world: DriveWorld) -> RunId:
    """A run of which some supersteps are behind it, that nobody holds."""
    run_id = await world.submitted()
    assert (await world.driven(run_id)).outcome is AgentLoopOutcome.YIELDED
    return run_id


@pytest.fixture(scope="session")
def operator_role(server: Any) -> Iterator[str]:
    """A role of this process that nobody has granted anything."""
    server.execute(f"DROP ROLE IF EXISTS {OPERATOR}")
    server.execute(f"CREATE ROLE {OPERATOR} LOGIN")
    yield OPERATOR
    server.execute(f"DROP ROLE {OPERATOR}")


@pytest.fixture
def operator_url(operator_role: str, server: Any, database: str, within: Any, owner_url: str) -> str:
    """The test's database for an operator, with the grants of one."""

    def apply(connection: Connection) -> None:
        grants.apply(connection, grants.GrantedRoles(operator=operator_role))

    within(owner_url, apply)
    url: str = server.url(database, role=operator_role)
    return url


@pytest.fixture
def in_quarantine(in_world: Any, operator_url: str) -> Callable[..., None]:
    """Run a test in a world with a run in quarantine: ``in_quarantine(work)``."""

    def call(work: Callable[[Quarantined], Coroutine[Any, Any, None]], **options: Any) -> None:
        nodes = Chain()

        async def opened(world: DriveWorld) -> None:
            run = await isolate(world, await begun(world))
            async with AgentRunStore(operator_url) as operator:
                await work(Quarantined(world, operator, run, nodes.calls))

        in_world(opened, nodes.graph(), lease=timedelta(minutes=1), maximum_durable_events=EVENTS, **options)

    return call


@pytest.fixture
def begin() -> Callable[[DriveWorld], Awaitable[RunId]]:
    """Bring a run of :class:`Chain` to where nobody holds it."""
    return begun


@pytest.fixture
def nodes() -> Chain:
    """The nodes of a graph, not yet called."""
    return Chain()
