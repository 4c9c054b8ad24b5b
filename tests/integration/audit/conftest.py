"""Runs in every state, an audit of them, and a world that many tests damage one after the other and put right."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from attrs import define, field, frozen
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.graph.definition import CompiledGraph
from agentruns.domain.ids import RunId
from agentruns.domain.submission import DurableAgentAdmissionRequest
from agentruns.operations.audit import EVERYTHING, AuditProgress, AuditScope, Finding, audit_runs
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.testing.drives import DriveWorld, builder, open_world
from agentruns.testing.mixed_runs import MIXED_STATES, mixed_graph
from agentruns.testing.stored_stories import Teller
from agentruns.testing.tampering import superuser

#: Longer than any test.
LEASE = timedelta(minutes=5)


@define
class Audited:
    """A world with runs in it, and what an audit says of them.

    Attributes:
        runs: ids by state.
    """

    world: DriveWorld
    runs: dict[str, list[RunId]] = field(factory=dict)
    progress: AuditProgress = field(factory=AuditProgress)

    async def bring(self, count: int = 1, *names: str) -> None:
        """Bring so many runs into each of these states, or into every one."""
        for name in names or MIXED_STATES:
            made = [await MIXED_STATES[name](self.world) for _ in range(count)]
            self.runs.setdefault(name, []).extend(made)

    async def findings(self, scope: AuditScope = EVERYTHING, **options: Any) -> list[Finding]:
        """Audit a scope."""
        engine = create_async_engine(self.world.store_url, poolclass=NullPool)
        try:
            async with engine.connect() as connection:
                found = audit_runs(connection, scope, on_progress=self._tell, **options)
                return [finding async for finding in found]
        finally:
            await engine.dispose()

    def _tell(self, progress: AuditProgress) -> None:
        self.progress = progress


@pytest.fixture
def audited(in_world: Any) -> Callable[..., None]:
    """Run a test over a world whose runs are audited: ``audited(work)``."""

    def call(work: Callable[[Audited], Coroutine[Any, Any, None]], **options: Any) -> None:
        async def opened(world: DriveWorld) -> None:
            await work(Audited(world))

        in_world(opened, mixed_graph(), lease=LEASE, **options)

    return call


@frozen
class Damaged:
    """A database with one run in each state, which every test leaves as it was.

    Attributes:
        url: for a superuser.
        runs: ids by state.
    """

    runner: asyncio.Runner
    url: str
    runs: dict[str, RunId]

    def within(self, work: Callable[[AsyncConnection], Awaitable[None]]) -> None:
        """Work in a transaction that no trigger and no check stops; it is rolled back."""
        self.runner.run(self._within(work))

    async def _within(self, work: Callable[[AsyncConnection], Awaitable[None]]) -> None:
        engine = create_async_engine(self.url, poolclass=NullPool)
        try:
            async with engine.connect() as connection:
                await connection.execute(text("SET LOCAL session_replication_role = replica"))
                await connection.execute(text("SET LOCAL jit = off"))
                await work(connection)
                await connection.rollback()
        finally:
            await engine.dispose()


@pytest.fixture(scope="module")
def damaged(server: Any) -> Iterator[Damaged]:
    """One run in each state, made once for the tests of a module."""
    name = server.clone()
    url = server.url(name)

    async def told() -> dict[str, RunId]:
        async with open_world(url, mixed_graph(), lease=LEASE) as world:
            runs = {state: await bring(world) for state, bring in MIXED_STATES.items()}
        async with superuser(url):
            """The database is without checks and foreign keys from now on."""
        return runs

    with asyncio.Runner() as runner:
        yield Damaged(runner, url, runner.run(told()))
    server.drop(name)


@frozen
class StoryKit:
    """What a teller of stories needs of a world: requests for a graph from ``a``, which may wait, to ``b``."""

    world: DriveWorld

    def request(self) -> DurableAgentAdmissionRequest:
        return self.world.request()

    @property
    def executables(self) -> ExecutableGraphRegistry:
        return self.world.executables

    @property
    def graph(self) -> CompiledGraph:
        return self.world.bundle.graph

    @asynccontextmanager
    async def engine(self) -> AsyncIterator[AsyncEngine]:
        engine = create_async_engine(self.world.url, poolclass=NullPool)
        try:
            yield engine
        finally:
            await engine.dispose()


@pytest.fixture
def telling(in_world: Any) -> Callable[..., None]:
    """Run a test with a teller of stories: ``telling(work)``, where ``work`` takes the audited world and the teller."""
    graph = builder()
    graph.node(name="a", entry=True, then="b", wait_to="b")(lambda _context: None)
    graph.node(name="b", terminal=True)(lambda _context: None)

    def call(work: Callable[[Audited, Teller], Coroutine[Any, Any, None]]) -> None:
        async def opened(world: DriveWorld) -> None:
            await work(Audited(world), Teller(StoryKit(world)))

        in_world(opened, graph.build(), lease=LEASE)

    return call
