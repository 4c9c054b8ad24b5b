"""Two who want the same: parties on connections of their own, in a database that many races share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from os import getpid
from typing import Any, Final

import pytest
from attrs import define, field, frozen
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from agentruns.domain.scalars import TenantId
from agentruns.domain.submission import DurableAgentAdmissionRequest
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.orm import Base
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.submission import AgentRunAdmission
from agentruns.store.transient import sqlstate_of

LEVELS: Final = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
#: A party that waits for longer than this is not going to.
PATIENCE: Final = 30.0
#: What the server says to a transaction that has already failed.
ABORTED: Final = "25P02"

_TABLES: Final = tuple(each.name for each in Base.metadata.sorted_tables if "tenant_id" in each.c)
#: The rows of a tenant in every table but that of its graphs.
COUNT: Final = " UNION ALL ".join(
    f"SELECT '{name}' AS name, count(*) AS rows FROM agentruns.{name} WHERE tenant_id = :tenant"  # noqa: S608
    for name in _TABLES
    if name != "graph_definitions"
)

_TENANTS = (TenantId(f"racing-{getpid()}-{number}") for number in count())


@frozen
class Way:
    """How a party submits.

    Attributes:
        is_own: in a transaction of the library's own; else in one of the party's.
        level: isolation of the party's transaction, or what the database gives to a session that asks for nothing.
    """

    is_own: bool
    level: str

    @property
    def sees_later_commits(self) -> bool:
        """Whether each statement looks anew."""
        return self.is_own or self.level == "READ COMMITTED"

    def __str__(self) -> str:
        return f"{'own' if self.is_own else 'joined'} {self.level}"


WAYS: Final = tuple(Way(is_own, level) for is_own in (True, False) for level in LEVELS)


@frozen
class Party:
    """Somebody who submits, in a transaction of the library's own or on ``connection``."""

    runs: DurableAgentRuns
    tenant: TenantId
    connection: AsyncConnection | None = None

    async def submit(self, key: AgentSubmissionKey, request: DurableAgentAdmissionRequest) -> AgentRunAdmission:
        return await self.runs.submit(key, request, session=self.connection)

    async def admit(self, request: DurableAgentAdmissionRequest) -> AgentRunAdmission:
        return await self.runs.admit(request, session=self.connection)

    async def execute(self, statement: str) -> Any:
        """Say something in the party's own transaction; nothing where it has none."""
        return None if self.connection is None else await self.connection.execute(text(statement))

    async def look(self) -> None:
        """Take the snapshot of the transaction, as the level has it."""
        await self.execute("SELECT 1")

    async def write(self) -> None:
        """Leave a row of the application."""
        await self.execute(f"INSERT INTO public.notes VALUES ('{self.tenant}')")  # noqa: S608

    async def commit(self) -> None:
        if self.connection is not None:
            await self.connection.commit()

    async def rollback(self) -> None:
        if self.connection is not None:
            await self.connection.rollback()

    @property
    async def pid(self) -> int:
        """The server's process of the party's connection."""
        return int((await self.execute("SELECT pg_backend_pid()")).scalar_one())

    async def is_usable(self) -> bool:
        """Tell whether the transaction can go on; the server refuses all of one that has failed."""
        try:
            await self.look()
        except DBAPIError as error:
            if sqlstate_of(error) != ABORTED:
                raise
            return False
        return True


@frozen
class Ring:
    """A database whose sessions have a level unless they ask for another, and what stays open for all of its races."""

    kit: Any
    engine: AsyncEngine
    runs: DurableAgentRuns


