"""A real PostgreSQL for the tests: one server, one template that is migrated once, and a clone of it for each test.

``AGENTRUNS_TEST_MAJOR`` chooses the server: 16, 17 or 18. Workers of one session, and sessions at once, share it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest
from sqlalchemy import URL, Connection
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns import migrations
from agentruns.operations.embedded import EmbeddedServer
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.testing.drives import DriveWorld, open_world

MAJOR = int(os.environ.get("AGENTRUNS_TEST_MAJOR", "18"))
DATA = Path(tempfile.gettempdir()) / f"agentruns-tests-{os.geteuid()}-{MAJOR}"
_BUILDING = "agentruns_building"
_LOCK = 0x6167656E74

Run = Callable[[Coroutine[Any, Any, Any]], Any]
InWorld = Callable[..., None]
Within = Callable[[str, Callable[[Connection], Any]], Any]


class Server:
    """The server of a session: makes databases and drops them."""

    def __init__(self, base: URL, runner: asyncio.Runner) -> None:
        manifest = files("agentruns.migrations").joinpath("manifest.json").read_bytes()
        self.major = MAJOR
        self._base = base
        self._runner = runner
        self._template = f"agentruns_{hashlib.sha256(manifest).hexdigest()[:16]}"
        self._names = (f"test_{os.getpid()}_{number}" for number in count())
        self._admin: asyncpg.Connection[Any] = runner.run(self._connect())

    def url(self, database: str) -> str:
        return self._base.set(database=database).render_as_string(hide_password=False)

    def execute(self, statement: str) -> None:
        self._runner.run(self._admin.execute(statement))

    def clone(self) -> str:
        """Make a database that is migrated to the head."""
        return self._create(self._template)

    def empty(self) -> str:
        """Make a database without anything of ours."""
        return self._create("template1")

    def drop(self, database: str) -> None:
        self.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")

    def prepare(self) -> None:
        """Migrate the template unless another worker or session has; drop what killed sessions left behind."""
        self.execute(f"SELECT pg_advisory_lock({_LOCK})")
        try:
            databases = self._databases()
            if self._template not in databases:
                self.drop(_BUILDING)
                self.execute(f"CREATE DATABASE {_BUILDING}")
                self._runner.run(self._migrate(_BUILDING))
                self.execute(f"ALTER DATABASE {_BUILDING} RENAME TO {self._template}")
            for name in databases:
                if name.startswith("test_") and not psutil.pid_exists(int(name.split("_")[1])):
                    self.drop(name)
        finally:
            self.execute(f"SELECT pg_advisory_unlock({_LOCK})")

    def close(self) -> None:
        self._runner.run(self._admin.close())

    async def _connect(self) -> asyncpg.Connection[Any]:
        query = self._base.query
        return await asyncpg.connect(
            host=str(query["host"]), port=int(str(query["port"])), user=self._base.username, database="postgres"
        )

    async def _migrate(self, database: str) -> None:
        engine = create_async_engine(self.url(database), poolclass=NullPool)
        async with engine.connect() as connection:
            await connection.run_sync(migrations.upgrade)
        await engine.dispose()

    def _create(self, template: str) -> str:
        name = next(self._names)
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def _databases(self) -> list[str]:
        rows = self._runner.run(self._admin.fetch("SELECT datname FROM pg_database"))
        return [row["datname"] for row in rows]


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The server, with its template migrated."""
    with (
        EmbeddedServer(DATA, major=MAJOR, durable=False) as embedded,
        asyncio.Runner() as runner,
    ):
        made = Server(embedded.url, runner)
        made.prepare()
        yield made
        made.close()


@pytest.fixture
def database_url(server: Server) -> Iterator[str]:
    """A migrated database of the test's own, as SQLAlchemy's URL for asyncpg."""
    name = server.clone()
    yield server.url(name)
    server.drop(name)


@pytest.fixture
def empty_database_url(server: Server) -> Iterator[str]:
    """A database of the test's own without anything of ours."""
    name = server.empty()
    yield server.url(name)
    server.drop(name)


@pytest.fixture
def run() -> Iterator[Run]:
    """Run coroutines on one event loop of the test's own: ``run(work())``. Dispose of engines on it too."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def within(run: Run) -> Within:
    """Call a function with a connection in a transaction, committed unless it raises: ``within(url, work)``."""

    async def call(url: str, work: Callable[[Connection], Any]) -> Any:
        async with create_async_engine(url, poolclass=NullPool).begin() as connection:
            return await connection.run_sync(work)

    return lambda url, work: run(call(url, work))


@pytest.fixture
def in_world(database_url: str, run: Run) -> InWorld:
    """Run a test in a world of one graph: ``in_world(work, graph, **options)`` of :func:`open_world`."""

    def call(work: Callable[[DriveWorld], Coroutine[Any, Any, None]], graph: GraphBundle, **options: Any) -> None:
        async def opened() -> None:
            async with open_world(database_url, graph, **options) as world:
                await work(world)

        run(opened())

    return call