@frozen
class Arena:
    """A race in a ring, with a tenant of its own.

    Attributes:
        runs: of a store with the options that it has by default.
    """

    kit: Any
    engine: AsyncEngine
    runs: DurableAgentRuns
    tenant: TenantId

    def request(self, **content: Any) -> DurableAgentAdmissionRequest:
        """Ask for a run of the race's tenant, with fresh ids."""
        made: DurableAgentAdmissionRequest = self.kit.request(**{"tenant_id": self.tenant, **content})
        return made

    @asynccontextmanager
    async def party(self, way: Way, runs: DurableAgentRuns | None = None) -> AsyncIterator[Party]:
        """Let somebody come in a way; what they have not committed at the end is gone."""
        if way.is_own:
            yield Party(runs or self.runs, self.tenant)
            return
        async with self.joining(way.level, runs) as party:
            yield party

    @asynccontextmanager
    async def joining(
        self, level: str = "READ COMMITTED", runs: DurableAgentRuns | None = None
    ) -> AsyncIterator[Party]:
        """Let somebody come with a transaction of their own."""
        async with self.engine.connect() as connection:
            await connection.execution_options(isolation_level=level)
            yield Party(runs or self.runs, self.tenant, connection)

    async def execute(self, statement: str, **values: Any) -> Any:
        """Do something on a connection of nobody's, and commit it."""
        async with self.engine.begin() as connection:
            return await connection.execute(text(statement), values)

    async def see_waiting(self, pid: int) -> None:
        """Return once somebody waits for what the transaction of ``pid`` holds."""
        await self._see("SELECT count(*) FROM pg_stat_activity WHERE :pid = ANY (pg_blocking_pids(pid))", pid)

    async def see_blocked(self, pid: int) -> None:
        """Return once the transaction of ``pid`` waits for somebody else's."""
        await self._see("SELECT cardinality(pg_blocking_pids(:pid))", pid)

    async def _see(self, statement: str, pid: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while not (await self.execute(statement, pid=pid)).scalar_one():
                await asyncio.sleep(0.005)

    async def rows(self) -> dict[str, int]:
        """Count the committed rows of the race's tenant, its graph aside."""
        found = await self.execute(COUNT, tenant=self.tenant.text)
        return {row.name: row.rows for row in found if row.rows}

    async def damage(self, *statements: str) -> None:
        """Change rows behind the library's back: without triggers or foreign keys."""
        async with self.engine.begin() as connection:
            await connection.execute(text("SET LOCAL session_replication_role = replica"))
            for statement in statements:
                await connection.execute(text(statement))

    async def remove(self) -> None:
        """Take all rows of the race's runs away, as retention does when the retry guarantee has ended."""
        rows = "DELETE FROM agentruns.{} WHERE tenant_id = '{}'"
        await self.damage(*(rows.format(name, self.tenant) for name in await self.rows()))

    @asynccontextmanager
    async def listening(self, party: Party) -> AsyncIterator[list[str]]:
        """Write down every transaction and savepoint that is begun or ended on a party's connection."""
        assert party.connection is not None
        await party.look()
        connection, said = party.connection.sync_connection, list[str]()
        assert connection is not None

        def hear(kind: str) -> Callable[..., None]:
            return lambda *_: said.append(kind)

        kinds = ("begin", "commit", "rollback", "savepoint", "release_savepoint", "rollback_savepoint")
        for kind in kinds:
            event.listen(connection, kind, hear(kind))
        yield said

    async def notes(self) -> int:
        """Count the application's committed rows."""
        mine = "SELECT count(*) FROM public.notes WHERE tenant_id = :tenant"
        return int((await self.execute(mine, tenant=self.tenant.text)).scalar_one())


Race = Callable[[Arena], Awaitable[None]]


@define
class Rings:
    """The rings of this process, each made when it is first raced in."""

    server: Any
    kit_of: Any
    runner: asyncio.Runner
    _closing: AsyncExitStack = field(factory=AsyncExitStack, init=False)
    _names: list[str] = field(factory=list, init=False)
    _rings: dict[str, Ring] = field(factory=dict, init=False)

    def race(self, level: str, work: Race) -> None:
        """Run a race in the ring of a level."""
        if level not in self._rings:
            self._names.append(name := self.server.clone())
            self._rings[level] = self.runner.run(self._opened(name, level))
        ring = self._rings[level]
        self.runner.run(self._raced(Arena(ring.kit, ring.engine, ring.runs, next(_TENANTS)), work))

    def close(self) -> None:
        self.runner.run(self._closing.aclose())
        for name in self._names:
            self.server.drop(name)

    async def _opened(self, name: str, level: str) -> Ring:
        kit = self.kit_of(self.server.url(name))
        engine = await self._closing.enter_async_context(kit.engine(pool_size=16, max_overflow=16))
        async with engine.begin() as connection:
            await connection.execute(text("CREATE TABLE public.notes (tenant_id text NOT NULL)"))
            for setting, value in (("default_transaction_isolation", level.lower()), ("deadlock_timeout", "100ms")):
                await connection.execute(text(f"ALTER DATABASE {name} SET {setting} = '{value}'"))
        await engine.dispose()
        return Ring(kit, engine, await self._closing.enter_async_context(kit.runs(publish=False)))

    async def _raced(self, arena: Arena, work: Race) -> None:
        await arena.runs.publish(arena.tenant, arena.kit.graph)
        await work(arena)


@pytest.fixture(scope="session")
def rings(server: Any, kit_of: Any) -> Iterator[Rings]:
    """The databases that the races of this process share, one for each level."""
    with asyncio.Runner() as runner:
        made = Rings(server, kit_of, runner)
        yield made
        made.close()


@pytest.fixture
def race(rings: Rings, request: pytest.FixtureRequest) -> Callable[[Race], None]:
    """Run a race for a tenant of its own, in the ring of the test's way: ``race(work)``; ``work`` takes the arena."""
    ways = [request.getfixturevalue(name) for name in ("way", "own_way", "joined") if name in request.fixturenames]
    level = ways[0].level if ways else "READ COMMITTED"
    return lambda work: rings.race(level, work)


@pytest.fixture(params=WAYS, ids=str)
def way(request: pytest.FixtureRequest) -> Way:
    """Every way to submit."""
    way: Way = request.param
    return way


@pytest.fixture(params=[each for each in WAYS if each.is_own], ids=str)
def own_way(request: pytest.FixtureRequest) -> Way:
    """Transactions of the library's own, whatever a session of the database gets by default."""
    way: Way = request.param
    return way


@pytest.fixture(params=[each for each in WAYS if not each.is_own], ids=str)
def joined(request: pytest.FixtureRequest) -> Way:
    """Every way to submit in a transaction of one's own."""
    way: Way = request.param
    return way
